package aggregation

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/polyrail/polyrail/test/leaks"

	"github.com/polyrail/polyrail/collective/op"
	"github.com/polyrail/polyrail/collective/sharp"
	"github.com/polyrail/polyrail/messages"
	"github.com/polyrail/polyrail/messages/wire"
	"github.com/polyrail/polyrail/railactors"
	"github.com/polyrail/polyrail/railactors/transport/mem"
	"github.com/polyrail/polyrail/railactors/transport/tcp"
	"github.com/polyrail/polyrail/test/bubble"
)

func TestMain(m *testing.M) { leaks.Main(m) }

const (
	testGroup  = 77
	testComm   = 42
	testWindow = 4
	testBytes  = 64 << 10 // of the longest fragment
	testBase   = 2
)

// bed is an aggregation node and its children, each with a fabric of two rails in one network.
type bed struct {
	t        testing.TB
	net      *mem.Network // nil: loopback, in real time
	window   int
	node     *station
	server   *Server
	children []*child
	hostile  bool // a test sends in the children's names: the server may answer what they never asked

	mu      sync.Mutex
	answers []answer
}

// answer is what the server sent by rendezvous.
type answer struct {
	to string
	m  *messages.Rendezvous
}

// station is one node's fabric and what closes it.
type station struct {
	fabric *railactors.Fabric
	system *actor.ActorSystem
}

var rails = []string{"rail0", "rail1"}

func (b *bed) station(name string, in railactors.Inbound) *station {
	b.t.Helper()
	quiet := slog.New(slog.DiscardHandler)
	sys := actor.NewActorSystem(actor.WithLoggerFactory(func(*actor.ActorSystem) *slog.Logger { return quiet }))
	sys.EventStream.Subscribe(func(event any) {
		if e, ok := event.(*actor.DeadLetterEvent); ok {
			if _, late := e.Message.(actor.IgnoreDeadLetterLogging); !late {
				b.t.Errorf("%s: dead letter to %s: %#v", name, e.PID.Id, e.Message)
			}
		}
	})
	cfg := railactors.Config{Node: name, Incarnation: 1, Cluster: "test", Logger: quiet}
	for _, r := range rails {
		rail := railactors.RailConfig{Name: r, Transport: tcp.New(tcp.Options{}), Device: "127.0.0.1"}
		if b.net != nil {
			rail.Transport, rail.Device = b.net.Transport(name), r
		}
		cfg.Rails = append(cfg.Rails, rail)
	}
	f, err := railactors.Start(sys, cfg, in)
	if err != nil {
		b.t.Fatal(err)
	}
	return &station{f, sys}
}

func (s *station) member(name string) *messages.ViewMember {
	m := &messages.ViewMember{Node: name, Incarnation: 1}
	for _, r := range s.fabric.Rails() {
		m.Rails = append(m.Rails, &messages.ViewRail{Name: r.Name, Addr: r.Addr})
	}
	return m
}

// inbound is the aggregation node's: all frames are the server's.
type inbound struct{ server atomic.Pointer[Server] }

func (in *inbound) Land(from *railactors.Peer, rail int, h *wire.Header) (railactors.Landing, error) {
	return in.server.Load().Land(from, rail, h)
}
func (in *inbound) Granted(from *railactors.Peer, h *wire.Header) error {
	return in.server.Load().Granted(from, h)
}
func (in *inbound) Wanted(*railactors.Peer, *wire.Header) error { return nil }
func (in *inbound) Control(*railactors.Peer, *messages.Control) {}
func (in *inbound) PeerLost(p *railactors.Peer, err error)      { in.server.Load().PeerGone(p, err) }
func (in *inbound) PeerLeft(p *railactors.Peer, err error)      { in.server.Load().PeerGone(p, err) }

// virtual runs a test in virtual time on an aggregation node and n children, which aren't connected
// yet. tune may be nil.
func virtual(t *testing.T, n int, tune func(*Config), test func(b *bed)) {
	t.Helper()
	bubble.Test(t, func(t *testing.T) {
		b := newBed(t, mem.NewNetwork(), n, testWindow, tune)
		defer b.close()
		test(b)
	})
}

// newBed starts an aggregation node and n children.
func newBed(t testing.TB, net *mem.Network, n, window int, tune func(*Config)) *bed {
	b := &bed{t: t, net: net, window: window}
	in := &inbound{}
	b.node = b.station("an", in)
	cfg := Config{Node: "an", Rails: []string{"rail1"}, MemoryLimit: 64 << 20}
	if tune != nil {
		tune(&cfg)
	}
	log := slog.New(slog.DiscardHandler)
	if testing.Verbose() {
		log = slog.New(slog.NewTextHandler(t.Output(), nil))
	}
	b.server = New(cfg, b.node.fabric, b.node.system, log, func(to string, m *messages.Rendezvous) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.answers = append(b.answers, answer{to, m})
	})
	in.server.Store(b.server)
	for rank := range n {
		c := &child{bed: b, name: fmt.Sprintf("child%d", rank), rank: rank, leaf: sharp.NewLeaf(window),
			responses: map[uint64][]byte{}, arrived: make(chan struct{}, 1)}
		c.station = b.station(c.name, c)
		b.children = append(b.children, c)
	}
	return b
}

// settle waits until nothing goes on, where time is virtual.
func (b *bed) settle() {
	if b.net != nil {
		synctest.Wait()
	}
}

// close ends everything, and checks that the server has nothing left.
func (b *bed) close() {
	b.t.Helper()
	b.server.Close()
	b.expectNothingLeft()
	stations := []*station{b.node}
	for _, c := range b.children {
		stations = append(stations, c.station)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	var all sync.WaitGroup
	for _, s := range stations {
		all.Go(func() { _ = s.fabric.Close(ctx) }) // some tests kill hosts
	}
	all.Wait()
	for _, s := range stations {
		s.system.Shutdown()
	}
}

func (b *bed) expectNothingLeft() {
	b.t.Helper()
	b.settle()
	b.server.mu.Lock()
	defer b.server.mu.Unlock()
	if n := len(b.server.admitted); n != 0 || b.server.reserved != 0 || len(b.server.Groups()) != 0 {
		b.t.Errorf("%d groups with %d bytes are left", n, b.server.reserved)
	}
}

// request asks for a group of all children.
func (b *bed) request() *messages.TreeRequest {
	m := &messages.TreeRequest{Group: testGroup, Comm: testComm, Name: "train", Rail: "rail1",
		Window: uint32(b.window), FragmentBytes: testBytes, BcubeBase: testBase, Size: uint32(len(b.children))}
	for r, c := range b.children {
		m.Members = append(m.Members, c.station.member(c.name))
		m.Hosts = append(m.Hosts, uint32(testHost(r)))
	}
	return m
}

// testHost is the host of a rank: there are two.
func testHost(rank int) int { return rank % 2 }

// ask hands the request over and returns the refusal.
func (b *bed) ask(from string, m *messages.TreeRequest) (refusal string) {
	b.t.Helper()
	b.mu.Lock()
	b.answers = nil
	b.mu.Unlock()
	b.server.Request(from, m)
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.answers) != 1 || b.answers[0].to != from {
		b.t.Fatalf("answers: %v", b.answers)
	}
	a := b.answers[0].m.GetTreeAnswer()
	if a.GetGroup() != m.GetGroup() {
		b.t.Fatalf("answer: %v", a)
	}
	return a.GetRefusal()
}

// form makes the group and connects its children.
func (b *bed) form() {
	b.t.Helper()
	if refusal := b.ask("child0", b.request()); refusal != "" {
		b.t.Fatal(refusal)
	}
	for _, c := range b.children {
		c.connect()
	}
	for _, c := range b.children {
		if err := c.peer.WaitReady(b.t.Context()); err != nil {
			b.t.Fatal(err)
		}
	}
	b.settle()
}

// child is a rank, by hand. It sends its fragments in their order as its window allows.
type child struct {
	bed     *bed
	name    string
	rank    int
	station *station
	peer    *railactors.Peer // the aggregation node

	mu        sync.Mutex
	moved     bool // responses may come over any rail
	leaf      *sharp.Leaf
	fragments []request
	responses map[uint64][]byte // by number
	settled   uint64
	revoked   []*messages.TreeRevoked
	arrived   chan struct{} // signalled when a response is here
}

// request is a fragment as a child sends it.
type request struct {
	desc  op.Descriptor
	block int
	data  []byte
}

func (c *child) connect() {
	c.bed.t.Helper()
	m := c.bed.node.member("an")
	p, err := c.station.fabric.Connect(railactors.RemoteOf(m))
	if err != nil {
		c.bed.t.Fatal(err)
	}
	c.peer = p
}

func (r *request) header(number uint64) wire.Header {
	return wire.Header{Kind: wire.KindData, Comm: testComm, Group: testGroup, Running: number, Step: wire.TreeUp,
		Seq: 1 + number/100, Table: 3, Digest: 5, Desc: r.desc, Lane: 2, Block: uint32(r.block),
		Length: uint32(len(r.data))}
}

// begin adds fragments to those that are to be sent.
func (c *child) begin(fragments []request) {
	c.mu.Lock()
	c.fragments = append(c.fragments, fragments...)
	c.leaf.Take(len(fragments))
	c.mu.Unlock()
	c.pump(nil)
}

// pump sends what the window allows, and says what is here.
func (c *child) pump(b *railactors.Batch) {
	c.mu.Lock()
	var out []*railactors.Frame
	for n := c.leaf.Sent(); int(n) < len(c.fragments) && c.leaf.Send(n); n++ {
		r := &c.fragments[n]
		out = append(out, &railactors.Frame{Header: r.header(n), Payload: r.data, Rail: 1})
	}
	c.mu.Unlock()
	var own railactors.Batch
	if b == nil {
		b = &own
	}
	for _, f := range out {
		b.Hold(c.peer, f.Rail)
		c.peer.Send(f)
	}
	own.Flush()
}

// hold tells the node that the child has all responses so far.
func (c *child) hold() {
	c.mu.Lock()
	n := c.leaf.Received()
	c.mu.Unlock()
	c.peer.Send(&railactors.Frame{Header: wire.TreeNotice(testComm, testGroup, n, wire.TreeUp), Rail: 1})
}

// Land implements railactors.Inbound.
func (c *child) Land(_ *railactors.Peer, rail int, h *wire.Header) (railactors.Landing, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.leaf.Expects(h.Running) {
		return railactors.Landing{}, fmt.Errorf("response %d is not expected", h.Running)
	}
	want := c.fragments[h.Running].header(h.Running)
	want.Step = wire.TreeDown
	want.Number, want.Ack, want.Credit, want.Generation = h.Number, h.Ack, h.Credit, h.Generation
	if *h != want || rail != 1 && !c.moved {
		c.bed.t.Errorf("%s: response on rail %d\n%+v, want\n%+v", c.name, rail, *h, want)
	}
	data := make([]byte, h.Length)
	return railactors.Landing{Dst: data, Receiver: &arrival{c, data}, Tag: h.Running}, nil
}

// arrival is one response that is being received.
type arrival struct {
	child *child
	data  []byte
}

func (a *arrival) Torn(uint64, error) {}
func (a *arrival) Arrived(number uint64, b *railactors.Batch) {
	c := a.child
	c.mu.Lock()
	c.responses[number] = a.data
	c.leaf.Arrived(number)
	c.leaf.Placed(c.leaf.Received())
	c.mu.Unlock()
	select {
	case c.arrived <- struct{}{}:
	default:
	}
	c.pump(b)
}

func (c *child) Granted(_ *railactors.Peer, h *wire.Header) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	want := wire.TreeNotice(testComm, testGroup, h.Running, wire.TreeDown)
	want.Number, want.Ack, want.Credit, want.Generation = h.Number, h.Ack, h.Credit, h.Generation
	if *h != want {
		c.bed.t.Errorf("%s: notice %+v, want %+v", c.name, *h, want)
	}
	c.settled = max(c.settled, h.Running)
	return c.leaf.SettledTo(h.Running)
}

func (c *child) Wanted(*railactors.Peer, *wire.Header) error { return nil }
func (c *child) Control(_ *railactors.Peer, m *messages.Control) {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := m.GetTreeRevoked()
	switch {
	case r != nil && m.GetComm() != testComm && c.bed.hostile: // as the odd header said
	case r == nil || m.GetComm() != testComm:
		c.bed.t.Errorf("%s: control message %v", c.name, m)
	case r.GetGroup() == testGroup: // some tests make others
		c.revoked = append(c.revoked, r)
	}
}
func (c *child) PeerLost(*railactors.Peer, error) {}
func (c *child) PeerLeft(*railactors.Peer, error) {}

// expectRevoked waits until all is at rest, and returns what the child was told, once.
func (c *child) expectRevoked() *messages.TreeRevoked {
	c.bed.t.Helper()
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.revoked) != 1 {
		c.bed.t.Fatalf("%s was told %d times that the group has ended: %v", c.name, len(c.revoked), c.revoked)
	}
	return c.revoked[0]
}
