//go:build unix

package cluster

import (
	"log/slog"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"
)

// lines is a log whose lines a test waits for.
type lines chan string

func (l lines) Write(p []byte) (int, error) {
	select {
	case l <- string(p):
	default: // the test has what it waited for
	}
	return len(p), nil
}

func TestANodeWithoutDescriptorsSaysThatNobodyCanJoinByIt(t *testing.T) {
	log := make(lines, 16)
	conf := config(nil, "a", 1, "127.0.0.1:0")
	conf.Logger = slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelWarn}))
	a := start(t, conf)
	defer a.Close()
	at := netip.MustParseAddrPort(a.Addr())
	caller, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(caller)
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	none := limit
	none.Cur = 0
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &none); err != nil {
		t.Fatal(err)
	}
	defer syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit)
	if err := syscall.Connect(caller, &syscall.SockaddrInet4{Port: int(at.Port()), Addr: at.Addr().As4()}); err != nil {
		t.Fatal(err)
	}
	select {
	case line := <-log:
		if !strings.Contains(line, "gossip can't accept") || !strings.Contains(line, "too many open files") {
			t.Errorf("the log says %q", line)
		}
	case <-time.After(30 * time.Second):
		t.Error("the log says nothing")
	}
}
