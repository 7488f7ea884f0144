package shm

import (
	"io"
	"net"
	"sync/atomic"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// What a byte on the socket says.
const (
	bellInput = 'i' // there is input for an end that sleeps
	bellRoom  = 'r' // there is room in the ring of an end that sleeps
	bellShown = 's' // the process shows something for which the other one sleeps
)

// bells is the socket of a connection. Its end is the connection's end.
type bells struct {
	socket *net.UnixConn
	raw    syscall.RawConn
	input  knocker
	room   knocker
	done   chan struct{} // closed when nothing is heard any more
}

// knocker sends one kind of byte. One goroutine at a time uses it.
type knocker struct {
	what  [1]byte
	last  uint32 // the other end's number that was answered last
	knock func(fd uintptr)
}

func newBells(socket *net.UnixConn) (*bells, error) {
	raw, err := socket.SyscallConn()
	if err != nil {
		return nil, err
	}
	b := &bells{socket: socket, raw: raw, done: make(chan struct{})}
	for k, what := range map[*knocker]byte{&b.input: bellInput, &b.room: bellRoom} {
		k.what[0] = what
		// An error means that the other end is gone, or has as many bytes to hear as the socket takes.
		// listen finds out about both.
		k.knock = func(fd uintptr) { _ = sendByte(int(fd), &k.what) }
	}
	return b, nil
}

// wake sends a byte if the other end sleeps under a number that was not answered.
func (b *bells) wake(k *knocker, bell *atomic.Uint32) {
	if number := bell.Load(); number&1 == 1 && number != k.last {
		k.last = number
		// An error means that the socket is closed.
		_ = b.raw.Control(k.knock)
	}
}

// knock sends a byte that says something is shown. False: the other end may not hear it.
func (b *bells) knock() bool {
	sent := false
	err := b.raw.Control(func(fd uintptr) { sent = sendByte(int(fd), &[1]byte{bellShown}) })
	return sent && err == nil
}

// listen calls heard for what arrives until the end of the connection, and returns what that was.
func (b *bells) listen(heard func(input, room, shown bool)) (end error) {
	defer close(b.done)
	var buf [64]byte
	var n int
	read := func(fd uintptr) bool {
		n, end = receive(int(fd), buf[:])
		return end != unix.EAGAIN
	}
	for {
		if err := b.raw.Read(read); err != nil {
			return err
		}
		switch {
		case end == unix.EINTR:
			continue
		case end != nil:
			return end
		case n == 0:
			return io.EOF
		}
		// A byte that found the socket full was not sent. Many wait there then.
		missed := n == len(buf)
		input, room, shown := missed, missed, missed
		for _, what := range buf[:n] {
			input = input || what == bellInput
			room = room || what == bellRoom
			shown = shown || what == bellShown
		}
		heard(input, room, shown)
	}
}

// The calls below go past the Go scheduler, as those of package tcp do and for the same reasons:
// none of them waits.

func sendByte(fd int, b *[1]byte) (sent bool) {
	_, _, errno := unix.RawSyscall6(unix.SYS_SENDTO, uintptr(fd), uintptr(unsafe.Pointer(b)), 1,
		unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL, 0, 0)
	return errno == 0
}

func receive(fd int, p []byte) (int, error) {
	n, _, errno := unix.RawSyscall6(unix.SYS_RECVFROM, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(len(p)),
		unix.MSG_DONTWAIT, 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}
