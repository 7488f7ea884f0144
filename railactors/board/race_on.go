//go:build race

package board

import "sync/atomic"

// wire orders what goes through shared memory for the race detector, which doesn't see it: see
// package shm.
var wire atomic.Uint64

func beforeShow() { wire.Add(1) }
func afterShow()  { wire.Load() }
