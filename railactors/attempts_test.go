package railactors

import (
	"context"
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

// refusals counts the connections that a node turns down.
type refusals struct {
	slog.Handler
	n *atomic.Int64
}

func (r refusals) Enabled(context.Context, slog.Level) bool { return true }
func (r refusals) WithAttrs([]slog.Attr) slog.Handler       { return r }
func (r refusals) WithGroup(string) slog.Handler            { return r }
func (r refusals) Handle(_ context.Context, m slog.Record) error {
	if m.Message == "connection turned down" {
		r.n.Add(1)
	}
	return nil
}

// A node that has no room for more handshakes gets ever fewer, and takes the next one when it has.
func TestANodeThatIsBusyIsAskedEverLess(t *testing.T) {
	virtual(t, 1, func(b *bed, _ *mem.Network) {
		var count atomic.Int64
		b.tune = func(c *Config) { c.Logger = slog.New(refusals{slog.DiscardHandler, &count}) }
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
