package engine

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/polyrail/polyrail/collective/fault"
	"github.com/polyrail/polyrail/collective/op"
	"github.com/polyrail/polyrail/collective/task"
	"github.com/polyrail/polyrail/messages/wire"
	"github.com/polyrail/polyrail/railactors"
)

// Operation is the data path of one collective: its parts, the memory that their tasks
// speak of, and the landing of frames. Its lifecycle is its Owner's.
//
// Events come from many goroutines: readers (a frame is in, an acknowledgement came),
// the caller (start, early frames). Each takes mu for the core's Step only and carries
// out the answer itself, so a kernel runs where its last operand came from.
//
// An operation exists from the first thing that is heard of its seq, here or from a
// peer, until nothing refers to its memory any more; then it is pooled.
type Operation struct {
	group *Group
	Seq   uint64

	mu       sync.Mutex
	phase    phase
	granting bool  // not all that it grants at its start is in the peers' queues yet: granted waits
	cause    error // why it was aborted
	givenUp  error // why its caller waits no longer, if that came first
	settled  bool  // it has ended well for its caller
	retired  bool  // all parts are done with everything
	holds    int   // goroutines and early frames that still refer to the operation
	ticks    int   // looks at what takes long that have found it in flight
	early    []*earlyFrame
	grants   []earlyGrant
	wants    []*railactors.Peer
	parts    []part // by lane, then by repairLane; those without rounds take no part
	trees    []*treePart
	called   []op.Rank // where there are trees: who has said that it called the operation, too
	kept     []byte    // copy of a small operation's operand, until trees have settled it; nil: there is none
	lingers  bool      // it may resolve long before it retires: its place is given up as it resolves

	unresolved, unretired int // parts

	shown shown // in place of parts

	stamped atomic.Int64 // while a trace is recorded: when the call, a frame or a grant came last

	// Written by Configure before phase running, constant after.
	request *Request
	work    *Work
	shape   shape
	memory  [3][]byte // by task.Memory; scratch is the parts'
	combine op.Combine
	owner   Owner // nil: nobody has called it here

	outgoing []outgoing // of the start

	// The rails' clocks, under mu; rails is empty where nobody wants to know.
	begun     time.Time
	rails     []railClock // by index
	strayed   bool        // a frame came over another rail than planned
	failovers uint64      // of the group, at the launch
	repaired  bool        // a tree that was to carry a part of it did not
}

type phase uint8

const (
	phaseHeard    phase = iota // only peers have spoken of it
	phaseNumbered              // called here, not yet launched
	phaseRunning
)

// shape is what all ranks must agree on, and what follows from it.
type shape struct {
	desc   op.Descriptor
	digest uint64
	table  uint32
	split  uint32 // how it divides operations of this class
	eager  bool
	config task.Config // of every part, but for lane and window

	acknowledged bool // it resolves when what it sent is acknowledged, however small
}

// reuse makes a pooled operation fit for a new seq.
func (o *Operation) reuse(g *Group, seq uint64) {
	o.group, o.Seq = g, seq
	o.phase, o.cause, o.retired, o.holds = phaseHeard, nil, false, 0
	o.givenUp, o.settled = nil, false
	o.unresolved, o.unretired, o.ticks = 0, 0, 0
	o.early, o.grants, o.wants, o.called = o.early[:0], o.grants[:0], o.wants[:0], o.called[:0]
	o.trees, o.repaired, o.kept, o.lingers, o.shown.active = nil, false, nil, false, false
}

// release drops what a pooled operation must not keep alive.
func (o *Operation) release() {
	if o.work != nil {
		o.work.Release()
	}
	o.group, o.request, o.work, o.combine, o.owner = nil, nil, nil, nil, nil
	o.shape, o.trees, o.kept = shape{}, nil, nil
	o.memory = [3][]byte{}
	for i := range o.parts {
		o.parts[i].active = false
	}
	clear(o.early[:cap(o.early)])
	clear(o.wants[:cap(o.wants)])
	clear(o.outgoing[:cap(o.outgoing)])
}

// Launch starts a numbered operation on its caller's goroutine, which then
// does the work that early frames bring.
func (o *Operation) Launch() {
	w := o.work
	if o.request.Waits {
		w.attend()
	}
	o.launch()
	w.listen()
}

func (o *Operation) launch() {
	if program := o.shape.config.Program; program != nil {
		o.group.heed(program)
	}
	o.mu.Lock()
	o.holds++
	defer o.leave()
	o.phase = phaseRunning
	if o.cause != nil {
		// Broken since it was numbered, or a call that can't be run: nothing has started.
		cause := o.cause
		o.retired = true
		o.discard()
		o.dropTrees()
		o.fail(cause)
		o.resolve()
		return
	}
	if o.group.trace.Load() != nil {
		o.stampCall()
	}
	o.granting = !o.shape.eager
	err := o.start()
	early, wants := o.drain()
	grants := len(o.grants)
	o.mu.Unlock()
	if err != nil {
		o.fail(err)
	}
	announce(o.outgoing, 1)
	o.carryStart()
	if o.granting {
		o.mu.Lock()
		o.granting, grants = false, len(o.grants)
		o.mu.Unlock()
	}
	o.launchTrees()
	if o.shown.active {
		o.showOperand()
	}
	if o.request.External != nil {
		o.runExternal()
	}
	for _, p := range wants {
		p.GrantEager(o.group.ID, o.Seq)
	}
	for i := range grants {
		o.mu.Lock()
		g := o.grants[i]
		o.granted(g.from, &g.header)
	}
	for _, e := range early {
		e.deliver()
	}
}

// start readies what the operation consists of. Under mu.
func (o *Operation) start() error {
	if o.shown.active {
		o.startShown()
		return nil
	}
	return o.startParts()
}

// leave ends a hold. The last one of an operation that is done with everything forgets it.
func (o *Operation) leave() {
	o.mu.Lock()
	o.holds--
	over := o.holds == 0 && o.retired
	o.mu.Unlock()
	if over {
		o.forget()
	}
}

// land answers a reader. It comes with mu locked, and unlocks it.
func (o *Operation) land(rank op.Rank, from *railactors.Peer, rail int, h *wire.Header) (railactors.Landing, error) {
	if o.phase != phaseRunning {
		defer o.mu.Unlock()
		return o.landEarly(rank, from, rail, h)
	}
	if o.shown.active {
		return o.landOperand(rank, from, rail, h)
	}
	p, ref, loc, err := o.place(rank, h)
	if err == nil {
		if t := o.group.trace.Load(); t != nil {
			o.received(t, o.stampFrame(from, rail), rail, rank, h)
		}
		o.landing(p.lane, rail, h.Length) // the task counts the landing, and with that keeps the operation
		defer o.mu.Unlock()
		return railactors.Landing{Dst: p.at(loc), Receiver: o, Tag: tag(ref, p.lane, rail)}, nil
	}
	o.holds++
	defer o.leave()
	o.mu.Unlock()
	o.refuse(rank, h, err)
	return railactors.Landing{}, nil
}

// place asks a task where a frame lands, after comparing what shapes the operation. Under mu.
func (o *Operation) place(rank op.Rank, h *wire.Header) (*part, task.Ref, task.Loc, error) {
	if err := o.compare(rank, h); err != nil {
		return nil, 0, task.Loc{}, err
	}
	p, err := o.part(int(h.Lane))
	if err != nil {
		return nil, 0, task.Loc{}, err
	}
	ref, loc, err := p.task.Place(task.Frame{From: rank, First: int(h.Round), Count: int(h.Count),
		Mark: int(h.Block), Step: int(h.Step), Bytes: int(h.Length)})
	return p, ref, loc, err
}

// compare reports what the sender of a frame or a grant does not share with this rank.
func (o *Operation) compare(rank op.Rank, h *wire.Header) error {
	if h.Digest == o.shape.digest && h.Table == o.shape.table {
		return nil
	}
	e := &fault.MismatchError{Rank: rank, Node: o.group.Nodes[rank],
		Mine: o.shape.desc.String(), Theirs: h.Desc.String()}
	switch {
	case h.Table != o.shape.table:
		e.Explanation = fmt.Sprintf("table version %d here, %d there", o.shape.table, h.Table)
	case h.Desc == o.shape.desc && o.shape.desc.Code == op.CodeUser:
		e.Explanation = fmt.Sprintf(
			"here it is %v; the names of the operator or of the operation differ", o.request.Op)
	case h.Desc == o.shape.desc && o.shape.desc.Batch > 0:
		e.Explanation = fmt.Sprintf(
			"here it is a batch of buffers of %s elements; the lengths of its buffers, its name, "+
				"or the builds of polyrail differ", o.request.listed())
	case h.Desc == o.shape.desc && h.Desc.Kind == op.KindSub:
		e.Explanation = fmt.Sprintf("here it is of ranks %.64s; the ranks that were passed differ", o.request.Name)
	case h.Desc == o.shape.desc:
		e.Explanation = "the operation's name, its counts, or the builds of polyrail differ"
	}
	return e
}

// refuse ends the operation for a frame that does not fit: a mismatch of the callers, or a
// violation of the protocol. After an abort it is only late.
func (o *Operation) refuse(rank op.Rank, h *wire.Header, err error) {
	if err == task.ErrAborted {
		o.group.DroppedFrames.Add(1)
		return
	}
	if _, ok := err.(*fault.MismatchError); !ok {
		err = fmt.Errorf("%w: rank %d (node %q), lane %d, step %d, rounds %d+%d, block %d: %w",
			fault.ErrInternal,
			rank, o.group.Nodes[rank], h.Lane, h.Step, h.Round, h.Count, h.Block, err)
	}
	o.fail(err)
}

// A tag is the task's reference, the lane, and, of a landing, the rail that carried the frame.
func tag(r task.Ref, lane, rail int) uint64 {
	return uint64(uint32(r)) | uint64(uint16(lane))<<32 | uint64(rail)<<48
}

func untag(t uint64) (r task.Ref, lane, rail int) {
	return task.Ref(uint32(t)), int(uint16(t >> 32)), int(t >> 48)
}

// Arrived implements railactors.Receiver.
func (o *Operation) Arrived(t uint64, _ *railactors.Batch) {
	ref, lane, rail := untag(t)
	o.arrived(lane, rail, ref)
}

// arrived: a frame of a lane is in its place; a rail carried it.
func (o *Operation) arrived(lane, rail int, ref task.Ref) {
	o.stepOn(lane, rail, task.Event{Kind: task.Arrived, Ref: ref})
}

// Torn implements railactors.Receiver.
func (o *Operation) Torn(t uint64, _ error) {
	ref, lane, _ := untag(t)
	o.step(lane, task.Event{Kind: task.Torn, Ref: ref})
}

// Released implements railactors.FrameOwner, for borrowed frames.
func (o *Operation) Released(f *railactors.Frame, err error) {
	ref, lane, _ := untag(f.Tag)
	recycle(f)
	if err != nil && err != railactors.ErrRevoked {
		o.fail(o.group.Named(err))
	}
	o.step(lane, task.Event{Kind: task.Released, Ref: ref})
}

// granted: a peer has started the operation and has room for spans. It comes with mu locked,
// and unlocks it. Data that overtook this rank's own grants would delay them on a slow rail, and
// with them the peer's data.
func (o *Operation) granted(rank op.Rank, h *wire.Header) {
	if o.phase != phaseRunning || o.granting {
		defer o.mu.Unlock()
		o.keepGrant(rank, h)
		return
	}
	o.holds++
	defer o.leave()
	err := o.compare(rank, h)
	if err == nil && len(o.trees) > 0 && !slices.Contains(o.called, rank) {
		o.called = append(o.called, rank)
	}
	done := err == nil && h.Count == 0 // the other rank only wants to know whether they agree
	if err == nil && !done {
		if done = o.awaitsRepair(int(h.Lane)); done {
			o.keepGrant(rank, h)
		} else {
			_, err = o.part(int(h.Lane))
		}
	}
	o.mu.Unlock()
	if done {
		return
	}
	if err != nil {
		o.fail(err)
		return
	}
	if t := o.group.trace.Load(); t != nil {
		o.record(t, &TraceEvent{At: o.stamp(time.Since(processBegan)), Kind: TraceGranted, Lane: int(h.Lane), Rail: -1, Peer: int(rank),
			Count: int(h.Count)})
	}
	o.step(int(h.Lane), task.Event{Kind: task.Granted, From: rank, Limit: int(h.Count)})
}

// wanted: a peer has eager frames and no credit. It reports whether they may come. It comes with mu
// locked, and unlocks it.
func (o *Operation) wanted(from *railactors.Peer) bool {
	defer o.mu.Unlock()
	if o.phase == phaseRunning {
		return true
	}
	if !slices.Contains(o.wants, from) { // one grant is for all that waits there
		o.wants = append(o.wants, from)
	}
	return false
}

// fail breaks the communicator with this operation's error.
func (o *Operation) fail(cause error) {
	o.group.Fail(cause, o.Seq)
}

// resolve ends the operation for its caller. That a repair resolves it again is no news.
func (o *Operation) resolve() {
	err, givenUp := o.failure()
	if givenUp != nil {
		o.fail(givenUp) // who gives it up is about to; nobody is to see the one end without the other
	}
	if m, t := o.group.Meter, o.group.trace.Load(); m != nil || t != nil {
		o.account(m, t, err)
	}
	if ended := o.request.Ended; ended != nil {
		o.request.Ended = nil
		ended(End{Seq: o.Seq, Algorithm: o.shape.desc.Algorithm, Bytes: o.request.bytes, Err: err})
	}
	if o.work.finish(err, o.request.Batch) && o.lingers {
		<-o.work.slot
	}
}

// failure is the operation's result: nil, or the cause with the operation's name on it. Beside it is
// the cause of an operation that was given up and has come to its end before the group.
func (o *Operation) failure() (err, givenUp error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	cause := o.cause
	if cause == nil {
		cause, givenUp = o.givenUp, o.givenUp
	}
	if cause == nil {
		o.settled = true
		return nil, nil
	}
	return o.group.operationError(o.Seq, o.shape.desc, cause), givenUp
}

// abort ends the operation: nothing new is started, and memory is taken back from whoever holds
// it. The group and seq fence a pooled operation's next life.
func (o *Operation) abort(g *Group, seq uint64, cause error) {
	o.mu.Lock()
	if o.cause != nil || o.retired || o.group != g || o.Seq != seq {
		o.mu.Unlock()
		return
	}
	o.cause = cause
	o.holds++
	defer o.leave()
	if o.phase != phaseRunning { // a numbered one is ended by Launch
		o.retired = o.phase == phaseHeard
		o.discard()
		return
	}
	out := o.stillOutgoing(nil)
	resolved := o.abortParts() || o.abortShown()
	trees := o.abortTrees()
	o.mu.Unlock()
	announce(out, -1)
	if resolved {
		o.resolve()
	}
	g.engine.Revoke(o)
	revokeTrees(trees)
}

// forget gives everything back. Nothing refers to the operation but its owner.
func (o *Operation) forget() {
	for i := range o.parts {
		o.parts[i].free()
	}
	if o.shown.active {
		o.group.boards.exit(o)
	}
	o.group.remove(o)
	if o.work != nil {
		o.request.Batch.Free()
		if !o.lingers {
			<-o.work.slot
		}
	}
	if o.kept != nil {
		o.group.engine.Pool.Put(o.kept)
	}
	if o.owner == nil {
		o.group.engine.Recycle(o)
		return
	}
	o.owner.Ended(o)
}
