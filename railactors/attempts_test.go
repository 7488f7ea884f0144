package railactors

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"

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
