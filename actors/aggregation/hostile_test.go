package aggregation

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/polyrail/polyrail/collective/op"
	"github.com/polyrail/polyrail/messages"
	"github.com/polyrail/polyrail/messages/wire"
	"github.com/polyrail/polyrail/railactors"
	"github.com/polyrail/polyrail/railactors/supervise"
)

var errTest = errors.New("of this test")

// bindPanics lets the aggregation node's actors be made to panic.
func (b *bed) bindPanics() *supervise.Panics {
	p := new(supervise.Panics)
	p.Bind(b.node.system)
	return p
}

func TestFramesThatNoCorrectChildSendsAreErrors(t *testing.T) {
	virtual(t, 3, nil, func(b *bed) {
		b.form()
		b.children[0].begin(fragments(sumOfFloats, 2, 256))
		synctest.Wait()
		g := b.server.group(testGroup)
		r := fragments(sumOfFloats, 1, 256)[0]
		for want, change := range map[string]func(h *wire.Header){
			"the group's is 0x2a":       func(h *wire.Header) { h.Comm = 1 },
			"direction 1":               func(h *wire.Header) { h.Step = wire.TreeDown },
			"the limit is 65536":        func(h *wire.Header) { h.Length = testBytes + 64 },
			"an element of float32":     func(h *wire.Header) { h.Length = 254 },
			"block 3 of 3":              func(h *wire.Header) { h.Block = 3 },
			"block 16777216 of 3":       func(h *wire.Header) { h.Block = wire.MaxCommonIdx },
			"which may send 0 to 3":     func(h *wire.Header) { h.Running = testWindow },
			"fragment 1844674407370955": func(h *wire.Header) { h.Running = math.MaxUint64 },
			"lane 7, another":           func(h *wire.Header) { h.Lane = 7 },
			"block 1 of 1":              func(h *wire.Header) { h.Desc.Algorithm, h.Block = op.Tree, 1 },
		} {
			h := r.header(0)
			change(&h)
			l, err := b.server.Land(g.peers[1], 1, &h)
			if err == nil || !strings.Contains(err.Error(), want) || l.Receiver != nil {
				t.Errorf("landing %v, error %v; want an error with %q", l, err, want)
			}
		}
		again := r.header(0)
		_, err := b.server.Land(g.peers[0], 1, &again)
		if err == nil || !strings.Contains(err.Error(), "came before") {
			t.Errorf("a fragment that came before: %v", err)
		}
		early := wire.TreeNotice(testComm, testGroup, 1, wire.TreeUp)
		if err := b.server.Granted(g.peers[0], &early); err == nil {
			t.Error("a child may have what was never sent")
		}
		wrong := wire.TreeNotice(testComm+1, testGroup, 0, wire.TreeUp)
		if err := b.server.Granted(g.peers[0], &wrong); err == nil {
			t.Error("a notice for another communicator was taken")
		}
		if b.server.group(testGroup) == nil {
			t.Error("the group has ended")
		}

		// Nothing of this is left in the way of those who are correct.
		for _, rank := range []int{1, 2} {
			b.children[rank].begin(fragments(sumOfFloats, 2, 256))
		}
		synctest.Wait()
		if n := len(b.children[1].responses); n != 2 {
			t.Errorf("%d responses, want 2", n)
		}
	})
}

func TestFramesOfStrangersAreErrors(t *testing.T) {
	virtual(t, 3, nil, func(b *bed) {
		m := b.request()
		m.Members, m.Hosts = m.Members[:2], nil
		if got := b.ask("child0", m); got != "" {
			t.Fatal(got)
		}
		third, err := b.node.fabric.Connect(railactors.RemoteOf(b.request().Members[2]))
		if err != nil {
			t.Fatal(err)
		}
		r := fragments(sumOfFloats, 1, 256)[0]
		h := r.header(0)
		_, err = b.server.Land(third, 1, &h)
		if err == nil || !strings.Contains(err.Error(), `"child2" is no member`) {
			t.Errorf("a stranger's frame: %v", err)
		}
		notice := wire.TreeNotice(testComm, testGroup, 0, wire.TreeUp)
		if err := b.server.Granted(third, &notice); err == nil {
			t.Error("a stranger's notice was taken")
		}
		h.Group, notice.Group = 1, 1
		if l, err := b.server.Land(third, 1, &h); err != nil || l.Receiver != nil {
			t.Errorf("a frame of no group: %v, %v; want it dropped", l, err)
		}
		if err := b.server.Granted(third, &notice); err != nil {
			t.Errorf("a notice of no group: %v", err)
		}
		b.node.fabric.Disconnect(third)
	})
}

func TestATornOperandComesAgain(t *testing.T) {
	virtual(t, 2, nil, func(b *bed) {
		b.form()
		g := b.server.group(testGroup)
		all := operands(rand.New(rand.NewPCG(1, 2)), sumOfFloats, 2, []int{4096, 4096})
		h := all[0][0].header(0)
		for range 2 * g.buffers.limit {
			l, err := b.server.Land(g.peers[0], 1, &h)
			if err != nil {
				t.Fatal(err)
			}
			l.Receiver.Torn(l.Tag, railactors.ErrRevoked)
		}
		b.run(op.Sum, all)
	})
}

// Whatever headers come from a child, the server answers with a landing or an error, and has
// nothing left at the end.
func FuzzHeaders(f *testing.F) {
	f.Add(uint64(1), 100)
	f.Fuzz(func(t *testing.T, seed uint64, steps int) {
		rng := rand.New(rand.NewPCG(seed, 0))
		virtual(t, 3, nil, func(b *bed) {
			b.hostile = true
			b.form()
			g := b.server.group(testGroup)
			for range min(max(steps, 0), 1000) {
				h := randomHeader(rng)
				from := g.peers[rng.IntN(3)]
				if h.Kind == wire.KindGrant {
					_ = b.server.Granted(from, &h)
					continue
				}
				l, err := b.server.Land(from, 1, &h)
				if err != nil || l.Receiver == nil {
					continue
				}
				if len(l.Dst) != int(h.Length) {
					t.Fatalf("%d bytes of room for %d", len(l.Dst), h.Length)
				}
				if rng.IntN(8) == 0 {
					l.Receiver.Torn(l.Tag, errTest)
				} else {
					l.Receiver.Arrived(l.Tag, nil)
				}
			}
		})
	})
}

// randomHeader is mostly right.
func randomHeader(rng *rand.Rand) wire.Header {
	seldom := func(odd, right uint64) uint64 {
		if rng.IntN(200) == 0 {
			return odd
		}
		return right
	}
	if rng.IntN(10) == 0 {
		return wire.TreeNotice(testComm, testGroup, rng.Uint64N(8), uint32(seldom(1, 0)))
	}
	d := sumOfFloats
	d.Kind = op.Kind(seldom(rng.Uint64N(20), uint64(d.Kind)))
	d.DType = op.DType(seldom(rng.Uint64N(20), uint64(d.DType)))
	d.Code = op.Code(seldom(rng.Uint64N(20), uint64(d.Code)))
	d.Algorithm = op.Algorithm(seldom(rng.Uint64N(10), uint64(d.Algorithm)))
	return wire.Header{Kind: wire.KindData, Comm: seldom(1, testComm), Group: testGroup, Desc: d,
		Running: seldom(rng.Uint64(), rng.Uint64N(8)), Step: uint32(seldom(1, wire.TreeUp)),
		Block: uint32(seldom(rng.Uint64N(5), 0)), Lane: uint16(seldom(1, 0)),
		Length: uint32(seldom(rng.Uint64N(wire.MaxPayload), 256))}
}

// parent is a node above that says whatever a test has it say.
type parent struct {
	mu    sync.Mutex
	heard []wire.Header
	told  []*messages.TreeRevoked
}

func (p *parent) Land(_ *railactors.Peer, _ int, h *wire.Header) (railactors.Landing, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.heard = append(p.heard, *h)
	return railactors.Landing{}, nil // sunk
}
func (p *parent) Granted(*railactors.Peer, *wire.Header) error { return nil }
func (p *parent) Wanted(*railactors.Peer, *wire.Header) error  { return nil }
func (p *parent) PeerLost(*railactors.Peer, error)             {}
func (p *parent) PeerLeft(*railactors.Peer, error)             {}
func (p *parent) Control(_ *railactors.Peer, m *messages.Control) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if r := m.GetTreeRevoked(); r != nil {
		p.told = append(p.told, r)
	}
}

// below runs f with a group whose node has a parent, to which two fragments of integers were sent.
func below(t *testing.T, f func(b *bed, g *group, up *parent, r request)) {
	virtual(t, 2, nil, func(b *bed) {
		up := &parent{}
		station := b.station("up", up)
		m := b.request()
		m.Parent, m.Size, m.Hosts = station.member("up"), 4, nil
		if refusal := b.ask("child0", m); refusal != "" {
			b.t.Fatal(refusal)
		}
		peer, err := station.fabric.Connect(railactors.RemoteOf(b.node.member("an")))
		if err != nil {
			b.t.Fatal(err)
		}
		for _, c := range b.children {
			c.connect()
		}
		for _, p := range []*railactors.Peer{peer, b.children[0].peer, b.children[1].peer} {
			if err := p.WaitReady(b.t.Context()); err != nil {
				b.t.Fatal(err)
			}
		}
		sum := sumOfFloats
		sum.DType = op.Int32
		for _, c := range b.children {
			c.begin(fragments(sum, 2, 256))
		}
		defer func() {
			station.fabric.Disconnect(peer)
			b.server.Close()
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			defer cancel()
			_ = station.fabric.Close(ctx) // silence may have cost it the pair
			station.system.Shutdown()
		}()
		synctest.Wait()
		f(b, b.server.group(testGroup), up, fragments(sum, 1, 256)[0])
	})
}

func TestResultsThatNoCorrectParentSendsAreErrors(t *testing.T) {
	below(t, func(b *bed, g *group, up *parent, r request) {
		up.mu.Lock()
		if len(up.heard) != 2 || up.heard[0].Step != wire.TreeUp || up.heard[0].Group != testGroup {
			t.Errorf("the parent has heard %+v", up.heard)
		}
		up.mu.Unlock()
		for want, change := range map[string]func(h *wire.Header){
			"result of fragment 2, which was not asked": func(h *wire.Header) { h.Running = 2 },
			"result of fragment 1844674407370955161":    func(h *wire.Header) { h.Running = math.MaxUint64 },
			"is of seq 9":                               func(h *wire.Header) { h.Seq = 9 },
			"block 1, lane 2":                           func(h *wire.Header) { h.Block = 1 },
			"lane 3, 256 bytes":                         func(h *wire.Header) { h.Lane = 3 },
			"192 bytes; asked":                          func(h *wire.Header) { h.Length = 192 },
			"is no member":                              func(h *wire.Header) { h.Comm = 1 },
		} {
			h := r.header(0)
			h.Step = wire.TreeDown
			change(&h)
			l, err := b.server.Land(g.parent, 1, &h)
			if err == nil || !strings.Contains(err.Error(), want) || l.Receiver != nil {
				t.Errorf("landing %v, error %v; want an error with %q", l, err, want)
			}
		}
		h := r.header(0)
		h.Step = wire.TreeDown
		l, err := b.server.Land(g.parent, 1, &h)
		if err != nil || len(l.Dst) != 256 {
			t.Fatal(l, err)
		}
		if _, err := b.server.Land(g.parent, 1, &h); err == nil {
			t.Error("a result that is being received came again")
		}
		l.Receiver.Torn(l.Tag, errTest)
		if l, err = b.server.Land(g.parent, 1, &h); err != nil {
			t.Fatal("a result that was torn:", err)
		}
		copy(l.Dst, strings.Repeat("x", 256))
		l.Receiver.Arrived(l.Tag, nil)
		synctest.Wait()
		for _, c := range b.children {
			c.mu.Lock()
			if got := string(c.responses[0]); got != strings.Repeat("x", 256) {
				t.Errorf("%s got %q", c.name, got)
			}
			c.mu.Unlock()
		}
		early := wire.TreeNotice(testComm, testGroup, 1, wire.TreeDown)
		if err := b.server.Granted(g.parent, &early); err == nil {
			t.Error("everybody may have what nobody said to have")
		}
	})
}

// A parent that says nothing, or that it serves no more, ends the group for all below.
func TestAGroupEndsWithItsParent(t *testing.T) {
	for want, end := range map[string]func(b *bed, g *group){
		"has not answered for 200ms": func(b *bed, _ *group) {
			b.net.Silence("up", "rail0")
			b.net.Silence("up", "rail1")
			<-time.After(time.Second)
			b.net.Heal("up", "rail0")
			b.net.Heal("up", "rail1")
		},
		"serves it no more: because": func(b *bed, g *group) {
			b.server.Revoked(g.parent, &messages.TreeRevoked{Group: testGroup, Reason: "because"})
		},
		"they differ": func(b *bed, g *group) {
			b.server.Revoked(g.parent, &messages.TreeRevoked{Group: testGroup, Reason: "they differ", Mismatch: true})
		},
		`rail "rail1" to node "up" is down`: func(b *bed, g *group) {
			b.server.RailDown("up", "rail1", errTest)
		},
		`the parent, node "up", is gone`: func(b *bed, g *group) { b.server.PeerGone(g.parent, errTest) },
	} {
		below(t, func(b *bed, g *group, _ *parent, _ request) {
			end(b, g)
			for _, c := range b.children {
				r := c.expectRevoked()
				if !strings.Contains(r.GetReason(), want) || r.GetMismatch() != (want == "they differ") {
					t.Errorf("%s is told %v, want %q", c.name, r, want)
				}
			}
			b.server.RailDown("up", "rail1", errTest) // it has ended
			b.expectNothingLeft()
		})
	}
}

func TestWhoIsNoNeighbourEndsNothing(t *testing.T) {
	below(t, func(b *bed, g *group, _ *parent, _ request) {
		stranger := &railactors.Peer{}
		if !b.server.Revoked(stranger, &messages.TreeRevoked{Group: testGroup}) || g.ended() {
			t.Error("a stranger has ended the group")
		}
		if b.server.Revoked(g.parent, &messages.TreeRevoked{Group: 5}) {
			t.Error("a group of nobody's is this server's")
		}
		b.server.RailDown("up", "rail0", errTest) // not the tree's
		b.server.RailDown("child0", "rail1", errTest)
		if g.ended() {
			t.Error("another rail has ended the group")
		}
	})
}

// Floats are not folded where the order would be another one than that of the rails.
func TestInexactSumsNeedOneLevelOrAFreeOrder(t *testing.T) {
	below(t, func(b *bed, g *group, _ *parent, _ request) {
		r := fragments(sumOfFloats, 1, 256)[0]
		h := r.header(2)
		if _, err := b.server.Land(g.peers[0], 1, &h); err != nil {
			t.Fatal(err)
		}
		if r := b.children[1].expectRevoked(); !strings.Contains(r.GetReason(), "this sum depends on the order") {
			t.Errorf("told %v", r)
		}
	})
}
