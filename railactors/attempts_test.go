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

// A node that begins with many others at once dials some at a time on a rail, and each in the end.
func TestAttemptsToConnectTakeTurns(t *testing.T) {
	const others = 3 * maxAttempts
	virtual(t, 1, func(b *bed, net *mem.Network) {
		m := &mute{Transport: net.Transport("a"), dialed: map[string]bool{}}
		b.open = func(string) transport.Transport { return m }
		a := b.startNode("a", 1)
		for i := range others {
			name := fmt.Sprintf("b%02d", i)
			if _, err := a.fabric.Connect(Remote{Node: name, Incarnation: 1, Rails: []RailAddress{{"rail0", "mem:" + name}}}); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		m.mu.Lock()
		if m.now != maxAttempts {
			t.Errorf("%d attempts at once, want %d", m.now, maxAttempts)
		}
		m.mu.Unlock()
		a.await("each is lost", func() bool { return len(a.lost) == others })
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.most != maxAttempts || len(m.dialed) != others {
			t.Errorf("%d attempts at once, of %d others were dialed %d", m.most, others, len(m.dialed))
		}
	})
}
