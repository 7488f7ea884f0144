package cluster

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"strconv"
	"syscall"
	"testing"
	"time"
)

// patience is longer than any test may take.
const patience = time.Hour

// A silent host ends nothing by itself: who waits for it waits for as long as StreamTimeout.
func TestASilentSeedHoldsUpNoStartThatIsGivenUp(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	ctx, giveUp := context.WithCancel(t.Context())
	go func() {
		c, err := silent.Accept()
		if err != nil {
			t.Error(err)
		} else {
			defer c.Close()
		}
		giveUp()
		<-t.Context().Done() // it answers nothing meanwhile
	}()
	c := config(nil, "a", 7, "127.0.0.1:0", silent.Addr().String())
	c.StreamTimeout = patience
	if _, err := Start(ctx, c, newEar()); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

// A dial that nobody answers ends with the sockets.
func TestShutdownEndsADial(t *testing.T) {
	s, err := listenSockets("127.0.0.1", 0, memberlistLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		t.Fatal(err)
	}
	addr := unanswered(t)
	dialed := make(chan error)
	go func() {
		_, err := s.DialTimeout(addr, patience)
		dialed <- err
	}()
	if err := s.Shutdown(); err != nil {
		t.Error(err)
	}
	if err := <-dialed; err == nil {
		t.Error("somebody has answered")
	}
}

// unanswered is an address at which the system ignores connections: its queue of them is full.
func unanswered(t *testing.T) string {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { syscall.Close(fd) })
	err = errors.Join(syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}), syscall.Listen(fd, 0))
	if err != nil {
		t.Fatal(err)
	}
	name, err := syscall.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(name.(*syscall.SockaddrInet4).Port))
	first, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { first.Close() })
	return addr
}
