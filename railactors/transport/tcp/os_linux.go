package tcp

import "golang.org/x/sys/unix"

// bindToDevice makes a socket send and receive through one interface only.
func bindToDevice(fd int, name string) error { return unix.BindToDevice(fd, name) }

// yieldProcessor lets another thread of the host run. It returns at once when there is none,
// so it needs no hand-over of the scheduler's P, which would cost more than the call.
func yieldProcessor() { unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0) }
