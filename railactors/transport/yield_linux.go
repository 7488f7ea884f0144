package transport

import "golang.org/x/sys/unix"

// Yield lets another thread of the host run, for a loop that polls: with more ranks than
// processors, whoever is awaited needs this one. It returns at once when there is none,
// so it needs no hand-over of the scheduler's P, which would cost more than the call.
func Yield() { unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0) }
