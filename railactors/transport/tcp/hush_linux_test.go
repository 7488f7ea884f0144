package tcp_test

import (
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/polyrail/polyrail/railactors/transport"
	"github.com/polyrail/polyrail/railactors/transport/tcp"
)

// polled is both ends of a connection; what is sent from far arrives at the poller.
func polled(t *testing.T) (near transport.Conn, poller transport.Poller, far transport.Conn) {
	near, far = connect(t, open(t, tcp.Options{}, "127.0.0.2"), open(t, tcp.Options{}, "127.0.0.3"))
	return near, near.(transport.Poller), far
}

// arrived returns when n bytes wait in the system.
func arrived(t *testing.T, c transport.Conn, n int) {
	t.Helper()
	for have := 0; have < n; runtime.Gosched() {
		err := tcp.Raw(c).Control(func(fd uintptr) { have, _ = unix.IoctlGetInt(int(fd), unix.SIOCINQ) })
		if err != nil {
			t.Fatal(err)
		}
	}
}

// readable reports whether whoever waits for input would be woken.
func readable(t *testing.T, c transport.Conn) (ready bool) {
	t.Helper()
	if err := tcp.Raw(c).Control(func(fd uintptr) {
		n, _ := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
		ready = n > 0
	}); err != nil {
		t.Fatal(err)
	}
	return ready
}

func send(t *testing.T, c transport.Conn, n int) {
	t.Helper()
	if _, err := c.Write(make([]byte, n)); err != nil {
		t.Fatal(err)
	}
}

// finds requires that polling has n bytes.
func finds(t *testing.T, poller transport.Poller, n int) {
	t.Helper()
	if got, err := poller.Poll(); got != n || err != nil {
		t.Fatalf("polled %d bytes, want %d: %v", got, n, err)
	}
}

// asleep is a poller that is hushed, with a goroutine in Await.
func asleep(poller transport.Poller) (awaited chan error) {
	poller.Hush(true)
	awaited = make(chan error)
	go func() { awaited <- poller.Await() }()
	return awaited
}

func TestWhatArrivesWhileSomebodyPollsWakesNobodyElse(t *testing.T) {
	near, poller, far := polled(t)
	poller.Hush(true)
	send(t, far, 100)
	arrived(t, near, 100)
	if readable(t, near) {
		t.Error("hushed, and woken by 100 bytes")
	}
	finds(t, poller, 100)
	far.Close()
	if err := poller.Await(); err != nil { // the end of the stream wakes
		t.Error(err)
	}
}

func TestWhatCameWhileHushedIsNotMissed(t *testing.T) {
	near, poller, far := polled(t)
	awaited := asleep(poller)
	send(t, far, 100)
	arrived(t, near, 100)
	poller.Hush(false)
	if err := <-awaited; err != nil {
		t.Error(err)
	}
	finds(t, poller, 100)
}

// A frame's payload may come after its header. Who reads it waits behind the goroutine that has the
// descriptor for waiting, so that one must not sleep on.
func TestAReadWaitsForItsRestWhileHushed(t *testing.T) {
	for _, size := range []int{1 << 10, 16 << 10, 512 << 10} {
		near, poller, far := polled(t)
		awaited := asleep(poller)
		send(t, far, 64)
		arrived(t, near, 64)
		finds(t, poller, 64)
		if _, err := near.ReadFull(make([]byte, 64)); err != nil {
			t.Fatal(err)
		}
		read := make(chan error)
		go func() {
			_, err := near.ReadFull(make([]byte, size))
			read <- err
		}()
		send(t, far, size)
		if err := <-read; err != nil {
			t.Errorf("%d bytes: %v", size, err)
		}
		far.Close()
		if err := <-awaited; err != nil {
			t.Errorf("%d bytes: %v", size, err)
		}
	}
}
