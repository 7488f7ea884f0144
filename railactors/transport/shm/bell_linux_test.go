package shm

import (
	"net"
	"os"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"
)

// bellsPair is the socket of a connection, both ends.
func bellsPair(t *testing.T) (a, b *bells) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	end := func(fd int) *bells {
		file := os.NewFile(uintptr(fd), "bells")
		defer file.Close()
		c, err := net.FileConn(file)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		b, err := newBells(c.(*net.UnixConn))
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	return end(fds[0]), end(fds[1])
}

// A byte that the socket has no room for is not missed: what is in it wakes for everything.
func TestABellThatFindsTheSocketFullIsHeard(t *testing.T) {
	here, there := bellsPair(t)
	for here.knock() { // nobody listens: the process is stopped
	}
	var sleeps atomic.Uint32
	sleeps.Store(1)
	here.wake(&here.input, &sleeps)
	here.wake(&here.room, &sleeps)
	here.socket.Close()
	var input, room bool
	_ = there.listen(func(i, r, _ bool) { input, room = input || i, room || r })
	if !input || !room {
		t.Errorf("input was heard: %v, room: %v; want both", input, room)
	}
}
