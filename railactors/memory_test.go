package railactors

import (
	"strings"
	"testing"

	"github.com/polyrail/polyrail/railactors/transport"
	"github.com/polyrail/polyrail/railactors/transport/mem"
)

// hostMemory stands for the memory of a host: one device of the network.
type hostMemory struct{ transport.Transport }

func (m hostMemory) Open(string) (transport.Device, error) { return m.Transport.Open("memory") }

// onOneHost gives every node of the bed a rail within the host, beside the others.
func onOneHost(b *bed, net *mem.Network) {
	b.tune = func(c *Config) { c.Memory = hostMemory{net.Transport(c.Node)} }
}

// meet connects two nodes, which share memory or don't.
func meet(a, b *testNode, share bool) (ab, ba *Peer) {
	a.t.Helper()
	connect := func(from, to *testNode) *Peer {
		r := to.remote()
		if share {
			r.Memory = to.fabric.MemoryAddr()
		}
		p, err := from.fabric.Connect(r)
		if err != nil {
			a.t.Fatal(err)
		}
		return p
	}
	ab, ba = connect(a, b), connect(b, a)
	for _, p := range []*Peer{ab, ba} {
		if err := p.WaitReady(a.t.Context()); err != nil {
			a.t.Fatal(err)
		}
	}
	return ab, ba
}

// exchange sends frames first … last, of many sizes and both kinds, and waits for them.
func exchange(n []*testNode, ab, ba *Peer, first, last uint64) {
	for seq := first; seq <= last; seq++ {
		n[0].send(ab, seq, int(seq)%2, int(seq*7919)%(200<<10), 0)
		n[1].send(ba, seq, int(seq)%2, int(seq*104729)%(20<<10), 0)
	}
	n[0].expect("b", last)
	n[1].expect("a", last)
}

func TestMemoryCarriesAllFramesOfNodesThatShareIt(t *testing.T) {
	virtual(t, 2, func(b *bed, net *mem.Network) {
		onOneHost(b, net)
		n := b.start("a", "b", "c")
		ab, ba := meet(n[0], n[1], true)
		if !ab.Whole() || ab.Carrier(0) != 0 { // mem can't be polled
			t.Errorf("missing rails %b", ab.Missing())
		}
		exchange(n, ab, ba, 1, 40)
		memory, ok := n[0].fabric.MemoryStatus()
		if rails := n[0].fabric.Rails(); !ok || len(rails) != 2 || rails[0].FramesSent+rails[1].FramesSent != 0 || memory.FramesSent < 40 {
			t.Errorf("memory carried %d frames, the rails %+v", memory.FramesSent, rails)
		}
		meet(n[0], n[2], false) // ready without it: it isn't one of its rails
		meet(n[1], n[2], false)
	})
}

func TestRailsTakeOverFromMemoryAndGiveBack(t *testing.T) {
	virtual(t, 2, func(b *bed, net *mem.Network) {
		onOneHost(b, net)
		n := b.start("a", "b")
		ab, ba := meet(n[0], n[1], true)
		exchange(n, ab, ba, 1, 20)
		// In the middle of frames that are on their way.
		for seq := uint64(21); seq <= 60; seq++ {
			n[0].send(ab, seq, int(seq)%2, 50<<10, 0)
			n[1].send(ba, seq, int(seq)%2, 50<<10, 0)
		}
		net.Cut("a", "memory")
		n[0].expect("b", 60)
		n[1].expect("a", 60)
		n[0].expectReleased(60, nil)
		exchange(n, ab, ba, 61, 80)
		if s := n[0].fabric.Rails(); s[0].BytesSent == 0 || s[1].BytesSent == 0 {
			t.Errorf("the rails carried nothing: %+v", s)
		}
		if ab.Whole() || ab.Lost() != nil {
			t.Errorf("missing %b, lost %v", ab.Missing(), ab.Lost())
		}
		net.Heal("a", "memory")
		n[0].await("memory to be back", func() bool { return ab.Whole() && ba.Whole() })
		before, _ := n[0].fabric.MemoryStatus()
		exchange(n, ab, ba, 81, 100)
		if after, _ := n[0].fabric.MemoryStatus(); after.FramesSent < before.FramesSent+20 || after.Reconnects == 0 {
			t.Errorf("memory carries nothing again: %+v", after)
		}
	})
}

func TestANodeThatIsKnownLearnsThatItSharesMemory(t *testing.T) {
	virtual(t, 1, func(b *bed, net *mem.Network) {
		onOneHost(b, net)
		n := b.start("a", "b")
		ab, ba := meet(n[0], n[1], false) // for an aggregation tree, which knows no hosts
		meet(n[0], n[1], true)
		n[0].await("memory to connect them", func() bool { return ab.Whole() && ab.Carries("shm") && ba.Whole() && ba.Carries("shm") })
	})
}

func TestAMemberOfAnotherHostIsNotLetIn(t *testing.T) {
	virtual(t, 1, func(b *bed, net *mem.Network) {
		onOneHost(b, net)
		n := b.start("a", "b")
		r := n[1].remote()
		r.Memory = n[1].fabric.MemoryAddr()
		ab, err := n[0].fabric.Connect(r)
		if err != nil {
			t.Fatal(err)
		}
		ba := n[1].connect(n[0]) // b has not heard that they share a host
		for _, p := range []*Peer{ab, ba} {
			if err := p.WaitReady(b.t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if ba.Carries("shm") || !ba.Whole() || ab.Whole() {
			t.Error("memory connects them")
		}
		exchange(n, ab, ba, 1, 10)
	})
}

// Hosts that were given one name by mistake share no memory. What is said of the rail names the cause,
// on both ends.
func TestMemoryThatIsNotSharedIsPutDownToTheHosts(t *testing.T) {
	virtual(t, 1, func(b *bed, net *mem.Network) {
		onOneHost(b, net)
		n := b.start("a", "b")
		net.Cut("b", "memory")
		ab, ba := meet(n[0], n[1], true)
		for _, p := range []*Peer{ab, ba} {
			p.mu.Lock()
			said := p.obstacles()
			p.mu.Unlock()
			if !strings.HasPrefix(said, "rail shm (both nodes are said to be on one host") ||
				!strings.Contains(said, "--host") {
				t.Errorf("%s", said)
			}
		}
	})
}

// Carries reports whether the rail connects the two nodes.
func (p *Peer) Carries(rail string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.conns[p.fabric.RailIndex(rail)] != nil
}

// What a process shows is mapped here as long as its peer is.
func TestAPeerThatEndsLetsGoOfWhatItsProcessShows(t *testing.T) {
	virtual(t, 1, func(b *bed, _ *mem.Network) {
		n := b.start("a", "b")
		ab, _ := join(n[0], n[1])
		released := 0
		ab.mu.Lock()
		ab.shown = transport.NewMemory(nil, func() { released++ })
		ab.mu.Unlock()
		ab.lose("unheard for ages")
		<-ab.ended
		if released != 1 {
			t.Errorf("it was released %d times", released)
		}
	})
}
