// Package steady checks that a node which works for days is at the end what it was at the
// beginning: over many operations neither goroutines nor descriptors nor resident memory grow, and
// communicators that nobody uses cost little memory and nothing else. Nodes are whole, and on
// loopback TCP.
//
// A short version belongs to the tests; make steady runs the long one and prints what was seen.
package steady
