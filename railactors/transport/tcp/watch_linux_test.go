package tcp_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/polyrail/polyrail/railactors/transport"
	"github.com/polyrail/polyrail/railactors/transport/tcp"
)

// progress asks a connection until want holds.
func progress(t *testing.T, c transport.Conn, what string, want func(transport.Progress) bool) transport.Progress {
	t.Helper()
	deadline := time.After(20 * time.Second)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		p, ok := c.(transport.Confirmer).Progress()
		if !ok {
			t.Fatal("no progress is told")
		}
		if want(p) {
			return p
		}
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("%s: %+v", what, p)
		}
	}
}

func TestProgressTellsADeadRailFromASlowReader(t *testing.T) {
	one, two := newHosts(t)
	near, far := dialBetween(t, one, two, "cable1")
	if _, err := near.Write(make([]byte, 1000)); err != nil {
		t.Fatal(err)
	}
	p := progress(t, near, "nobody reads, and the host confirms", func(p transport.Progress) bool { return !p.Awaiting && p.Acked >= 1000 })
	if p.RTT <= 0 || p.RTT > time.Second {
		t.Errorf("round trip %v", p.RTT)
	}
	// Until there is room neither here nor there.
	for n := int64(1); n > 0; {
		var err error
		if n, err = near.TryWrite(make([]byte, 1<<20)); err != nil {
			t.Fatal(err)
		}
		progress(t, near, "the window closes", func(p transport.Progress) bool { return !p.Awaiting })
	}
	before := progress(t, near, "the window is closed", func(p transport.Progress) bool { return !p.Awaiting }).Acked

	// Packets vanish now, and no link goes down on this side.
	ip(t, "-n", two, "addr", "del", "10.213.0.12/24", "dev", "cable1")
	ip(t, "-n", two, "link", "set", "cable1", "arp", "off")
	if _, err := far.ReadFull(make([]byte, 1000)); err != nil {
		t.Fatal(err)
	}
	p = progress(t, near, "silence", func(p transport.Progress) bool { return p.Awaiting && p.LastAck > 300*time.Millisecond })
	if p.Acked != before {
		t.Errorf("%d bytes were confirmed in silence", p.Acked-before)
	}
}

func TestALinksStateIsTold(t *testing.T) {
	one, two := newHosts(t)
	story := []struct {
		what string
		up   bool   // what is told
		host string // where a link changes then
		link []string
	}{
		{"at first", true, two, []string{"cable0", "down"}},
		{"the other end went down, and with it the carrier", false, two, []string{"cable0", "up"}},
		{"the carrier is back", true, one, []string{"cable0", "down"}},
		{"set down", false, one, []string{"cable0", "up"}},
		{"set up", true, "", nil},
	}
	inside(t, one, func() {
		d := open(t, tcp.Options{}, "cable0")
		ip(t, "-n", one, "link", "set", "cable1", "down") // another one, whose news are nobody's
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		told := 0
		err := d.(transport.LinkWatcher).WatchLink(ctx, func(up bool) {
			if told == len(story) {
				t.Fatalf("told %v after the end", up)
			}
			s := story[told]
			told++
			if up != s.up {
				t.Errorf("%s: told %v", s.what, up)
			}
			if s.host == "" {
				cancel()
				return
			}
			ip(t, append([]string{"-n", s.host, "link", "set"}, s.link...)...)
		})
		if told != len(story) || !errors.Is(err, context.Canceled) {
			t.Errorf("told %d times, then %v", told, err)
		}
	})
}

// An interface that is deleted and made again has another number, and is the rail's as before.
func TestAnInterfaceThatIsMadeAgainIsUpAgain(t *testing.T) {
	one, two := newHosts(t)
	var d, far transport.Device
	inside(t, two, func() { far = open(t, tcp.Options{}, "cable0") })
	// Both nics are in one subnet: the far end answers through its own one only if it is bound to
	// that.
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	farNews, farEnded := make(chan bool, 100), make(chan struct{})
	go func() {
		defer close(farEnded)
		inside(t, two, func() {
			_ = far.(transport.LinkWatcher).WatchLink(ctx, func(up bool) { farNews <- up })
		})
	}()
	if !<-farNews {
		t.Fatal("the far end is down at first")
	}
	again := func() {
		ip(t, "-n", one, "link", "add", "cable0", "type", "veth", "peer", "name", "cable0", "netns", two)
		for i, h := range []string{one, two} {
			ip(t, "-n", h, "addr", "add", fmt.Sprintf("10.213.0.%d/24", i+1), "dev", "cable0")
			ip(t, "-n", h, "link", "set", "cable0", "up")
		}
	}
	// Each news is followed by what leads to the next one.
	story := []struct {
		up   bool
		next func()
	}{
		{true, func() { ip(t, "-n", one, "link", "del", "cable0") }},
		{false, again},
		{true, func() { ip(t, "-n", one, "link", "set", "cable0", "down") }},
		{false, func() {
			ip(t, "-n", one, "link", "set", "cable0", "name", "other0")
			ip(t, "-n", one, "link", "set", "other0", "name", "cable0")
			ip(t, "-n", one, "link", "set", "cable0", "up")
		}},
		{true, nil},
	}
	inside(t, one, func() {
		d = open(t, tcp.Options{}, "cable0")
		ctx, cancel := context.WithCancel(ctx)
		told := 0
		err := d.(transport.LinkWatcher).WatchLink(ctx, func(up bool) {
			if told == len(story) || up != story[told].up {
				t.Errorf("told %v as number %d", up, told)
				cancel()
				return
			}
			told++
			if next := story[told-1].next; next != nil {
				next()
			} else {
				cancel()
			}
		})
		if told != len(story) || !errors.Is(err, context.Canceled) {
			t.Errorf("told %d times, then %v", told, err)
		}
	})
	for <-farNews { // down …
	}
	for !<-farNews { // … and up
	}
	defer func() { cancel(); <-farEnded }()
	// It takes connections, and makes them.
	for _, way := range [][2]transport.Device{{d, far}, {far, d}} {
		host := map[transport.Device]string{d: one, far: two}[way[0]]
		var near transport.Conn
		var err error
		inside(t, host, func() { near, err = way[0].Dial(t.Context(), way[1].Addr()) })
		if err != nil {
			t.Fatal(err)
		}
		accepted, err := way[1].Accept()
		if err != nil {
			t.Fatal(err)
		}
		near.Close()
		accepted.Close()
	}
}

func TestAnInterfaceThatIsNotThereYetIsDown(t *testing.T) {
	one, _ := newHosts(t)
	inside(t, one, func() {
		d := open(t, tcp.Options{}, "cable0")
		ip(t, "-n", one, "link", "del", "cable0")
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		told := 0
		if err := d.(transport.LinkWatcher).WatchLink(ctx, func(up bool) {
			if told++; up {
				t.Error("told that it is up")
			}
			cancel()
		}); told != 1 || !errors.Is(err, context.Canceled) {
			t.Errorf("told %d times, then %v", told, err)
		}
	})
}

func TestADialSaysThatTheAddressIsGone(t *testing.T) {
	one, two := newHosts(t)
	var near, far transport.Device
	inside(t, one, func() { near = open(t, tcp.Options{}, "cable0") })
	inside(t, two, func() { far = open(t, tcp.Options{}, "cable0") })
	dial := func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		var err error
		inside(t, one, func() {
			var c transport.Conn
			if c, err = near.Dial(ctx, far.Addr()); err == nil {
				c.Close()
			}
		})
		return err
	}
	ip(t, "-n", one, "addr", "del", "10.213.0.1/24", "dev", "cable0")
	const want = "address 10.213.0.1 is no longer on interface cable0"
	if err := dial(); !errors.Is(err, transport.ErrAbsent) || !strings.Contains(err.Error(), want) {
		t.Errorf("without the address: %v", err)
	}
	ip(t, "-n", one, "addr", "add", "10.213.0.1/24", "dev", "cable0")
	if err := dial(); err != nil {
		t.Errorf("with the address: %v", err)
	}
}

// The device goes on at its address, which its listeners have, through another interface.
func TestAnAddressThatIsOnAnotherInterfaceIsFollowed(t *testing.T) {
	one, two := newHosts(t)
	var near, far transport.Device
	inside(t, one, func() { near = open(t, tcp.Options{}, "10.213.0.1") })
	inside(t, two, func() { far = open(t, tcp.Options{}, "cable1") })
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	news, ended := make(chan bool, 100), make(chan struct{})
	defer func() { cancel(); <-ended }()
	go func() {
		defer close(ended)
		inside(t, one, func() {
			_ = near.(transport.LinkWatcher).WatchLink(ctx, func(up bool) { news <- up })
		})
	}()
	expect := func(want bool) {
		t.Helper()
		select {
		case up := <-news:
			if up != want {
				t.Fatalf("told %v", up)
			}
		case <-ctx.Done():
			t.Fatalf("not told %v", want)
		}
	}
	expect(true)
	ip(t, "-n", one, "link", "set", "cable0", "down")
	expect(false)
	ip(t, "-n", one, "addr", "del", "10.213.0.1/24", "dev", "cable0")
	ip(t, "-n", one, "addr", "add", "10.213.0.1/24", "dev", "cable1")
	var err error
	inside(t, one, func() { _, err = near.Dial(ctx, far.Addr()) })
	if err == nil || errors.Is(err, transport.ErrAbsent) {
		t.Fatalf("through an interface that is down: error %v", err)
	}
	expect(true)
	if got := near.Chosen(); !strings.HasPrefix(got, "cable1 10.213.0.1") {
		t.Errorf("device %s", got)
	}
	for _, way := range []struct {
		host     string
		from, to transport.Device
	}{{one, near, far}, {two, far, near}} {
		var dialed transport.Conn
		inside(t, way.host, func() { dialed, err = way.from.Dial(ctx, way.to.Addr()) })
		if err != nil {
			t.Fatal(err)
		}
		accepted, err := way.to.Accept()
		if err != nil {
			t.Fatal(err)
		}
		dialed.Close()
		accepted.Close()
	}
}
