//go:build !linux

package tcp

import (
	"errors"
	"unsafe"

	"golang.org/x/sys/unix"
)

// bindToDevice is Linux's: elsewhere sockets are bound to the device's address only.
func bindToDevice(int, string) error { return errors.ErrUnsupported }

// setCongestion is Linux's.
func setCongestion(int, string) error { return errors.ErrUnsupported }

// readVec reads into the first vector with room, without waiting.
func readVec(fd int, iov []unix.Iovec) (int, error) { return oneByOne(unix.Read, fd, iov) }

// readInto reads into p, without waiting.
func readInto(fd int, p []byte) (int, error) { return unix.Read(fd, p) }

// writeVec writes the vectors, without waiting.
func writeVec(fd int, iov []unix.Iovec) (int, error) { return oneByOne(unix.Write, fd, iov) }

// oneByOne moves vector after vector until one of them is left unfinished.
func oneByOne(call func(fd int, p []byte) (int, error), fd int, iov []unix.Iovec) (total int, err error) {
	for _, v := range iov {
		n, err := call(fd, unsafe.Slice(v.Base, int(v.Len)))
		if n > 0 {
			total += n
		}
		if err != nil && total > 0 {
			return total, nil // the next call meets it again
		}
		if err != nil || n < int(v.Len) {
			return total, err
		}
	}
	return total, nil
}

// choosePortLate leaves the port open until a socket connects, where the system can.
func choosePortLate(int) {}

// setLowWater sets SO_RCVLOWAT, and reports whether the system could.
func setLowWater(fd, bytes int) bool {
	return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVLOWAT, bytes) == nil
}

// hasInput reports whether there is input, an end or an error to read.
func hasInput(poll *unix.PollFd) bool {
	n, err := unix.Poll(unsafe.Slice(poll, 1), 0)
	return n > 0 || err != nil && err != unix.EINTR
}
