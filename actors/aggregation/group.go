package aggregation

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/polyrail/polyrail/collective/fault"
	"github.com/polyrail/polyrail/collective/schedule"
	"github.com/polyrail/polyrail/collective/sharp"
	"github.com/polyrail/polyrail/messages/wire"
	"github.com/polyrail/polyrail/railactors"
	"github.com/polyrail/polyrail/railactors/transport"
)

// group is this node's part in one group: it folds what the children send, and where it is not the
// root it passes that on and the result back. It owns its frames and receives its landings.
//
// What the core decides under mu is carried out without it: mu is not held while a peer or a kernel
// is called.
type group struct {
	server    *Server
	id        uint64
	comm      uint64 // wire id of the communicator
	job       uint64 // that of the one that it is derived from
	name      string // of the communicator
	asker     string // the node that asked for it
	rail      string
	railIndex int
	base      int // of Bcube
	hosts     *schedule.Hosts
	size      int  // ranks of the communicator
	deep      bool // there are other nodes in its tree
	free      bool // sums of any type may be folded by it
	reserved  int64
	names     []string           // by child, as reasons show them
	ranks     []int              // by child; -1: it aggregates itself
	peers     []*railactors.Peer // by child
	children  map[*railactors.Peer]int
	parent    *railactors.Peer     // nil at the root
	vigil     *railactors.Vigil    // over the parent; nil at the root
	caster    transport.CastSender // nil: results go by unicast

	ctx    context.Context // ends with the group
	cancel context.CancelCauseFunc
	done   chan struct{} // closed when nothing refers to its memory any more
	pid    atomic.Pointer[actor.PID]

	mu        sync.Mutex
	core      *sharp.Node
	cause     error              // why it ended; nil while it serves
	holds     int                // who may touch its memory: frames, landings, goroutines at work
	fragments []fragment         // that are open, by number modulo window
	results   map[uint64]*result // that are being sent, by number
	owed      int                // results that the parent has not sent
	heldTo    uint64             // the parent was told that the results below are held …
	settledTo uint64             // … and said that those below are settled
	buffers   buffers
	orders    map[orderKey]order
	folded    uint64 // fragments
	bytes     uint64 // of their operands
}

// fragment is an open one: the operands that are here, or are being received.
type fragment struct {
	number   uint64
	begun    bool
	response wire.Header // what the children said of it
	operands [][]byte    // by child
}

// result is a fragment that was folded, while frames read it.
type result struct {
	response wire.Header
	folded   []byte
	whole    []byte // what the children get: of the root the same memory
	coming   bool   // the parent is sending it
}

// ended reports whether the group has ended.
func (g *group) ended() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.cause != nil
}

func (g *group) status() GroupStatus {
	g.mu.Lock()
	defer g.mu.Unlock()
	s := GroupStatus{Group: g.id, Job: g.job, Communicator: g.name, Rail: g.rail, Members: g.names,
		ReservedBytes: g.reserved, Fragments: g.folded, FoldedBytes: g.bytes}
	if g.parent != nil {
		s.Parent = g.parent.Node()
	}
	return s
}

// land answers a reader: where does this operand go?
func (g *group) land(from *railactors.Peer, h *wire.Header) (railactors.Landing, error) {
	if g.fromAbove(from, h) {
		return g.placeResult(h)
	}
	child, err := g.match(from, h)
	if err != nil {
		return railactors.Landing{}, err
	}
	if err := g.foldable(h.Desc); err != nil {
		g.end(fmt.Errorf("%s sent %v: %w", g.names[child], h.Desc, err))
		return railactors.Landing{}, nil
	}
	if err := g.checkBounds(child, h); err != nil {
		return railactors.Landing{}, g.violation(child, err)
	}
	landing, err := g.place(child, h)
	var disagree *sharp.DisagreeError
	if errors.As(err, &disagree) {
		g.end(g.disagreement(disagree))
		return railactors.Landing{}, nil
	}
	if err != nil {
		return railactors.Landing{}, g.violation(child, err)
	}
	return landing, nil
}

// match finds the child that a frame is from.
func (g *group) match(from *railactors.Peer, h *wire.Header) (child int, err error) {
	child, ok := g.children[from]
	switch {
	case !ok:
		return 0, fmt.Errorf("aggregation group %s: node %q is no member", groupText(g.id), from.Node())
	case h.Comm != g.comm:
		return 0, g.violation(child, fmt.Errorf("communicator %#x, the group's is %#x", h.Comm, g.comm))
	case h.Step != wire.TreeUp && (h.Step != wire.TreeAsk || h.Kind != wire.KindGrant):
		return 0, g.violation(child, fmt.Errorf("direction %d", h.Step))
	}
	return child, nil
}

// violation is what no correct child sends. It closes the connection.
func (g *group) violation(child int, err error) error {
	return fmt.Errorf("aggregation group %s, %s: %w", groupText(g.id), g.names[child], err)
}

// checkBounds holds a header against the limits of the group.
func (g *group) checkBounds(child int, h *wire.Header) error {
	size, parts := max(1, h.Desc.DType.Size()), schedule.Parts(h.Desc.Kind, h.Desc.Algorithm, g.size)
	bytes := fragmentBytes(h)
	may, must := g.gives(child, h.Desc)
	switch {
	case h.Desc.Kind.Empty() && bytes > 0:
		return fmt.Errorf("%d bytes of %v", bytes, h.Desc)
	case bytes > g.buffers.bytes:
		return fmt.Errorf("a fragment of %d bytes, the limit is %d", bytes, g.buffers.bytes)
	case bytes%size != 0:
		return fmt.Errorf("a fragment of %d bytes, an element of %v has %d", bytes, h.Desc.DType, size)
	case int(h.Length) != 0 && (!may || int(h.Length) != bytes), int(h.Length) != bytes && must:
		return fmt.Errorf("%d bytes of a fragment of %d, of %v", h.Length, bytes, h.Desc)
	case int(h.Block) >= parts:
		return fmt.Errorf("block %d of %d", h.Block, parts)
	}
	return nil
}

// place makes room for an operand. Without a receiver the frame is late: the group has ended.
func (g *group) place(child int, h *wire.Header) (railactors.Landing, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.cause != nil {
		return railactors.Landing{}, nil
	}
	if err := g.core.Place(child, h.Running, sharp.Request{Seq: h.Seq, Table: h.Table, Digest: h.Digest,
		Desc: h.Desc, Block: int(h.Block), Bytes: fragmentBytes(h)}); err != nil {
		return railactors.Landing{}, err
	}
	slot := int(h.Running % uint64(len(g.fragments)))
	f := &g.fragments[slot]
	if !f.begun {
		f.begun, f.number, f.response = true, h.Running, responseTo(h)
	}
	var err error
	if f.response.Lane != h.Lane {
		err = fmt.Errorf("lane %d, another child sent lane %d", h.Lane, f.response.Lane)
	} else {
		f.operands[child], err = g.buffers.take(int(h.Length))
	}
	if err != nil {
		g.core.Torn(child, h.Running)
		return railactors.Landing{}, err
	}
	g.holds++
	return railactors.Landing{Dst: f.operands[child], Receiver: g,
		Tag: uint64(slot*len(g.peers) + child)}, nil
}

// responseTo is the header of the response to a request.
func responseTo(h *wire.Header) wire.Header {
	return wire.Header{Kind: wire.KindData, Comm: h.Comm, Seq: h.Seq, Table: h.Table, Digest: h.Digest,
		Desc: h.Desc, Lane: h.Lane, Block: h.Block, Length: uint32(fragmentBytes(h)), Group: h.Group,
		Running: h.Running, Step: wire.TreeDown}
}

// landed is the fragment and the child of a landing. Under mu, while the group hasn't ended.
func (g *group) landed(tag uint64) (f *fragment, child int) {
	n := uint64(len(g.peers))
	return &g.fragments[tag/n], int(tag % n)
}

// Arrived implements railactors.Receiver.
func (g *group) Arrived(tag uint64, b *railactors.Batch) {
	defer g.leave()
	var space [8]sharp.Action
	actions := space[:0]
	g.mu.Lock()
	switch {
	case g.cause != nil:
	case tag&ofParent != 0:
		g.owed--
		actions = g.note(g.core.Returned(tag&^ofParent, actions), 0)
	default:
		f, child := g.landed(tag)
		actions = g.note(g.core.Arrived(child, f.number, actions), 0)
	}
	g.mu.Unlock()
	g.carry(actions, b)
}

// Torn implements railactors.Receiver.
func (g *group) Torn(tag uint64, _ error) {
	defer g.leave()
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.cause != nil:
	case tag&ofParent != 0:
		g.results[tag&^ofParent].coming = false
	default:
		f, child := g.landed(tag)
		g.buffers.put(f.operands[child])
		f.operands[child] = nil
		g.core.Torn(child, f.number)
	}
}

// Released implements railactors.FrameOwner. That a frame never arrives is no news here: the loss
// of its peer is.
func (g *group) Released(f *railactors.Frame, _ error) {
	defer g.leave()
	reads, number := f.Header.Kind == wire.KindData, f.Tag
	recycle(f)
	if !reads {
		return
	}
	var space [8]sharp.Action
	actions := space[:0]
	g.mu.Lock()
	if g.cause == nil {
		actions = g.note(g.core.Released(number, actions), 0)
	}
	g.mu.Unlock()
	g.carry(actions, nil)
}

// told takes a child's word on the responses that it has, or the parent's on what is settled.
func (g *group) told(from *railactors.Peer, h *wire.Header) error {
	above, child := g.fromAbove(from, h), 0
	if !above {
		var err error
		if child, err = g.match(from, h); err != nil {
			return err
		}
	}
	var space [8]sharp.Action
	actions := space[:0]
	g.mu.Lock()
	if g.cause != nil {
		g.mu.Unlock()
		return nil
	}
	g.holds++
	defer g.leave()
	var err error
	switch {
	case above:
		if actions, err = g.core.Settled(h.Running, actions); err == nil {
			g.settledTo = max(g.settledTo, h.Running)
		}
	case h.Step == wire.TreeAsk:
		actions, err = g.core.Ask(child, h.Seq, h.Running, actions)
	default:
		actions, err = g.core.Held(child, h.Running, actions)
	}
	actions = g.note(actions, 0)
	g.mu.Unlock()
	g.carry(actions, nil)
	if err != nil && !above {
		return g.violation(child, err)
	}
	return err
}

// note does what the core's answer, from an index on, changes in what the group keeps. Under mu,
// with the step of the core: what is free must be so before the next operand comes.
func (g *group) note(actions []sharp.Action, from int) []sharp.Action {
	for i := range actions[from:] {
		switch a := &actions[from+i]; a.Kind {
		case sharp.Free:
			r := g.results[a.Number]
			g.buffers.put(r.folded)
			if g.parent != nil {
				g.buffers.put(r.whole)
			}
			delete(g.results, a.Number)
		case sharp.Forward:
			g.owed++
			g.holds++ // until the frame is released
		case sharp.Respond, sharp.Settle, sharp.Cast:
			g.holds++
		case sharp.Hold:
			g.holds++
			g.heldTo = max(g.heldTo, a.Number)
		}
	}
	return actions
}

// carry does what the core decided. The caller has a hold on the group.
func (g *group) carry(actions []sharp.Action, b *railactors.Batch) {
	sent := false
	for i := 0; i < len(actions); i++ {
		switch a := actions[i]; a.Kind {
		case sharp.Fold:
			actions = g.fold(a.Number, actions)
		case sharp.Respond:
			b.Hold(g.peers[a.Child], g.railIndex)
			g.respond(a)
			sent = true
		case sharp.Cast:
			actions = g.cast(a.Number, actions)
		case sharp.Settle:
			g.notice(g.peers[a.Child], a.Number, wire.TreeDown)
			sent = true
		case sharp.Forward:
			b.Hold(g.parent, g.railIndex)
			g.forward(a.Number)
			sent = true
		case sharp.Hold:
			g.notice(g.parent, a.Number, wire.TreeUp)
			g.vigil.Begin()
			sent = true
		}
	}
	if sent && g.ended() { // since the core said so: the revocation may have missed these frames
		g.server.fabric.Revoke(g)
	}
}

var frames = sync.Pool{New: func() any { return new(railactors.Frame) }}

func recycle(f *railactors.Frame) {
	*f = railactors.Frame{}
	frames.Put(f)
}

// respond sends a child the value of a fragment.
func (g *group) respond(a sharp.Action) {
	g.mu.Lock()
	r := g.results[a.Number]
	g.mu.Unlock()
	f := frames.Get().(*railactors.Frame)
	f.Header, f.Payload = r.response, r.whole
	if !g.gets(a.Child, r.response.Desc) {
		f.Header.Length, f.Payload = 0, nil
	}
	f.Rail, f.Owner, f.Tag = g.railIndex, g, a.Number
	g.peers[a.Child].Send(f)
}

// notice tells a child, or the parent, which fragments everybody has, or everybody below.
func (g *group) notice(to *railactors.Peer, number uint64, direction uint32) {
	f := frames.Get().(*railactors.Frame)
	f.Header = wire.TreeNotice(g.comm, g.id, number, direction)
	f.Rail, f.Owner = g.railIndex, g
	to.Send(f)
}

// disagreement names both ranks and what each of them called.
func (g *group) disagreement(e *sharp.DisagreeError) error {
	a, b, differ := &e.OfA, &e.OfB, ""
	switch {
	case a.Seq != b.Seq:
		differ = fmt.Sprintf(": seq %d and seq %d", a.Seq, b.Seq)
	case a.Table != b.Table:
		differ = fmt.Sprintf(": table version %d and %d", a.Table, b.Table)
	case a.Desc != b.Desc:
	case a.Digest != b.Digest:
		differ = ": the operation's name, its counts, or the builds of polyrail differ"
	default:
		differ = fmt.Sprintf(": block %d, %d bytes and block %d, %d bytes", a.Block, a.Bytes, b.Block, b.Bytes)
	}
	return &disagreement{fmt.Sprintf("%v: %s called %v, %s called %v%s", fault.ErrMismatch, g.names[e.A],
		a.Desc, g.names[e.B], b.Desc, differ)}
}

// disagreement says which ranks called different operations.
type disagreement struct{ text string }

func (d *disagreement) Error() string { return d.text }
