package tcp

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// bindToDevice makes a socket send and receive through one interface only.
func bindToDevice(fd int, name string) error { return unix.BindToDevice(fd, name) }

// setCongestion selects the congestion control of a socket.
func setCongestion(fd int, name string) error {
	return unix.SetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION, name)
}

// choosePortLate leaves the port of a socket that is bound to an address open until it connects
// (IP_BIND_ADDRESS_NO_PORT). For a port that is free for any destination the kernel searches all
// that are in use: among tens of thousands that was most of what dialing cost. Kernels before 4.2
// go on searching.
func choosePortLate(fd int) { _ = unix.SetsockoptInt(fd, unix.SOL_IP, unix.IP_BIND_ADDRESS_NO_PORT, 1) }

// The calls below go past the Go scheduler: none of them waits, since the net package's descriptors
// don't. Told of them, the scheduler takes the processor away from whoever is in one for 20 µs, as
// a write that runs the whole network stack is, and wakes other threads to use it: with more ranks
// than processors that was most of the context switches. And each call it is told of in an idle
// process wakes its monitor thread, which then looks around every 20 µs for a millisecond.

// readVec reads into the vectors, without waiting.
func readVec(fd int, iov []unix.Iovec) (int, error) {
	return vectored(unix.SYS_READV, fd, iov)
}

// readInto reads into p, without waiting: what a call that mostly finds nothing takes is less than
// readVec's.
func readInto(fd int, p []byte) (int, error) {
	n, _, errno := unix.RawSyscall6(unix.SYS_RECVFROM, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(len(p)),
		unix.MSG_DONTWAIT, 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}

// writeVec writes the vectors, without waiting.
func writeVec(fd int, iov []unix.Iovec) (int, error) {
	return vectored(unix.SYS_WRITEV, fd, iov)
}

func vectored(trap uintptr, fd int, iov []unix.Iovec) (int, error) {
	n, _, errno := unix.RawSyscall(trap, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(iov))), uintptr(len(iov)))
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}

// setLowWater sets SO_RCVLOWAT, and reports whether the system could.
func setLowWater(fd, bytes int) bool {
	value := int32(bytes)
	_, _, errno := unix.RawSyscall6(unix.SYS_SETSOCKOPT, uintptr(fd), unix.SOL_SOCKET, unix.SO_RCVLOWAT,
		uintptr(unsafe.Pointer(&value)), unsafe.Sizeof(value), 0)
	return errno == 0
}

// tcpInfo reads TCP_INFO.
func tcpInfo(fd int) (info unix.TCPInfo, err error) {
	size := uint32(unsafe.Sizeof(info))
	_, _, errno := unix.RawSyscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.IPPROTO_TCP, unix.TCP_INFO,
		uintptr(unsafe.Pointer(&info)), uintptr(unsafe.Pointer(&size)), 0)
	if errno != 0 {
		return info, errno
	}
	return info, nil
}

// hasInput reports whether there is input, an end or an error to read.
func hasInput(poll *unix.PollFd) bool {
	var now unix.Timespec
	n, _, errno := unix.RawSyscall6(unix.SYS_PPOLL, uintptr(unsafe.Pointer(poll)), 1, uintptr(unsafe.Pointer(&now)), 0, 0, 0)
	return errno == 0 && n > 0 || errno != 0 && errno != unix.EINTR
}
