// Package conformance compares operations with a reference, bit for bit.
//
// On nodes in one process, called through the public API over a network in memory and in virtual
// time: every kind, algorithm, element type, operator, root (0, 1 and the last), number of
// ranks and of rails, length and division of the data. "go test" runs a set of cases in which
// every pair of properties occurs, and a sample of the rest (-seed, -sample); "make conformance"
// (-all) runs every case of three ranks, and a larger sample of up to 32.
//
// In the cores alone, without nodes: every kind by every algorithm with every root, number of
// ranks and length, in place and not. Tasks of all ranks run in one goroutine.
//
// The reference evaluates the declared order (test/order) one element at a time, in plain
// Go, and shares no arithmetic with collective/reduce. Since it knows neither rails nor
// weights, equality also shows that the bits depend on neither.
package conformance
