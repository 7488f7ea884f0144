// Command libpolyrail is polyrail as a C library:
//
//	go build -buildmode=c-shared -o libpolyrail.so ./cmd/libpolyrail
//
// polyrail.h is its interface, docs/c.md its manual. This package owns how C's values become Go's
// and back: export_*.go has Go's side of polyrail.h, and shim.c what must happen before Go is
// entered. What the calls do is in internal/bridge.
package main

import (
	"fmt"
	"os"
)

// main is what a plain build runs; the library never does.
func main() {
	fmt.Fprintln(os.Stderr, "libpolyrail is a library: go build -buildmode=c-shared -o libpolyrail.so ./cmd/libpolyrail")
	os.Exit(2)
}
