//go:build !linux

package transport

import "runtime"

// Yield lets others run, for a loop that polls.
func Yield() { runtime.Gosched() }
