package actors

import (
	"fmt"
	"sync"
	"time"

	"github.com/polyrail/polyrail/collective/fault"
	"github.com/polyrail/polyrail/collective/op"
	"github.com/polyrail/polyrail/collective/reduce"
	"github.com/polyrail/polyrail/collective/task"
	"github.com/polyrail/polyrail/messages/wire"
	"github.com/polyrail/polyrail/railactors"
	"github.com/polyrail/polyrail/railactors/memory"
)

// operation is the data path of one collective: its task core, the memory that the task
// speaks of, and the landing of frames. Its lifecycle is operationActor's.
//
// Events come from many goroutines: readers (a frame is in, an acknowledgement came),
// the caller (start, early frames). Each takes mu for the core's Step only and carries
// out the answer itself, so a kernel runs where its last operand came from.
//
// An operation exists from the first thing that is heard of its seq, here or from a
// peer, until nothing refers to its memory any more; then it is pooled.
type operation struct {
	group *group
	seq   uint64

	mu      sync.Mutex
	phase   phase
	cause   error // why it was aborted
	retired bool  // the task is done with everything
	holds   int   // goroutines and early frames that still refer to the operation
	early   []*earlyFrame
	grants  []earlyGrant
	wants   []*railactors.Peer
	task    task.Task

	// Written by the coordinator and the caller before phase running, constant after.
	request *Request
	work    *Work
	shape   shape
	memory  [3][]byte // by task.Memory
	scratch *memory.Arena
	combine op.Combine
	actor   *operationActor

	// The rails' clocks, under mu; finish is empty where nobody wants to know.
	begun     time.Time
	finish    []time.Time // by planned rail: its last arrival
	disturbed uint64      // group.disturbed at the launch
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
	eager  bool
	config task.Config
}

// reuse makes a pooled operation fit for a new seq.
func (o *operation) reuse(g *group, seq uint64) {
	o.group, o.seq = g, seq
	o.phase, o.cause, o.retired, o.holds = phaseHeard, nil, false, 0
	o.early, o.grants, o.wants = o.early[:0], o.grants[:0], o.wants[:0]
}

// release drops what a pooled operation must not keep alive.
func (o *operation) release() {
	o.group, o.request, o.work, o.combine, o.actor = nil, nil, nil, nil, nil
	o.shape = shape{}
	o.memory = [3][]byte{}
	clear(o.early[:cap(o.early)])
	clear(o.wants[:cap(o.wants)])
}

// launch starts a numbered operation on its caller's goroutine, which then
// does the work that early frames bring.
func (o *operation) launch() {
	o.mu.Lock()
	o.holds++
	defer o.leave()
	o.phase = phaseRunning
	if o.cause == nil {
		o.cause = o.prepare()
	}
	if o.cause != nil { // broken since it was numbered, or no memory: nothing has started
		cause := o.cause
		o.retired = true
		o.discard()
		o.fail(cause)
		o.work.finish(o.failure())
		return
	}
	var space [8]task.Action
	actions, err := o.task.Step(task.Event{Kind: task.Start}, space[:0])
	early, grants, wants := o.drain()
	o.mu.Unlock()
	if err != nil {
		o.fail(err)
	}
	o.carry(actions)
	for _, p := range wants {
		p.GrantEager(o.group.id, o.seq)
	}
	for _, g := range grants {
		o.mu.Lock()
		o.granted(g.from, &g.header)
	}
	for _, e := range early {
		e.deliver()
	}
}

// prepare readies the task and its memory. Under mu.
func (o *operation) prepare() error {
	o.task.Reset(o.shape.config)
	if n := o.task.ScratchBytes(); n > 0 {
		scratch, err := o.scratch.Alloc(n)
		if err != nil {
			return err
		}
		o.memory[task.Scratch] = scratch
	}
	o.startClocks()
	return nil
}

// leave ends a hold. The last one of an operation that is done with everything forgets it.
func (o *operation) leave() {
	o.mu.Lock()
	o.holds--
	over := o.holds == 0 && o.retired
	o.mu.Unlock()
	if over {
		o.forget()
	}
}

// land answers a reader. It comes with mu locked, and unlocks it.
func (o *operation) land(rank op.Rank, from *railactors.Peer, h *wire.Header) (railactors.Landing, error) {
	if o.phase != phaseRunning {
		defer o.mu.Unlock()
		return o.landEarly(rank, from, h)
	}
	ref, loc, err := o.place(rank, h)
	if err == nil { // the task counts the landing, and with that keeps the operation
		defer o.mu.Unlock()
		return railactors.Landing{Dst: o.at(loc), Receiver: o, Tag: tag(ref, int(h.Rail))}, nil
	}
	o.holds++
	defer o.leave()
	o.mu.Unlock()
	o.refuse(rank, h, err)
	return railactors.Landing{}, nil
}

// place asks the task where a frame lands, after comparing what shapes the operation. Under mu.
func (o *operation) place(rank op.Rank, h *wire.Header) (task.Ref, task.Loc, error) {
	if err := o.compare(rank, h); err != nil {
		return 0, task.Loc{}, err
	}
	return o.task.Place(rank, int(h.Rail), int(h.Round), int(h.Count), int(h.Owner), int(h.Step), int(h.Length))
}

// compare reports what the sender of a frame or a grant does not share with this rank.
func (o *operation) compare(rank op.Rank, h *wire.Header) error {
	if h.Digest == o.shape.digest && h.Table == o.shape.table {
		return nil
	}
	e := &fault.MismatchError{Rank: rank, Node: o.group.nodes[rank],
		Mine: o.shape.desc.String(), Theirs: h.Desc.String()}
	switch {
	case h.Table != o.shape.table:
		e.Explanation = fmt.Sprintf("table version %d here, %d there", o.shape.table, h.Table)
	case h.Desc == o.shape.desc && o.shape.desc.Code == op.CodeUser:
		e.Explanation = fmt.Sprintf("here it is %v; the names of the operator or of the operation differ", o.request.Op)
	case h.Desc == o.shape.desc:
		e.Explanation = "the operation's name or the limits in the configuration (eager bytes, Bcube base) differ"
	}
	return e
}

// refuse ends the operation for a frame that does not fit: a mismatch of the callers, or a
// violation of the protocol. After an abort it is only late.
func (o *operation) refuse(rank op.Rank, h *wire.Header, err error) {
	if err == task.ErrAborted {
		o.group.sunk.Add(1)
		return
	}
	if _, ok := err.(*fault.MismatchError); !ok {
		err = fmt.Errorf("%w: rank %d (node %q), step %d, rounds %d+%d, owner %d: %w", fault.ErrInternal,
			rank, o.group.nodes[rank], h.Step, h.Round, h.Count, h.Owner, err)
	}
	o.fail(err)
}

// at is the memory of a location; never nil, so that a landing of no bytes is not taken for a sink.
func (o *operation) at(l task.Loc) []byte {
	if l.Len == 0 {
		return nothing[:0]
	}
	return o.memory[l.Mem][l.Off : l.Off+l.Len]
}

var nothing [1]byte

// A landing's tag is the task's reference and the planned rail, for its clock.
func tag(r task.Ref, rail int) uint64 { return uint64(uint32(r)) | uint64(rail)<<32 }

func untag(t uint64) (task.Ref, int) { return task.Ref(uint32(t)), int(t >> 32) }

// Arrived implements railactors.Receiver.
func (o *operation) Arrived(t uint64) {
	ref, rail := untag(t)
	o.step(task.Event{Kind: task.Arrived, Ref: ref}, rail)
}

// Torn implements railactors.Receiver.
func (o *operation) Torn(t uint64, _ error) {
	ref, rail := untag(t)
	o.step(task.Event{Kind: task.Torn, Ref: ref}, rail)
}

// Released implements railactors.FrameOwner, for borrowed frames.
func (o *operation) Released(f *railactors.Frame, err error) {
	ref, rail := untag(f.Tag)
	recycle(f)
	if err != nil && err != railactors.ErrRevoked {
		o.fail(err)
	}
	o.step(task.Event{Kind: task.Released, Ref: ref}, rail)
}

// granted: a peer has started the operation and has room for spans. It comes with mu locked,
// and unlocks it.
func (o *operation) granted(rank op.Rank, h *wire.Header) {
	if o.phase != phaseRunning {
		defer o.mu.Unlock()
		if len(o.grants) < maxEarly*o.group.size {
			o.grants = append(o.grants, earlyGrant{rank, *h})
		}
		return
	}
	o.holds++
	defer o.leave()
	err := o.compare(rank, h)
	o.mu.Unlock()
	if err != nil {
		o.fail(err)
		return
	}
	o.step(task.Event{Kind: task.Granted, From: rank, Rail: int(h.Rail), Limit: int(h.Count)}, int(h.Rail))
}

// wanted: a peer has eager frames and no credit. It reports whether they may come. It comes with mu
// locked, and unlocks it.
func (o *operation) wanted(from *railactors.Peer) bool {
	defer o.mu.Unlock()
	if o.phase == phaseRunning {
		return true
	}
	if len(o.wants) < maxEarly {
		o.wants = append(o.wants, from)
	}
	return false
}

// step feeds the core one event and carries out what it answers.
func (o *operation) step(e task.Event, rail int) {
	var space [8]task.Action
	o.mu.Lock()
	o.holds++
	defer o.leave()
	if rail < len(o.finish) {
		o.clock(e.Kind, rail)
	}
	actions, err := o.task.Step(e, space[:0])
	o.mu.Unlock()
	if err != nil {
		o.fail(fmt.Errorf("%w: %w", fault.ErrInternal, err))
		return
	}
	o.carry(actions)
}

// carry does what the core decided: what others wait for first, then our own arithmetic, then the end.
func (o *operation) carry(actions []task.Action) {
	for i := range actions {
		switch a := &actions[i]; a.Kind {
		case task.Send:
			o.send(a)
		case task.Grant:
			o.grant(a)
		}
	}
	for i := range actions {
		switch a := &actions[i]; a.Kind {
		case task.Reduce:
			o.reduce(a)
		case task.Copy:
			copy(o.at(a.Dst), o.at(a.Args[0]))
			o.finishFinal(a)
			o.step(task.Event{Kind: task.Reduced, Ref: a.Ref}, noRail)
		}
	}
	for i := range actions {
		switch actions[i].Kind {
		case task.Resolve:
			o.work.finish(o.failure())
		case task.Retire:
			o.mu.Lock()
			o.retired = true // leave does the rest
			o.mu.Unlock()
		}
	}
}

// noRail marks an event that belongs to no rail's clock.
const noRail = 1 << 30

// reduce runs a kernel and tells the core.
func (o *operation) reduce(a *task.Action) {
	if err := o.fold(o.at(a.Dst), a.Args); err != nil {
		o.fail(fmt.Errorf("operator %v: %w", o.request.Op, err))
	}
	o.finishFinal(a)
	o.step(task.Event{Kind: task.Reduced, Ref: a.Ref}, noRail)
}

// fold computes ((a₀∘a₁)∘a₂)… into dst, which may be a₀ or a₁.
func (o *operation) fold(dst []byte, args []task.Loc) (err error) {
	if len(dst) == 0 { // a barrier has no operator
		return nil
	}
	if o.request.Op.Code() == op.CodeUser {
		defer func() { // a caller's function: its panic ends the operation, not the process
			if r := recover(); r != nil {
				err = fmt.Errorf("panic: %v", r)
			}
		}()
	}
	left := o.at(args[0])
	for _, right := range args[1:] {
		if err := o.combine(dst, left, o.at(right)); err != nil {
			return err
		}
		left = dst
	}
	return nil
}

// finishFinal divides an average, once, where it becomes final.
func (o *operation) finishFinal(a *task.Action) {
	if a.Last && o.shape.desc.Code == op.CodeAvg {
		reduce.Divide(o.shape.desc.DType, o.at(a.Dst), o.group.size)
	}
}

// fail breaks the communicator with this operation's error.
func (o *operation) fail(cause error) {
	o.group.node.breakGroup(o.group, cause, o.seq, true)
}

// failure is the operation's result: nil, or the cause with the operation's name on it.
func (o *operation) failure() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.cause == nil {
		return nil
	}
	return o.group.operationError(o.seq, o.shape.desc, o.cause)
}

// abort ends the operation: nothing new is started, and memory is taken back from whoever holds
// it. The group and seq fence a pooled operation's next life.
func (o *operation) abort(g *group, seq uint64, cause error) {
	o.mu.Lock()
	if o.cause != nil || o.retired || o.group != g || o.seq != seq {
		o.mu.Unlock()
		return
	}
	o.cause = cause
	o.holds++
	defer o.leave()
	if o.phase != phaseRunning { // a numbered one is ended by launch
		o.retired = o.phase == phaseHeard
		o.discard()
		return
	}
	var space [8]task.Action
	actions, _ := o.task.Step(task.Event{Kind: task.Abort}, space[:0])
	o.mu.Unlock()
	o.carry(actions)
	g.node.fabric.Revoke(o)
}

// forget gives everything back. Nothing refers to the operation but its actor.
func (o *operation) forget() {
	o.scratch.Free()
	o.group.remove(o)
	if o.work != nil {
		<-o.work.slot
	}
	if o.actor == nil {
		o.group.node.recycle(o)
		return
	}
	o.group.node.tell(o.actor.pid, &operationEnded{o, o.actor})
}
