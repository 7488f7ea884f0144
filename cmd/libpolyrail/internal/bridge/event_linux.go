package bridge

import "golang.org/x/sys/unix"

func openEvent() (int, error) { return unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK) }

// signal makes the descriptor readable. Its counter holds 1 at most, so the write cannot fail.
func signal(fd int) { _, _ = unix.Write(fd, []byte{1, 0, 0, 0, 0, 0, 0, 0}) }

// drain makes it not readable.
func drain(fd int) {
	var b [8]byte
	_, _ = unix.Read(fd, b[:])
}

func closeEvent(fd int) { _ = unix.Close(fd) }
