// Package rounds kills and stops real processes in the middle of an operation, round after round.
// The others have an error that names the lost one, shrink and go on with right sums. One that was
// stopped goes on when they have done so. It learns that it was given up, and why, and that it must
// not go on alone. The lost one comes back under its name, as a new process or, after a stop, as
// the one that it was. Then all form the whole communicator. Those who live through all rounds keep
// as many goroutines and descriptors as they had, and their memory.
//
// And members leave: they close the communicator or their node, cancel, or are killed, at any
// moment of a mix of operations and Dups. Nobody waits for them longer than a rank timeout and a
// second, in virtual time, on loopback and as processes.
//
// A few rounds belong to the tests; make rounds runs many, holds their times against what they may
// be and prints what was seen. Rounds in virtual time are in the root package (rounds_test.go),
// lost hosts of a network in test/netlab.
package rounds
