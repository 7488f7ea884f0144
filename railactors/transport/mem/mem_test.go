package mem_test

import (
	"context"
	"errors"
	"net"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/polyrail/polyrail/railactors/transport"
	"github.com/polyrail/polyrail/railactors/transport/mem"
	"github.com/polyrail/polyrail/railactors/transport/transporttest"
	"github.com/polyrail/polyrail/test/bubble"
)

func openTwo(t *testing.T) (a, b transport.Device) {
	n := mem.NewNetwork()
	return open(t, n, "alpha"), open(t, n, "beta")
}

func open(t *testing.T, n *mem.Network, host string) transport.Device {
	t.Helper()
	d, err := n.Transport(host).Open("rail0")
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestConformance(t *testing.T) { transporttest.Run(t, openTwo) }

// connect dials from a to b; both ends are closed with the test.
func connect(t *testing.T, a, b transport.Device) (near, far transport.Conn) {
	t.Helper()
	near, err := a.Dial(t.Context(), b.Addr())
	if err != nil {
		t.Fatal(err)
	}
	if far, err = b.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { near.Close(); far.Close() })
	return near, far
}

func TestBlockedStreamsLetVirtualTimeGoOn(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		a, b := openTwo(t)
		near, far := connect(t, a, b)
		start := time.Now()
		far.SetReadDeadline(start.Add(time.Hour))
		near.SetWriteDeadline(start.Add(2 * time.Hour))
		if _, err := far.ReadFull(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Error(err)
		}
		if now := time.Since(start); now != time.Hour {
			t.Errorf("the reader came back after %v", now)
		}
		if n, err := near.Write(make([]byte, 1<<20)); n != 256<<10 || !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%d bytes, %v", n, err)
		}
		if now := time.Since(start); now != 2*time.Hour {
			t.Errorf("the writer came back after %v", now)
		}
	})
}

func TestACutResetsConnectionsAndRefusesDialsUntilHealed(t *testing.T) {
	for _, host := range []string{"alpha", "beta"} {
		n := mem.NewNetwork()
		a, b, c := open(t, n, "alpha"), open(t, n, "beta"), open(t, n, "gamma")
		near, far := connect(t, a, b)
		other := "alpha"
		if host == "alpha" {
			other = "beta"
		}
		n.Cut(host, "rail0")
		for _, end := range []transport.Conn{near, far} {
			if _, err := end.ReadFull(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("read: %v", err)
			}
			if _, err := end.Write([]byte{1}); !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("write: %v", err)
			}
		}
		if _, err := a.Dial(t.Context(), b.Addr()); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("dial with %s cut: %v", host, err)
		}
		devices := map[string]transport.Device{"alpha": a, "beta": b}
		connect(t, c, devices[other]) // who isn't cut goes on
		n.Heal(host, "rail0")
		connect(t, a, b)
	}
}

func TestSilenceKeepsBytesAndEndsBackUntilHealed(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		n := mem.NewNetwork()
		a, b := open(t, n, "alpha"), open(t, n, "beta")
		near, far := connect(t, a, b)
		if _, err := near.Write([]byte("there before ")); err != nil {
			t.Fatal(err)
		}
		n.Silence("beta", "rail0")
		if _, err := near.Write([]byte("into the void")); err != nil {
			t.Fatal(err)
		}
		near.Close()
		far.SetReadDeadline(time.Now().Add(time.Minute))
		got := make([]byte, 13)
		if _, err := far.ReadFull(got); err != nil || string(got) != "there before " {
			t.Fatalf("what was confirmed before the silence: %q, %v", got, err)
		}
		if k, err := far.ReadFull(got); k != 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("%d bytes came through the silence, %v", k, err)
		}
		far.SetReadDeadline(time.Time{})

		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := a.Dial(ctx, b.Addr()); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("dialed into the silence: %v", err)
		}
		time.AfterFunc(time.Minute, func() { n.Heal("beta", "rail0") })
		if k, err := far.ReadFull(got); err != nil || string(got[:k]) != "into the void" {
			t.Errorf("after it was healed: %q, %v", got[:k], err)
		}
		connect(t, a, b)
	})
}

func TestAPulledPlugIsToldAndFelt(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		n := mem.NewNetwork()
		a, b := open(t, n, "alpha"), open(t, n, "beta")
		near, _ := connect(t, a, b)
		var told []bool
		ctx, cancel := context.WithCancel(t.Context())
		go func() { _ = b.(transport.LinkWatcher).WatchLink(ctx, func(up bool) { told = append(told, up) }) }()
		progress := func() transport.Progress {
			p, ok := near.(transport.Confirmer).Progress()
			if !ok {
				t.Error("no progress is told")
			}
			return p
		}
		if _, err := near.Write(make([]byte, 10)); err != nil {
			t.Fatal(err)
		}
		if p := progress(); p.Awaiting || p.Acked != 10 {
			t.Errorf("unread, but there: %+v", p)
		}
		synctest.Wait()
		n.Unplug("beta", "rail0")
		if _, err := near.Write(make([]byte, 5)); err != nil {
			t.Fatal(err)
		}
		<-time.After(time.Second)
		if p := progress(); !p.Awaiting || p.Acked != 10 || p.LastAck != time.Second {
			t.Errorf("unplugged: %+v", p)
		}
		if n.Held("alpha", "rail0") != 1 || n.Held("beta", "rail0") != 1 {
			t.Error("the write was not counted as held")
		}
		n.Heal("beta", "rail0")
		synctest.Wait()
		if p := progress(); p.Awaiting || p.Acked != 15 {
			t.Errorf("healed: %+v", p)
		}
		cancel()
		synctest.Wait()
		if want := []bool{true, false, true}; !slices.Equal(told, want) {
			t.Errorf("the link was told %v, want %v", told, want)
		}
	})
}

func TestADialThatHangsGoesThroughWhenHealed(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		n := mem.NewNetwork()
		a, b := open(t, n, "alpha"), open(t, n, "beta")
		n.Silence("alpha", "rail0")
		time.AfterFunc(time.Hour, func() { n.Heal("alpha", "rail0") })
		start := time.Now()
		connect(t, a, b)
		if took := time.Since(start); took != time.Hour {
			t.Errorf("the dial took %v", took)
		}
	})
}

func TestAKilledHostIsGoneUntilRevivedAndThenHasNewAddresses(t *testing.T) {
	n := mem.NewNetwork()
	a, b := open(t, n, "alpha"), open(t, n, "beta")
	near, _ := connect(t, a, b)
	if _, err := a.Dial(t.Context(), b.Addr()); err != nil { // never accepted
		t.Fatal(err)
	}
	n.Kill("beta")
	if _, err := near.ReadFull(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("read: %v", err)
	}
	if _, err := a.Dial(t.Context(), b.Addr()); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("dial: %v", err)
	}
	if _, err := b.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("accept on the killed host: %v", err)
	}
	if _, err := n.Transport("beta").Open("rail0"); err == nil || !strings.Contains(err.Error(), "beta") {
		t.Errorf("a killed host opened a device: %v", err)
	}
	n.Revive("beta")
	again := open(t, n, "beta")
	if again.Addr() == b.Addr() {
		t.Errorf("address %s came back", b.Addr())
	}
	connect(t, a, again)
}

func TestClosedConnectionsAreForgotten(t *testing.T) {
	n := mem.NewNetwork()
	a, b := open(t, n, "alpha"), open(t, n, "beta")
	near, far := connect(t, a, b)
	near.Close()
	if got := n.Connections(); got != 1 {
		t.Errorf("%d connections with one end open", got)
	}
	far.Close()
	if got := n.Connections(); got != 0 {
		t.Errorf("%d connections after both ends closed", got)
	}
}

func TestSteadyTrafficDoesNotAllocate(t *testing.T) {
	a, b := openTwo(t)
	near, far := connect(t, a, b)
	head, body, got := make([]byte, 96), make([]byte, 64<<10), make([]byte, 96+64<<10)
	bufs := [][]byte{head, body}
	if n := testing.AllocsPerRun(50, func() {
		if _, err := near.Write(bufs...); err != nil {
			t.Fatal(err)
		}
		if _, err := far.ReadFull(got); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations per frame", n)
	}
}
