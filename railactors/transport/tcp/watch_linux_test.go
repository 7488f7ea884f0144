package tcp_test

import (
	"context"
	"errors"
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
