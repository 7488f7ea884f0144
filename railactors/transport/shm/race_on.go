//go:build race

package shm

import "sync/atomic"

// wire orders what goes through shared memory for the race detector, which doesn't see it: what was
// done before it was published is seen by who has taken it. Another process may have carried it on
// to another connection.
var wire atomic.Uint64

func beforePublish() { wire.Add(1) }
func afterTake()     { wire.Load() }
