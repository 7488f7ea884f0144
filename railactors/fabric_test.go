package railactors

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/polyrail/polyrail/collective/op"
	"github.com/polyrail/polyrail/messages"
	"github.com/polyrail/polyrail/messages/wire"
	"github.com/polyrail/polyrail/railactors/transport"
	"github.com/polyrail/polyrail/railactors/transport/mem"
	"github.com/polyrail/polyrail/test/bubble"
)

// testNode is a Fabric with an Inbound that keeps what arrives, by the frame's Seq.
type testNode struct {
	t      testing.TB
	name   string
	fabric *Fabric
	sys    *actor.ActorSystem

	mu       sync.Mutex
	changed  *sync.Cond
	frames   map[uint64][]byte // arrived, by seq
	arrivals map[uint64]int
	torn     []error
	controls []*messages.Control
	grants   []wire.Header
	wants    []wire.Header
	lost     map[string]error
	left     map[*Peer]int      // how often that was said
	released map[uint64][]error // by Frame.Tag
	land     func(from *Peer, h *wire.Header) (Landing, error)
	keep     bool // the credit of what arrives
}

// arrival is the Receiver of one frame.
type arrival struct {
	node   *testNode
	header wire.Header
	dst    []byte
}

func (a *arrival) Arrived(uint64, *Batch) {
	n := a.node
	n.mu.Lock()
	n.frames[a.header.Seq] = a.dst
	n.arrivals[a.header.Seq]++
	n.changed.Broadcast()
	n.mu.Unlock()
}

func (a *arrival) Torn(_ uint64, err error) {
	n := a.node
	n.mu.Lock()
	defer n.mu.Unlock()
	clear(a.dst) // nobody else writes to it now
	n.torn = append(n.torn, err)
	n.changed.Broadcast()
}

func (n *testNode) Land(from *Peer, _ int, h *wire.Header) (Landing, error) {
	if n.land != nil {
		return n.land(from, h)
	}
	a := &arrival{node: n, header: *h, dst: make([]byte, h.Length)}
	return Landing{Dst: a.dst, Receiver: a, Keeps: n.keep}, nil
}

func (n *testNode) note(f func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	f()
	n.changed.Broadcast()
}

func (n *testNode) Granted(_ *Peer, h *wire.Header) error {
	n.note(func() { n.grants = append(n.grants, *h) })
	return nil
}

func (n *testNode) Wanted(_ *Peer, h *wire.Header) error {
	n.note(func() { n.wants = append(n.wants, *h) })
	return nil
}

func (n *testNode) Control(_ *Peer, m *messages.Control) {
	n.note(func() { n.controls = append(n.controls, m) })
}

func (n *testNode) PeerLost(p *Peer, err error) {
	n.note(func() {
		if n.lost[p.Node()] != nil {
			n.t.Errorf("node %s was told twice that %s is lost", n.name, p.Node())
		}
		n.lost[p.Node()] = err
	})
}

func (n *testNode) PeerLeft(p *Peer, _ error) { n.note(func() { n.left[p]++ }) }

func (n *testNode) Released(f *Frame, err error) {
	n.note(func() { n.released[f.Tag] = append(n.released[f.Tag], err) })
}

// await waits until the condition, which is evaluated under the node's lock, holds.
func (n *testNode) await(what string, cond func() bool) {
	n.t.Helper()
	late := time.AfterFunc(time.Minute, func() { n.note(func() {}) })
	defer late.Stop()
	start := time.Now()
	n.mu.Lock()
	defer n.mu.Unlock()
	for !cond() {
		if time.Since(start) >= time.Minute {
			n.t.Fatalf("node %s waited in vain: %s", n.name, what)
		}
		n.changed.Wait()
	}
}

// bed is a handful of nodes.
type bed struct {
	t     testing.TB
	rails []string
	open  func(node string) transport.Transport
	as    func(node string) transport.Transport // how one speaks in a node's name
	tune  func(*Config)
	nodes []*testNode
}

func (b *bed) start(names ...string) []*testNode {
	b.t.Helper()
	var started []*testNode
	for _, name := range names {
		started = append(started, b.startNode(name, 1))
	}
	return started
}

func (b *bed) startNode(name string, incarnation uint64) *testNode {
	b.t.Helper()
	n := &testNode{t: b.t, name: name, frames: map[uint64][]byte{}, arrivals: map[uint64]int{},
		lost: map[string]error{}, left: map[*Peer]int{},
		released: map[uint64][]error{}}
	n.changed = sync.NewCond(&n.mu)
	n.sys = actor.NewActorSystem(actor.WithLoggerFactory(func(*actor.ActorSystem) *slog.Logger { return quiet }))
	n.sys.EventStream.Subscribe(func(event any) {
		if e, ok := event.(*actor.DeadLetterEvent); ok {
			if _, late := e.Message.(actor.IgnoreDeadLetterLogging); !late {
				b.t.Errorf("node %s: dead letter to %s: %#v", name, e.PID.Id, e.Message)
			}
		}
	})
	cfg := Config{Node: name, Incarnation: incarnation, Cluster: "test", Logger: quiet}
	if testing.Verbose() {
		cfg.Logger = slog.New(slog.NewTextHandler(b.t.Output(), nil)).With("at", name)
	}
	for _, r := range b.rails {
		cfg.Rails = append(cfg.Rails, RailConfig{Name: r, Transport: b.open(name), Device: r})
	}
	if b.tune != nil {
		b.tune(&cfg)
	}
	f, err := Start(n.sys, cfg, n)
	if err != nil {
		b.t.Fatal(err)
	}
	n.fabric = f
	b.nodes = append(b.nodes, n)
	return n
}

var quiet = slog.New(slog.DiscardHandler)

// close closes the nodes, all at once, as a cluster that is shut down.
func (b *bed) close() {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	var all sync.WaitGroup
	for _, n := range b.nodes {
		all.Go(func() {
			if err := n.fabric.Close(ctx); err != nil {
				b.t.Errorf("closing %s: %v", n.name, err)
			}
			if busy := n.fabric.busy.Load(); busy != 0 {
				b.t.Errorf("%s is closed and sends to %d peers", n.name, busy)
			}
		})
	}
	all.Wait()
	for _, n := range b.nodes {
		n.sys.Shutdown()
	}
}

// remote is how others find n.
func (n *testNode) remote() Remote {
	r := Remote{Node: n.name, Incarnation: n.fabric.cfg.Incarnation}
	for _, s := range n.fabric.Rails() {
		r.Rails = append(r.Rails, RailAddress{Name: s.Name, Addr: s.Addr})
	}
	return r
}

func (n *testNode) connect(to *testNode) *Peer {
	n.t.Helper()
	p, err := n.fabric.Connect(to.remote())
	if err != nil {
		n.t.Fatal(err)
	}
	return p
}

// join connects two nodes and waits until they are.
func join(a, b *testNode) (ab, ba *Peer) {
	a.t.Helper()
	ab, ba = a.connect(b), b.connect(a)
	for _, p := range []*Peer{ab, ba} {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		if err := p.WaitReady(ctx); err != nil {
			a.t.Fatal(err)
		}
		cancel()
	}
	return ab, ba
}

// payload is what frame seq of a node carries.
func payload(node string, seq uint64, n int) []byte {
	b := make([]byte, n)
	r := rand.NewChaCha8([32]byte(binary.LittleEndian.AppendUint64(append(make([]byte, 0, 32), fmt.Sprintf("%-24.24s", node)...), seq)))
	r.Read(b)
	return b
}

var dataDescriptor = op.Descriptor{Kind: op.KindAllReduce, DType: op.Uint8, Code: op.CodeSum, Algorithm: op.Ring, Elements: 1}

// send sends frame seq of n bytes on a rail.
func (n *testNode) send(p *Peer, seq uint64, rail, bytes int, flags wire.Flags) *Frame {
	f := &Frame{Payload: payload(n.name, seq, bytes), Owner: n, Tag: seq, Rail: rail, Header: wire.Header{
		Kind: wire.KindData, Flags: flags, Comm: 1, Seq: seq, Lane: uint16(rail),
		Length: uint32(bytes), Count: 1,
		Desc: dataDescriptor,
	}}
	p.Send(f)
	return f
}

// expect waits until frames 1 … last of the other node arrived, and checks them.
func (n *testNode) expect(from string, last uint64) {
	n.t.Helper()
	n.await(fmt.Sprintf("%d frames from %s", last, from), func() bool { return len(n.frames) >= int(last) })
	n.mu.Lock()
	defer n.mu.Unlock()
	for seq := uint64(1); seq <= last; seq++ {
		if got := n.frames[seq]; !bytes.Equal(got, payload(from, seq, len(got))) {
			n.t.Errorf("frame %d from %s arrived wrong", seq, from)
		}
		if n.arrivals[seq] != 1 {
			n.t.Errorf("frame %d from %s arrived %d times", seq, from, n.arrivals[seq])
		}
	}
}

// expectReleased waits until frames 1 … last were released, and checks that the last was with want,
// and all once.
func (n *testNode) expectReleased(last uint64, want error) {
	n.t.Helper()
	n.await(fmt.Sprintf("release of %d frames", last), func() bool { return len(n.released) >= int(last) })
	n.mu.Lock()
	defer n.mu.Unlock()
	for seq := uint64(1); seq <= last; seq++ {
		if r := n.released[seq]; len(r) != 1 || seq == last && !errors.Is(r[0], want) {
			n.t.Errorf("frame %d was released with %v, want once with %v", seq, r, want)
		}
	}
}

// virtual runs a test in virtual time on nodes over transport/mem.
func virtual(t *testing.T, rails int, test func(b *bed, net *mem.Network)) {
	bubble.Test(t, func(t *testing.T) {
		net := mem.NewNetwork()
		b := &bed{t: t, open: net.Transport, as: net.Transport}
		for i := range rails {
			b.rails = append(b.rails, fmt.Sprintf("rail%d", i))
		}
		defer b.close()
		test(b, net)
	})
}

func TestFramesOfAllSizesArriveOnAllRails(t *testing.T) {
	for rails := 1; rails <= 3; rails++ {
		t.Run(fmt.Sprintf("rails=%d", rails), func(t *testing.T) {
			virtual(t, rails, func(b *bed, _ *mem.Network) {
				n := b.start("a", "b")
				ab, ba := join(n[0], n[1])
				sizes := []int{0, 1, 100, 4 << 10, 16 << 10, 17 << 10, 100 << 10, 256 << 10}
				for seq := range uint64(64) {
					n[0].send(ab, seq+1, int(seq)%rails, sizes[seq%8], 0)
					n[1].send(ba, seq+1, int(seq)%rails, sizes[(seq+3)%8], 0)
				}
				n[0].expect("b", 64)
				n[1].expect("a", 64)
				n[0].expectReleased(64, nil)
				n[1].expectReleased(64, nil)
			})
		})
	}
}

func TestFramesSurviveTheLossOfARailAndTheRailComesBack(t *testing.T) {
	for rails := 1; rails <= 3; rails++ {
		t.Run(fmt.Sprintf("rails=%d", rails), func(t *testing.T) {
			virtual(t, rails, func(b *bed, net *mem.Network) {
				n := b.start("a", "b")
				ab, ba := join(n[0], n[1])
				const frames = 200
				for seq := range uint64(frames) {
					n[0].send(ab, seq+1, int(seq)%rails, 20<<10, 0)
					n[1].send(ba, seq+1, int(seq)%rails, 50<<10, 0)
					if seq%20 == 10 {
						// One rail alone would say that the process is gone: its host refuses.
						rail := int(seq/20) % rails
						breakRail(ab, rail)
					}
				}
				n[0].expect("b", frames)
				n[1].expect("a", frames)
				n[0].expectReleased(frames, nil)
				n[1].expectReleased(frames, nil)
				s := n[0].fabric.Rails()
				if s[0].Reconnects == 0 {
					t.Errorf("the fault was not seen: %+v", s[0])
				}
			})
		})
	}
}

// breakRail resets the connection of a rail.
func breakRail(p *Peer, rail int) {
	p.mu.Lock()
	c := p.conns[rail]
	p.mu.Unlock()
	if c != nil {
		c.conn.Close()
	}
}
