//go:build race

package tcp

import "sync/atomic"

// wire orders what goes over sockets for the race detector, as package syscall does: what was done
// before a write is seen by who has read. Another process may have carried it on to another
// connection.
var wire atomic.Uint64

func beforeWrite() { wire.Add(1) }
func afterRead()   { wire.Load() }
