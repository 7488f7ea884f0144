package cluster

import (
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/memberlist"
	"github.com/polyrail/polyrail/cluster/memnet"
	"github.com/polyrail/polyrail/messages"
	"github.com/polyrail/polyrail/test/leaks"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// pass lets virtual time go by; in a bubble this waits for every goroutine, not for a slow machine.
func pass(d time.Duration) { <-time.After(d) }

// ear is a Handler that keeps what it hears.
type ear struct {
	mu      sync.Mutex
	changed chan struct{} // closed and replaced at every piece of news
	events  []string
	msgs    []*messages.Rendezvous
}

func newEar() *ear { return &ear{changed: make(chan struct{})} }

func (e *ear) hear(f func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	f()
	close(e.changed)
	e.changed = make(chan struct{})
}

func (e *ear) ClusterEvent(ev Event) {
	e.hear(func() {
		e.events = append(e.events, fmt.Sprintf("%s#%d %v", ev.Member.Node, ev.Member.Incarnation, ev.Kind))
	})
}

func (e *ear) ClusterMessage(_ string, m *messages.Rendezvous) {
	e.hear(func() { e.msgs = append(e.msgs, m) })
}

// expect waits until an event is heard, and returns how many there were of it.
func (e *ear) expect(t *testing.T, event string) {
	t.Helper()
	e.until(t, event, func() bool { return slices.Contains(e.events, event) })
}

func (e *ear) until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	timeout := time.NewTimer(30 * time.Second)
	defer timeout.Stop()
	for {
		e.mu.Lock()
		done, changed := ok(), e.changed
		e.mu.Unlock()
		if done {
			return
		}
		select {
		case <-changed:
		case <-timeout.C:
			t.Fatalf("not heard: %s; heard %v", what, e.events)
		}
	}
}

func (e *ear) heard(event string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Contains(e.events, event)
}

func (e *ear) forget() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.events = nil
}

// packetsOnly is a network that can stop to carry streams.
type packetsOnly struct {
	*memnet.Network
	now atomic.Bool
}

func (n *packetsOnly) Listen(bind string) (memberlist.NodeAwareTransport, error) {
	t, err := n.Network.Listen(bind)
	return packetTransport{t, n}, err
}

type packetTransport struct {
	memberlist.NodeAwareTransport
	net *packetsOnly
}

func (t packetTransport) DialAddressTimeout(a memberlist.Address, d time.Duration) (net.Conn, error) {
	if t.net.now.Load() {
		return nil, syscall.ECONNREFUSED
	}
	return t.NodeAwareTransport.DialAddressTimeout(a, d)
}

type peer struct {
	*Gossip
	*ear
}

func config(network Network, node string, incarnation uint64, bind string, join ...string) Config {
	c := DefaultConfig()
	c.Node, c.Incarnation, c.Bind, c.Join, c.Network = node, incarnation, bind, join, network
	c.Logger = slog.New(slog.DiscardHandler)
	return c
}

func start(t *testing.T, c Config) peer {
	t.Helper()
	e := newEar()
	g, err := Start(t.Context(), c, e)
	if err != nil {
		t.Fatal(err)
	}
	return peer{g, e}
}

const seed = "10.0.0.1:7946"

// startAll starts nodes n1 … nK at 10.0.0.1 …, all joining the first, and waits until all know all.
func startAll(t *testing.T, network Network, k int) []peer {
	t.Helper()
	var peers []peer
	for i := range k {
		peers = append(peers, start(t, config(network, fmt.Sprintf("n%d", i+1), 7, fmt.Sprintf("10.0.0.%d:7946", i+1), seed)))
	}
	for i, p := range peers {
		for j := range peers {
			if i != j {
				p.expect(t, fmt.Sprintf("n%d#7 joined", j+1))
			}
		}
	}
	return peers
}

func closeAll(t *testing.T, peers ...peer) {
	t.Helper()
	for _, p := range peers {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	}
}

func nodes(g *Gossip) string {
	var s []string
	for _, m := range g.Members() {
		s = append(s, m.Node)
	}
	return strings.Join(s, " ")
}
