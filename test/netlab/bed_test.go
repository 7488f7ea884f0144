//go:build linux

package netlab

import (
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// in runs f on a host: on a thread of its own in the host's namespace, which ends with it.
func in[T any](t *testing.T, b *Bed, host int, f func() (T, error)) T {
	t.Helper()
	type result struct {
		value T
		err   error
	}
	done := make(chan result, 1)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread is of no use to others
		var r result
		defer func() { done <- r }()
		ns, err := os.Open("/run/netns/" + b.ns(host))
		if err != nil {
			r.err = err
			return
		}
		defer ns.Close()
		if r.err = unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); r.err == nil {
			r.value, r.err = f()
		}
	}()
	r := <-done
	if r.err != nil {
		t.Fatalf("on host %d: %v", host, r.err)
	}
	return r.value
}

// connect opens a connection between two hosts on a rail. Both ends live for patience.
func connect(t *testing.T, b *Bed, from, to, rail int) (near, far net.Conn) {
	t.Helper()
	l := in(t, b, to, func() (net.Listener, error) { return net.Listen("tcp4", b.Addr(to, rail)+":0") })
	defer l.Close()
	end := time.Now().Add(patience)
	if err := l.(*net.TCPListener).SetDeadline(end); err != nil {
		t.Fatal(err)
	}
	near = in(t, b, from, func() (net.Conn, error) { return net.DialTimeout("tcp4", l.Addr().String(), 10*time.Second) })
	far, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { near.Close(); far.Close() })
	if err := errors.Join(near.SetDeadline(end), far.SetDeadline(end)); err != nil {
		t.Fatal(err)
	}
	return near, far
}

// carry sends n bytes and returns how long they took to arrive.
func carry(t *testing.T, from, to net.Conn, n int64) time.Duration {
	t.Helper()
	start := time.Now()
	sent := make(chan error, 1)
	go func() {
		_, err := io.CopyN(from, zeros{}, n)
		sent <- err
	}()
	if _, err := io.CopyN(io.Discard, to, n); err != nil {
		t.Fatal(err)
	}
	if err := <-sent; err != nil {
		t.Fatal(err)
	}
	return time.Since(start)
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

func TestRailsCarryTheirOwnTrafficAtTheirRate(t *testing.T) {
	b := Up(t, Config{Hosts: 3, Rails: []Rate{100 * Mbit, 0}, Management: true})
	const n = 2_000_000
	for rail := range 3 {
		before := b.Traffic(1, rail)
		near, far := connect(t, b, 1, 3, rail)
		took := carry(t, near, far, n)
		// Shaping is a bound from below: 2 MB at 100 Mbit/s take 160 ms, less one burst.
		if rail == 1 && took < 140*time.Millisecond {
			t.Errorf("rail 1 is faster than its rate: %d bytes in %v", n, took)
		}
		if got := b.Traffic(1, rail).Sent - before.Sent; got < n || got > n+n/4 {
			t.Errorf("rail %d: %d bytes counted for %d sent", rail, got, n)
		}
		for other := range 3 {
			if got := b.Traffic(2, other).Received; got > n/10 {
				t.Errorf("host 2, rail %d: heard %d bytes that were not for it", other, got)
			}
		}
	}
}

func TestCutLinksCarryNothingUntilRestored(t *testing.T) {
	b := Up(t, Config{Hosts: 2, Rails: []Rate{0, 0}})
	near, far := connect(t, b, 1, 2, 1)
	other, otherFar := connect(t, b, 1, 2, 2)
	for name, how := range map[string]Cut{"carrier": Carrier, "admin": Admin, "silent": Silent} {
		b.Cut(1, 1, how)
		if _, err := near.Write([]byte{1}); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if err := far.SetReadDeadline(time.Now().Add(300 * time.Millisecond)); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(far, make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("%s: something came through a cut link (%v)", name, err)
		}
		carry(t, other, otherFar, 1000) // the other rail doesn't mind
		b.Restore(1, 1)
		if err := far.SetReadDeadline(time.Now().Add(30 * time.Second)); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(far, make([]byte, 1)); err != nil {
			t.Fatalf("%s: restored, and yet %v", name, err)
		}
	}
}

// What is queued when a link becomes slower still fits through its shaper.
func TestASlowerLinkLetsPassWhatItHasQueued(t *testing.T) {
	b := Up(t, Config{Hosts: 1, Rails: []Rate{250 * Mbit}})
	bucket := func() int64 {
		var queues []struct {
			Options struct{ Rate, Burst int64 }
		}
		out := b.run(nil, "tc", "-n", b.ns(1), "-j", "qdisc", "show", "dev", NIC(1), "root")
		if err := json.Unmarshal(out, &queues); err != nil || len(queues) != 1 || queues[0].Options.Burst == 0 {
			t.Fatalf("%v: %s", err, out)
		}
		t.Logf("%d bytes a second, %d at once", queues[0].Options.Rate, queues[0].Options.Burst)
		return queues[0].Options.Burst
	}
	before := bucket()
	b.SetRate(1, 1, 62*Mbit)
	// tc counts in time, and rounds.
	if after := bucket(); after < before-before/100 {
		t.Errorf("packets of %d bytes passed, of %d bytes do", before, after)
	}
}

func TestCommandsRunOnTheirHost(t *testing.T) {
	b := Up(t, Config{Hosts: 2, Rails: []Rate{0}})
	out, err := b.Command(2, "ip", "-4", "addr", "show", "dev", "rail1").CombinedOutput()
	if err != nil || !strings.Contains(string(out), "10.78.1.2/24") {
		t.Errorf("%v: %s", err, out)
	}
}

func TestBedsLeaveNothingBehind(t *testing.T) {
	var prefix string
	t.Run("bed", func(t *testing.T) {
		b := Up(t, Config{Hosts: 1, Rails: []Rate{0}})
		prefix = b.prefix
		if err := b.Command(1, "sleep", "3600").Start(); err != nil {
			t.Fatal(err)
		}
	})
	if prefix == "" {
		t.Skip("SKIPPED: no bed")
	}
	for _, ns := range namespaces(t) {
		if strings.HasPrefix(ns, prefix+"-") {
			t.Errorf("%s is still there", ns)
		}
	}
}

func TestLeftoversOfDeadProcessesAreRemoved(t *testing.T) {
	b := Up(t, Config{Hosts: 1, Rails: []Rate{0}})
	start, _ := startTime(os.Getpid())
	dead := "polyrail-" + strings.Repeat("9", 9) + "-" + start + "-1-h1" // no such process id
	b.run(nil, "ip", "netns", "add", dead)
	removeLeftovers(t)
	for _, ns := range namespaces(t) {
		if ns == dead {
			remove(t, dead)
			t.Errorf("%s is still there", dead)
		}
	}
	b.Traffic(1, 1) // the living one's is
}
