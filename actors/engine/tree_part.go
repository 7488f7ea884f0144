package engine

import (
	"fmt"
	"slices"

	"github.com/polyrail/polyrail/collective/fault"
	"github.com/polyrail/polyrail/collective/op"
	"github.com/polyrail/polyrail/collective/plan"
	"github.com/polyrail/polyrail/collective/schedule"
	"github.com/polyrail/polyrail/collective/table"
	"github.com/polyrail/polyrail/collective/task"
	"github.com/polyrail/polyrail/messages/wire"
	"github.com/polyrail/polyrail/railactors"
)

// treePart is what a lane with a tree carries of an operation. Each block's part of the lane is cut
// into fragments; those of a block follow each other, and blocks do. It is the owner of the frames
// that read the caller's memory, and the receiver of those that write it.
type treePart struct {
	tree      *Tree
	operation *Operation
	lane      int
	blocks    []laneBlock
	count     int // fragments
	// copied: frames read a copy of the operand, and results go to the caller's memory as they come.
	// The operation resolves with the last one, and what is settled ends it for the tree.
	copied bool
	gives  bool // this rank has an operand
	gets   bool // this rank gets a result

	// Under tree.mu.
	first    uint64 // number of the first fragment
	placed   uint64 // results below are where they belong
	coming   []bool // by fragment: a response has begun to land
	busy     int    // frames and landings that hold memory
	launched bool
	aborted  bool
	told     bool // that all its responses are here
	resolved bool // copied: its operation was told that all results are in place
	ceded    bool // a repair does the rest
}

// laneBlock is a lane's part of a block: where it begins in the caller's source and destination
// memory, and its length, in bytes; and the first fragment of it.
type laneBlock struct {
	source, target, bytes int
	fragment              int
}

// treed reports whether a call's lanes go over trees where their rails have them. All ranks
// answer alike.
func (o *Operation) treed(t *table.Table) bool {
	r := o.request
	if o.shape.desc.Code == op.CodeUser || r.Rail != 0 {
		return false
	}
	route := entryOf(t, r).Route
	switch r.Kind {
	case op.KindReduce, op.KindBroadcast:
		return route == table.TreedAll && r.Algorithm == op.Auto
	case op.KindAllReduce, op.KindBarrier:
		large := !o.shape.eager && o.shape.desc.Algorithm == op.Ring
		return route != table.Flat && large || route.Treed() && r.Algorithm == op.Auto
	}
	return false
}

// joinTrees makes the parts of an operation that go over trees, in the order of operations.
func (o *Operation) joinTrees(t *table.Table, polls bool) error {
	if len(t.Trees) == 0 || !o.treed(t) {
		return nil
	}
	for lane := range o.shape.config.Plan.Lanes {
		id := t.Tree(lane)
		if id == 0 || o.shape.config.Plan.Lanes[lane].Rounds == 0 {
			continue
		}
		tree := o.group.Tree(id)
		if tree == nil {
			return fmt.Errorf("%w: table version %d names group %016x, which is unknown here",
				fault.ErrInternal, t.Version, id)
		}
		if tree.Deep && o.request.Kind.Reduces() && !o.group.engine.Config.Free && !o.shape.desc.Code.Exact(o.request.DType) {
			continue // its order is another one than that of the rails
		}
		p := &treePart{tree: tree, operation: o, lane: lane, copied: o.keep()}
		p.gives, p.gets = o.partIn()
		p.cut()
		tree.join(p)
		o.trees = append(o.trees, p)
		if polls {
			o.work.from = append(o.work.from[:0], tree.pollable(p.castAlone(o.request.bytes))...)
		}
	}
	return nil
}

// pollable are the pairs that a caller looks to for the tree's responses; none if they are cast.
func (t *Tree) pollable(cast bool) []source {
	if cast || !t.Node.Pollable(t.Rail) {
		return nil
	}
	return t.sources
}

// partIn is whether this rank has an operand that is folded or passed on, and whether it gets a
// result. Who has, or gets, nothing sends or receives an empty frame: it is in step with the others.
func (o *Operation) partIn() (gives, gets bool) {
	root := o.request.Root == o.group.Rank
	return o.request.Kind != op.KindBroadcast || root,
		o.request.Kind == op.KindBroadcast && !root || o.request.Kind == op.KindReduce && root ||
			!o.request.Kind.Rooted()
}

// keep copies a small operation's operand, once. It reports whether there is a copy: where memory is
// short the caller's own is read until all is settled, as that of large operations.
func (o *Operation) keep() bool {
	src := o.memory[task.Input]
	if !o.shape.eager {
		return false
	}
	if o.kept == nil && len(src) > 0 && len(src) <= copyLimit {
		if buf := o.group.engine.Pool.Get(len(src)); buf != nil {
			o.kept = buf[:len(src)]
			copy(o.kept, src)
		}
	}
	copied := o.kept != nil || len(src) == 0
	o.lingers = o.lingers || copied
	return copied
}

// cut divides the lane's part of each block into fragments.
func (p *treePart) cut() {
	pl := p.operation.shape.config.Plan
	l := &pl.Lanes[p.lane]
	for i := range pl.Blocks {
		off, length := pl.Range(l.First, l.Rounds, i)
		p.blocks = append(p.blocks, laneBlock{after(pl.Blocks[i].Source, off), after(pl.Blocks[i].Target, off),
			length, p.count})
		p.count += (length + p.tree.FragmentBytes - 1) / p.tree.FragmentBytes
	}
	if pl.Bytes == 0 {
		p.count = 1 // an empty one
	}
	p.coming = make([]bool, p.count)
}

// after is a place behind a block's beginning, where the block is in that memory.
func after(begin, off int) int {
	if begin == schedule.None {
		return begin
	}
	return begin + off
}

func (p *treePart) end() uint64 { return p.first + uint64(p.count) }

// fragment is a fragment's block, where it begins in the lane's part of it, and its length.
func (p *treePart) fragment(number uint64) (block, off, length int) {
	i := int(number - p.first)
	if p.operation.shape.config.Plan.Bytes == 0 {
		return 0, 0, 0
	}
	for block = len(p.blocks) - 1; p.blocks[block].fragment > i || p.blocks[block].bytes == 0; block-- {
	}
	b := &p.blocks[block]
	off = (i - b.fragment) * p.tree.FragmentBytes
	length = min(p.tree.FragmentBytes, b.bytes-off)
	return block, off, length
}

// slotted reports whether results wait in slots: they belong where the operand is, which may be
// folded again.
func (p *treePart) slotted() bool { return p.operation.shape.config.InPlace && !p.copied }

// target is where a fragment's result belongs; never nil, so that it is not taken for a sink.
func (p *treePart) target(number uint64) []byte {
	block, off, length := p.fragment(number)
	if length == 0 || !p.gets {
		return nothing[:0]
	}
	at := p.blocks[block].target + off
	return p.operation.memory[task.Final][at : at+length]
}

// request is the frame of a fragment's operand.
func (p *treePart) request(number uint64) *railactors.Frame {
	block, off, length := p.fragment(number)
	o := p.operation
	f := frames.Get().(*railactors.Frame)
	f.Header, f.Rail, f.Owner, f.Tag = o.header(wire.KindData), p.lane, p, number
	f.Header.Group, f.Header.Running, f.Header.Step = p.tree.Group, number, wire.TreeUp
	f.Header.Lane, f.Header.Block, f.Header.Length = uint16(p.lane), uint32(block), uint32(length)
	f.Header.Flags = 0 // the window is what bounds them
	if number == p.end()-1 && !p.copied {
		f.Header.Flags = wire.FlagAckNow
	}
	if o.request.Kind.Rooted() {
		f.Header.Count = uint32(length)
	}
	if !p.gives {
		f.Header.Length = 0
		return f
	}
	at := p.blocks[block].source + off
	f.Payload = p.operand()[at : at+length]
	return f
}

// operand is what is folded of this rank.
func (p *treePart) operand() []byte {
	if p.copied {
		return p.operation.kept
	}
	return p.operation.memory[task.Input]
}

// Released implements railactors.FrameOwner. That a frame never arrived is no news here: the loss
// of the node is.
func (p *treePart) Released(f *railactors.Frame, _ error) {
	recycle(f)
	p.tree.released(p, nil)
}

// Arrived implements railactors.Receiver.
func (p *treePart) Arrived(number uint64, b *railactors.Batch) {
	o := p.operation
	o.mu.Lock()
	if p.lane < len(o.rails) {
		o.clock(task.Arrived, p.lane)
	}
	o.mu.Unlock()
	t := p.tree
	t.mu.Lock()
	t.leaf.Arrived(number)
	t.mu.Unlock()
	t.released(p, b)
}

// Torn implements railactors.Receiver: the response will come again, or nobody wants it.
func (p *treePart) Torn(number uint64, _ error) {
	t := p.tree
	t.mu.Lock()
	p.coming[number-p.first] = false
	t.mu.Unlock()
	t.released(p, nil)
}

// remaining is how many bytes have yet to be received, and how many to be sent.
func (p *treePart) remaining() (in, out int64) {
	t := p.tree
	t.mu.Lock()
	defer t.mu.Unlock()
	for n := p.first; n < p.end(); n++ {
		_, _, length := p.fragment(n)
		if !p.coming[n-p.first] {
			in += int64(length)
		}
		if n >= t.leaf.Sent() {
			out += int64(length)
		}
	}
	return in, out
}

// unfinished reports whether the operation waits for results that its tree owes.
func (p *treePart) unfinished() bool {
	t := p.tree
	t.mu.Lock()
	defer t.mu.Unlock()
	return p.placed < p.end()
}

// launchTrees begins the parts that go over trees.
func (o *Operation) launchTrees() {
	for _, p := range o.trees {
		t := p.tree
		t.mu.Lock()
		p.launched = true
		repaired := t.repaired
		t.mu.Unlock()
		if repaired {
			p.repair()
		}
		t.advance(nil)
	}
}

// abortTrees ends what goes over trees: nothing new is started. What holds memory is to be revoked.
// Under mu.
func (o *Operation) abortTrees() []*treePart {
	for _, p := range o.trees {
		p.tree.mu.Lock()
		p.aborted = true
		p.tree.mu.Unlock()
	}
	return o.trees
}

// dropTrees forgets the parts of an operation that was never launched.
func (o *Operation) dropTrees() {
	for _, p := range o.trees {
		p.tree.drop(p)
	}
	o.trees = nil
}

// revokeTrees takes the memory back that aborted parts have lent. Nothing is locked.
func revokeTrees(parts []*treePart) {
	for _, p := range parts {
		p.tree.engine.Revoke(p)
		p.tree.advance(nil)
	}
}

// overTree reports whether a lane of the operation goes over a tree.
func (o *Operation) overTree(lane int) bool {
	return slices.ContainsFunc(o.trees, func(p *treePart) bool { return p.lane == lane })
}

// awaitsRepair reports whether a lane is to do what a tree did not, and has not begun. Under mu.
func (o *Operation) awaitsRepair(lane int) bool {
	return lane >= o.group.engine.Rails && lane < len(o.parts) && !o.parts[lane].active &&
		o.overTree(lane-o.group.engine.Rails)
}

// takeGrants takes what was granted on a lane before it began. Under mu.
func (o *Operation) takeGrants(lane int) (taken []earlyGrant) {
	for _, g := range o.grants {
		if int(g.header.Lane) == lane {
			taken = append(taken, g)
		}
	}
	return taken
}

// repairLane is the number of the lane that does without a tree what was a lane's.
func (e *Engine) repairLane(lane int) int { return e.Rails + lane }

// repair begins to do without the tree what is not settled: by the flat algorithm of the operation,
// over what is left of each block. The part over the tree ends with the rest. It reports whether
// there was anything to do.
func (p *treePart) repair() bool {
	o := p.operation
	lane := p.tree.engine.repairLane(p.lane)
	o.mu.Lock()
	rest := p.cede()
	if rest == nil || o.cause != nil {
		o.mu.Unlock()
		return false
	}
	o.holds++
	defer o.leave()
	r := &o.parts[lane]
	r.operation, r.lane, r.rail, r.active = o, lane, p.lane, true
	r.carriers, r.announced = 0, false
	if !o.group.engine.Config.PinFrames {
		for rail := range o.group.engine.Rails {
			r.carriers.Add(rail)
		}
	}
	r.memory = p.repairMemory()
	r.prepare(task.Config{Program: o.shape.config.Program, Plan: rest, InPlace: p.slotted()})
	o.repaired = true
	o.unresolved++
	o.unretired++
	actions, err := r.task.Step(task.Event{Kind: task.Start}, nil)
	grants := o.takeGrants(lane)
	o.mu.Unlock()
	if err != nil {
		o.fail(err)
		return false
	}
	r.carry(actions)
	for _, g := range grants {
		o.mu.Lock()
		o.granted(g.from, &g.header)
	}
	return true
}

// repairMemory is what a repair reads and writes. Its caller may have the operation's memory back:
// then nobody looks at the results any more, but others need what this rank does for them. Under
// operation.mu.
func (p *treePart) repairMemory() *[3][]byte {
	o := p.operation
	m := o.memory
	if p.copied {
		m[task.Input] = o.kept
		if o.unresolved == 0 {
			m[task.Final] = make([]byte, len(m[task.Final]))
		}
	}
	return &m
}

// cede leaves to the part over the tree what is settled alone, and is the plan of the rest; nil if
// there is none.
func (p *treePart) cede() *plan.Plan {
	t := p.tree
	t.mu.Lock()
	defer t.mu.Unlock()
	from := max(p.first, t.from)
	if from >= p.end() || p.aborted {
		return nil
	}
	p.count, p.ceded = int(from-p.first), true
	return p.remains(from)
}

// remains is the plan of what a lane has from a fragment on: of each block what is left of it, as
// one lane.
func (p *treePart) remains(from uint64) *plan.Plan {
	o := p.operation
	parts := make(plan.Parts, len(p.blocks))
	done := make([]int, len(p.blocks))
	for i, b := range p.blocks {
		done[i] = min(b.bytes, max(0, int(from-p.first)-b.fragment)*p.tree.FragmentBytes)
		parts[i] = b.bytes - done[i]
	}
	d := o.shape.desc
	cost := o.group.CostOf(d.Kind, d.Algorithm, d.Root)
	l := plan.NewLayout(parts.Total(), max(1, o.request.DType.Size()), parts, o.shape.config.Program.Blocks, cost)
	for i := range l.Blocks {
		l.Blocks[i].Source = after(p.blocks[i].source, done[i])
		l.Blocks[i].Target = after(p.blocks[i].target, done[i])
	}
	return plan.New(l, []int{l.Rounds}, cost)
}
