// Package conformance compares whole operations, called through the public API on nodes
// in one process, with a reference: every element type, operator, number of ranks,
// length, algorithm and number of rails, bit for bit.
//
// The reference evaluates the declared order (test/order) one element at a time, in plain
// Go, and shares no arithmetic with collective/reduce. Since it knows neither rails nor
// weights, equality also shows that the bits depend on neither.
//
// "go test" runs a set of cases in which every pair of properties occurs, and a sample of the rest
// (-seed, -sample); "make conformance" (-all) runs every case.
package conformance
