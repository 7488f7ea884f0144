package engine

import (
	"fmt"
	"slices"
	"sync"

	"github.com/polyrail/polyrail/collective/sharp"
	"github.com/polyrail/polyrail/collective/task"
	"github.com/polyrail/polyrail/messages/wire"
	"github.com/polyrail/polyrail/railactors"
	"github.com/polyrail/polyrail/railactors/memory"
	"github.com/polyrail/polyrail/railactors/transport"
)

// Tree is this rank's part in a group: of a rail that has an aggregation tree, what operations
// carry over it goes to an aggregation node, and its sum comes back (docs/decisions/034). Events
// come from readers and callers, as those of operations do.
//
// Lock order: that of an Operation before mu. Nothing is called out while holding mu.
type Tree struct {
	TreeConfig
	engine  *Engine
	comm    uint64
	vigil   railactors.Vigil // over the node, while responses are outstanding
	sources []source         // whom callers of small operations look to

	mu      sync.Mutex
	leaf    *sharp.Leaf
	arena   *memory.Arena
	slots   []byte      // results that wait until they are settled, where an operation is in place
	parts   []*treePart // by number: those that have not ended
	placing bool        // some goroutine moves results out of their slots
	held    later       // that responses of small operations are here
	heldTo  uint64      // the node was told that the responses below are here
	asks    later       // for responses that were cast and have not come

	fenced   bool
	repaired bool
	from     uint64               // of the repair
	quiet    func(settled uint64) // called once, when a fenced tree holds no memory any more
	closed   bool
}

// TreeConfig is what all members of a group share, and this rank's way to it.
type TreeConfig struct {
	Group         uint64 // id
	Rail          int    // index
	Window        int    // fragments
	FragmentBytes int    // of the longest
	Node          *railactors.Peer
	// Deep: the sum of a fragment is made in several places. It has an order of its own.
	Deep bool
	// Results says how responses come, and Casts brings those that come to many at once; nil: none do.
	// The tree closes it.
	Results sharp.Results
	Casts   transport.CastReceiver
	// Down is told, at most once, that the node's runtime doesn't answer. It must not block.
	Down func(reason string)
}

// OpenTree readies this rank for operations of a table that names the group. The error is a want of
// memory.
func (g *Group) OpenTree(c TreeConfig) (*Tree, error) {
	t := &Tree{TreeConfig: c, engine: g.engine, comm: g.ID, leaf: sharp.NewLeaf(c.Window),
		arena: memory.NewArena(g.engine.Pool), held: later{delay: heldDelay}, asks: later{delay: askDelay}}
	slots, err := t.arena.Alloc(t.leaf.Slots() * c.FragmentBytes)
	if err != nil {
		if c.Casts != nil {
			c.Casts.Close()
		}
		return nil, fmt.Errorf("results of a tree: %w", err)
	}
	t.slots = slots
	t.vigil = railactors.Vigil{Peer: c.Node, Rail: c.Rail, Owes: t.owed, Down: c.Down}
	t.sources = []source{{peer: c.Node, rail: c.Rail}}
	g.changeTrees(func(trees map[uint64]*Tree) { trees[c.Group] = t })
	switch {
	case c.Casts != nil:
		go t.hear() // ends with CloseTree
	case c.Results == sharp.Multicast:
		t.Node.Send(t.ask(t.leaf.AskAll())) // nobody else knows the tree yet
	}
	return t, nil
}

// CloseTree forgets a tree that no operation to come uses. Its memory is freed when the last part
// of one has ended.
func (g *Group) CloseTree(t *Tree) {
	g.changeTrees(func(trees map[uint64]*Tree) { delete(trees, t.Group) })
	t.mu.Lock()
	t.closed = true
	t.held.stop()
	t.asks.stop()
	if t.Casts != nil {
		t.Casts.Close()
	}
	t.leaf.Fence()
	t.free()
	t.mu.Unlock()
}

// free gives the slots back once nobody needs them. Under mu.
func (t *Tree) free() {
	if (t.closed || t.repaired) && len(t.parts) == 0 && t.slots != nil {
		t.arena.Free()
		t.slots = nil
	}
}

// changeTrees replaces the map of trees, which readers look at without a lock.
func (g *Group) changeTrees(change func(map[uint64]*Tree)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	trees := make(map[uint64]*Tree)
	if old := g.trees.Load(); old != nil {
		for id, t := range *old {
			trees[id] = t
		}
	}
	change(trees)
	g.trees.Store(&trees)
}

// Tree finds a tree by its group; nil if there is none.
func (g *Group) Tree(group uint64) *Tree {
	if trees := g.trees.Load(); trees != nil {
		return (*trees)[group]
	}
	return nil
}

// Trees are those that this rank is a member of.
func (g *Group) Trees() (all []*Tree) {
	if trees := g.trees.Load(); trees != nil {
		for _, t := range *trees {
			all = append(all, t)
		}
	}
	return all
}

// join numbers the fragments of an operation's lane. In the order of operations.
func (t *Tree) join(p *treePart) {
	t.mu.Lock()
	defer t.mu.Unlock()
	p.first = t.leaf.Take(p.count)
	p.placed = p.first
	t.parts = append(t.parts, p)
}

// drop forgets a part that was never launched. Its communicator is broken: nobody misses its
// numbers.
func (t *Tree) drop(p *treePart) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.parts = slices.DeleteFunc(t.parts, func(x *treePart) bool { return x == p })
	t.free()
}

// land answers a reader: where does the response of a fragment go? What comes after the fence, or
// for a part that was aborted, is sunk.
func (t *Tree) land(from *railactors.Peer, rail int, h *wire.Header) (railactors.Landing, error) {
	if from != t.Node {
		return railactors.Landing{}, fmt.Errorf("response of group %016x from node %q, which doesn't aggregate it",
			t.Group, from.Node())
	}
	t.mu.Lock()
	if t.fenced || t.closed {
		t.mu.Unlock()
		return railactors.Landing{}, nil
	}
	p := t.find(h.Running)
	if p == nil || !t.leaf.Expects(h.Running) || p.coming[h.Running-p.first] {
		twice := t.twice(h.Running)
		t.mu.Unlock()
		if twice {
			return railactors.Landing{}, nil
		}
		return railactors.Landing{}, fmt.Errorf("response to fragment %d of group %016x, which was not asked for",
			h.Running, t.Group)
	}
	if p.aborted {
		t.mu.Unlock()
		return railactors.Landing{}, nil
	}
	o := p.operation
	_, _, length := p.fragment(h.Running)
	if !p.gets {
		length = 0
	}
	if int(h.Length) != length || h.Seq != o.Seq {
		t.mu.Unlock()
		return railactors.Landing{}, fmt.Errorf("response to fragment %d of group %016x: seq %d with %d bytes, "+
			"want seq %d with %d", h.Running, t.Group, h.Seq, h.Length, o.Seq, length)
	}
	p.coming[h.Running-p.first] = true
	p.busy++
	dst := p.target(h.Running)
	if p.slotted() {
		dst = t.slot(h.Running, length)
	}
	t.mu.Unlock()
	o.mu.Lock()
	o.landing(p.lane, rail, h.Length)
	o.mu.Unlock()
	p.trace(TraceReceive, rail, h.Running, length)
	return railactors.Landing{Dst: dst, Receiver: p, Tag: h.Running}, nil
}

// slot is where a result waits.
func (t *Tree) slot(number uint64, length int) []byte {
	at := t.leaf.Slot(number) * t.FragmentBytes
	return t.slots[at : at+length]
}

// find is the part that a fragment belongs to. Under mu.
func (t *Tree) find(number uint64) *treePart {
	for _, p := range t.parts {
		if number >= p.first && number < p.end() {
			return p
		}
	}
	return nil
}

// settledTo takes the group's word that everybody has the responses below a number.
func (t *Tree) settledTo(from *railactors.Peer, h *wire.Header) error {
	if from != t.Node {
		return fmt.Errorf("notice of group %016x from node %q, which doesn't aggregate it", t.Group, from.Node())
	}
	t.mu.Lock()
	var err error
	if !t.fenced {
		err = t.leaf.SettledTo(h.Running)
	}
	t.mu.Unlock()
	if err == nil {
		t.advance(nil)
	}
	return err
}

// advance moves settled results to where they belong, sends what may be sent, and ends the parts
// that are done. The batch holds what it sends; with nil it is written before advance returns.
func (t *Tree) advance(b *railactors.Batch) {
	var frames []*railactors.Frame
	var held uint64
	t.mu.Lock()
	t.place()
	frames = t.outgoing(frames)
	if p := t.told(); p != nil {
		p.told = true
		held = p.end()
		t.heldTo = held
	}
	ask := t.missed()
	owed := t.owes()
	ended := t.takeEnded()
	var space [4]*treePart
	resolved := t.takeResolved(space[:0])
	quiet, settled := t.takeQuiet()
	t.mu.Unlock()
	if owed {
		t.vigil.Begin()
	}
	var own railactors.Batch
	if b == nil && len(frames) > 1 {
		b = &own
	}
	if len(frames) > 0 {
		b.Hold(t.Node, t.Rail)
	}
	for _, f := range frames {
		p := f.Owner.(*treePart)
		p.trace(TraceSend, p.lane, f.Tag, len(f.Payload))
		p.operation.owner.Hand(f, t.Node)
	}
	if ask != nil {
		t.Node.Send(ask)
	}
	if held > 0 {
		t.Node.Send(&railactors.Frame{Rail: t.Rail, Header: wire.TreeNotice(t.comm, t.Group, held, wire.TreeUp)})
	}
	own.Flush()
	for _, p := range ended {
		if p.resolved {
			p.operation.reached(task.Retire)
		} else {
			p.operation.ended()
		}
	}
	for _, p := range resolved {
		p.operation.reached(task.Resolve)
		t.released(p, nil)
	}
	if quiet != nil {
		quiet(settled)
	}
}

// told is the last part whose responses are all here, unless the node has heard so, or is to hear it
// later. Under mu.
func (t *Tree) told() (last *treePart) {
	waits := false // a caller waits until it is settled
	for _, p := range t.parts {
		if p.end() > t.leaf.Received() || t.fenced {
			break
		}
		last = p
		waits = waits || !p.copied && !p.told
	}
	if last == nil || last.told || !waits && !t.held.due(t) {
		return nil
	}
	return last
}

// place moves the results that are settled out of their slots, one goroutine at a time. It unlocks
// mu while it copies.
func (t *Tree) place() {
	if t.placing {
		return
	}
	t.placing = true
	for {
		p, to := t.placeable()
		if p == nil {
			break
		}
		from := p.placed
		t.mu.Unlock()
		if p.slotted() {
			for n := from; n < to; n++ {
				dst := p.target(n)
				copy(dst, t.slot(n, len(dst)))
			}
		}
		t.mu.Lock()
		p.placed = to
		t.leaf.Placed(t.unplaced())
	}
	t.placing = false
}

// unplaced is the number of the first fragment whose result may be in a slot still. Under mu.
func (t *Tree) unplaced() uint64 {
	for _, p := range t.parts {
		if p.placed < p.end() {
			return p.placed
		}
	}
	return t.leaf.Taken()
}

// placeable is the first part with results to move, and the number to which. Under mu.
func (t *Tree) placeable() (*treePart, uint64) {
	for _, p := range t.parts {
		to := min(p.end(), t.leaf.Settled())
		if p.copied {
			to = min(p.end(), t.leaf.Received())
		}
		if p.placed < to && !p.aborted {
			return p, to
		}
	}
	return nil, 0
}

// outgoing appends the frames that may be sent now. Under mu.
func (t *Tree) outgoing(frames []*railactors.Frame) []*railactors.Frame {
	for _, p := range t.parts {
		for p.launched && !p.aborted && t.leaf.Sent() < p.end() && t.leaf.Send(t.leaf.Sent()) {
			p.busy++
			f := p.request(t.leaf.Sent() - 1)
			if p.castAlone(int(f.Header.Length)) {
				t.leaf.SentForCast(f.Tag)
			}
			frames = append(frames, f)
		}
		if t.leaf.Sent() < p.end() {
			break
		}
	}
	return frames
}

// takeEnded takes the parts out that are done: aborted, or with all results in place and settled, and
// without anything that holds memory. One that is to be repaired stays until its repair has begun.
// Under mu.
func (t *Tree) takeEnded() (ended []*treePart) {
	if t.placing {
		return nil
	}
	kept := t.parts[:0]
	for _, p := range t.parts {
		whole := p.placed >= p.end() && (!p.copied || p.ceded || p.end() <= t.leaf.Settled())
		if p.launched && p.busy == 0 && (p.aborted || whole) {
			ended = append(ended, p)
		} else {
			kept = append(kept, p)
		}
	}
	clear(t.parts[len(kept):])
	t.parts = kept
	t.free()
	return ended
}

// takeResolved appends the parts whose results are all in place though they have not ended. Each is
// to be released. Under mu.
func (t *Tree) takeResolved(resolved []*treePart) []*treePart {
	for _, p := range t.parts {
		if p.copied && p.launched && !p.resolved && !p.aborted && p.placed >= p.end() {
			p.resolved = true
			p.busy++
			resolved = append(resolved, p)
		}
	}
	return resolved
}

// released: a frame to the node, or a landing, has let go of a part's memory.
func (t *Tree) released(p *treePart, b *railactors.Batch) {
	t.mu.Lock()
	p.busy--
	t.mu.Unlock()
	t.advance(b)
}
