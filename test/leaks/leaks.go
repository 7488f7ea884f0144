// Package leaks looks for goroutines that a package's tests have left behind.
package leaks

import (
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"
)

// Main runs a package's tests, and fails where goroutines outlive them. On a busy host a gossip's
// last probe outlives its shutdown for up to eight probe intervals: goleak does not wait so long.
func Main(m *testing.M) {
	code := m.Run()
	if code == 0 {
		if err := find(); err != nil {
			fmt.Fprintln(os.Stderr, "goroutines left behind:", err)
			code = 1
		}
	}
	os.Exit(code)
}

func find() (err error) {
	for range 5 {
		if err = goleak.Find(); err == nil {
			return nil
		}
	}
	return err
}
