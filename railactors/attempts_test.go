package railactors

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/polyrail/polyrail/railactors/transport"
	"github.com/polyrail/polyrail/railactors/transport/mem"
)

// mute is a transport over which nobody answers. It notes who is dialed, and how many at once.
type mute struct {
	transport.Transport
	mu        sync.Mutex
	now, most int
	dialed    map[string]bool
}

func (m *mute) Open(device string) (transport.Device, error) {
	d, err := m.Transport.Open(device)
	return muteDevice{d, m}, err
}

type muteDevice struct {
	transport.Device
	*mute
}

func (d muteDevice) Dial(ctx context.Context, addr string) (transport.Conn, error) {
	d.mu.Lock()
	d.now++
	d.most, d.dialed[addr] = max(d.most, d.now), true
	d.mu.Unlock()
	<-ctx.Done()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.now--
	return nil, ctx.Err()
}

// Nodes of a process that begin with many others at once dial some at a time, and each in the end.
func TestAttemptsToConnectTakeTurns(t *testing.T) {
	const most = 16
	virtual(t, 1, func(b *bed, net *mem.Network) {
		m := &mute{Transport: net.Transport("a"), dialed: map[string]bool{}}
		b.open = func(string) transport.Transport { return m }
		attempts := make(Attempts, most)
		b.tune = func(c *Config) { c.Attempts = attempts }
		nodes := b.start("a0", "a1")
		others := 3 * most
		for i := range others {
			name := fmt.Sprintf("b%02d", i)
			if _, err := nodes[i%2].fabric.Connect(Remote{Node: name, Incarnation: 1, Rails: []RailAddress{{"rail0", "mem:" + name}}}); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		m.mu.Lock()
		if m.now != most {
			t.Errorf("%d attempts at once, want %d", m.now, most)
		}
		m.mu.Unlock()
		for _, n := range nodes {
			n.await("each is lost", func() bool { return len(n.lost) == others/2 })
		}
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.most != most || len(m.dialed) != others {
			t.Errorf("%d attempts at once, of %d others were dialed %d", m.most, others, len(m.dialed))
		}
	})
}

// spoken counts a message of the log.
type spoken struct {
	slog.Handler
	message string
	n       *atomic.Int64
}

func (s spoken) Enabled(context.Context, slog.Level) bool { return true }
func (s spoken) WithAttrs([]slog.Attr) slog.Handler       { return s }
func (s spoken) WithGroup(string) slog.Handler            { return s }
func (s spoken) Handle(_ context.Context, m slog.Record) error {
	if m.Message == s.message {
		s.n.Add(1)
	}
	return nil
}

// A node that has no room for more handshakes gets ever fewer, and takes the next one when it has.
func TestANodeThatIsBusyIsAskedEverLess(t *testing.T) {
	virtual(t, 1, func(b *bed, _ *mem.Network) {
		var count atomic.Int64
		b.tune = func(c *Config) { c.Logger = slog.New(spoken{slog.DiscardHandler, "connection turned down", &count}) }
		n := b.start("a", "b")
		hold := func(more int) {
			n[1].fabric.mu.Lock()
			defer n[1].fabric.mu.Unlock()
			n[1].fabric.held += more
		}
		hold(maxHeld)
		ab, err := n[0].fabric.Connect(n[1].remote())
		if err != nil {
			t.Fatal(err)
		}
		<-time.After(10 * time.Second)
		if got := count.Load(); got < 5 || got > 40 {
			t.Errorf("%d connections were turned down in 10 s", got)
		}
		if err := ab.Lost(); err != nil {
			t.Error(err)
		}
		hold(-maxHeld)
		if _, err := n[1].fabric.Connect(n[0].remote()); err != nil {
			t.Fatal(err)
		}
		if err := ab.WaitReady(b.t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// refusing is a transport whose devices take connections, and make none while it is on.
type refusing struct {
	transport.Transport
	on         *atomic.Bool
	dial, open error // open: of the device, while it is on; nil: it can be opened
}

func (r refusing) Open(name string) (transport.Device, error) {
	if r.open != nil && r.on.Load() {
		return nil, r.open
	}
	d, err := r.Transport.Open(name)
	return &refusingDevice{d, r}, err
}

type refusingDevice struct {
	transport.Device
	of refusing
}

func (d *refusingDevice) Dial(ctx context.Context, addr string) (transport.Conn, error) {
	if d.of.on.Load() {
		return nil, d.of.dial
	}
	return d.Device.Dial(ctx, addr)
}

// The other node reaches this one and asks it to try again, for as long as it takes.
func TestAnOutageInOneDirectionIsLoggedOnce(t *testing.T) {
	virtual(t, 2, func(b *bed, _ *mem.Network) {
		var count atomic.Int64
		var cut atomic.Bool
		b.tune = func(c *Config) {
			if c.Node == "a" {
				c.Rails[1].Transport = refusing{c.Rails[1].Transport, &cut, errors.New("no way"), nil}
				c.Logger = slog.New(spoken{slog.DiscardHandler, "pair can't connect, trying on", &count})
			}
		}
		n := b.start("a", "b")
		ab, ba := join(n[0], n[1])
		for outage := range uint64(2) {
			b.exchange(ab, ba, 4*outage+1, 4, 1000)
			count.Store(0)
			cut.Store(true)
			breakRail(ab, 1)
			<-time.After(10 * time.Second)
			if got := count.Load(); got != 1 {
				t.Errorf("outage %d: %d lines", outage, got)
			}
			cut.Store(false)
			<-time.After(2 * time.Second)
			if s := n[0].fabric.Rails()[1]; !s.Up {
				t.Fatalf("after outage %d: %+v", outage, s)
			}
		}
	})
}
