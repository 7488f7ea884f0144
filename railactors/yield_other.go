//go:build !linux

package railactors

import "runtime"

// Yield lets others run, for a loop that polls.
func Yield() { runtime.Gosched() }
