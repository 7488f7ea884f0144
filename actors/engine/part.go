package engine

import (
	"errors"
	"fmt"
	"time"

	"github.com/polyrail/polyrail/collective/fault"
	"github.com/polyrail/polyrail/collective/op"
	"github.com/polyrail/polyrail/collective/peer"
	"github.com/polyrail/polyrail/collective/reduce"
	"github.com/polyrail/polyrail/collective/task"
	"github.com/polyrail/polyrail/railactors/memory"
)

// part is what one lane carries of an operation: a task, and its scratch.
type part struct {
	operation *Operation
	lane      int
	rail      int        // that is to carry its frames
	carriers  peer.Rails // that may carry a frame instead; none: frames keep to rail
	announced bool       // peers know what is to come
	active    bool
	task      task.Task
	memory    *[3][]byte // by task.Memory; scratch is apart
	arena     *memory.Arena
	scratch   []byte
	actions   []task.Action // of the start
}

// What a lane has scratch for at a time: so many bytes of each block, and at least so many spans.
const (
	windowBytes = 1 << 20
	minWindow   = 4
)

// startParts readies the parts and starts their tasks. Under mu.
func (o *Operation) startParts() error {
	lanes := o.shape.config.Plan.Lanes
	var carriers peer.Rails
	room := len(lanes)
	if len(o.trees) > 0 { // for the lanes of repairs: who runs a part keeps a pointer to it
		room *= 2
	}
	for len(o.parts) < room {
		o.parts = append(o.parts, part{})
	}
	for lane := range lanes {
		if lanes[lane].Rounds == 0 {
			continue
		}
		o.unresolved++
		o.unretired++
		if o.overTree(lane) {
			continue
		}
		p := &o.parts[lane]
		p.operation, p.lane, p.rail, p.active, p.memory = o, lane, lane, true, &o.memory
		carriers.Add(lane)
		c := o.shape.config
		c.Lane = lane
		p.prepare(c)
	}
	if o.request.External != nil {
		o.unresolved++
		o.unretired++
	}
	if o.group.engine.Config.PinFrames || carriers&(carriers-1) == 0 {
		carriers = 0
	}
	for i := range lanes {
		o.parts[i].carriers, o.parts[i].announced = carriers, carriers != 0 && !o.shape.eager
	}
	o.startClocks()
	o.outgoing = o.stillOutgoing(o.outgoing[:0])
	for i := range o.parts {
		if p := &o.parts[i]; p.active {
			var err error
			if p.actions, err = p.task.Step(task.Event{Kind: task.Start}, p.actions[:0]); err != nil {
				return err
			}
		}
	}
	return nil
}

// prepare readies the task and its memory. Scratch is no reason for an operation to fail: where the
// limit leaves less, the window is smaller. The least is one span, which is bounded by form
// (plan.ScratchBytes).
func (p *part) prepare(c task.Config) {
	c.Window = max(minWindow, windowBytes/max(1, c.Plan.SpanBytes(c.Lane)))
	p.task.Reset(c)
	if p.arena == nil {
		p.arena = memory.NewArena(p.operation.group.engine.Pool)
	}
	for {
		need := p.task.ScratchBytes()
		scratch, err := p.arena.Alloc(need)
		if err == nil {
			p.scratch = scratch
			return
		}
		if c.Eager || p.task.Window() == 1 {
			p.scratch = make([]byte, need)
			return
		}
		p.task.Narrow(p.task.Window() / 2)
	}
}

// free gives the scratch back.
func (p *part) free() {
	if p.active {
		p.arena.Free()
		p.scratch = nil
	}
}

// part is the part of a lane, whose number may come from a header. Under mu.
func (o *Operation) part(lane int) (*part, error) {
	if lane < 0 || lane >= len(o.parts) || !o.parts[lane].active {
		return nil, fmt.Errorf("lane %d carries nothing of the operation", lane)
	}
	return &o.parts[lane], nil
}

// at is the memory of a location; never nil, so that a landing of no bytes is not taken for a sink.
func (p *part) at(l task.Loc) []byte {
	if l.Len == 0 {
		return nothing[:0]
	}
	if l.Mem == task.Scratch {
		return p.scratch[l.Off : l.Off+l.Len]
	}
	return p.memory[l.Mem][l.Off : l.Off+l.Len]
}

var nothing [1]byte

// carryStart does what the tasks decided at the start, span by span over all lanes, so that none of
// them waits for the others' share.
func (o *Operation) carryStart() {
	longest := 0
	for i := range o.parts {
		longest = max(longest, len(o.parts[i].actions))
	}
	for at := range longest {
		for i := range o.parts {
			if p := &o.parts[i]; p.active && at < len(p.actions) {
				p.emit(&p.actions[at])
			}
		}
	}
	for i := range o.parts {
		if p := &o.parts[i]; p.active {
			p.compute(p.actions)
			clear(p.actions)
			p.actions = p.actions[:0]
		}
	}
}

// step feeds a lane's task one event and carries out what it answers.
func (o *Operation) step(lane int, e task.Event) { o.stepOn(lane, lane, e) }

// stepOn is step for an event that a rail brought.
func (o *Operation) stepOn(lane, rail int, e task.Event) {
	var space [8]task.Action
	o.mu.Lock()
	o.holds++
	defer o.leave()
	p := &o.parts[lane]
	if o.group.shared {
		rail = lane
	}
	if rail < len(o.rails) {
		o.clock(e.Kind, rail)
	}
	actions, err := p.task.Step(e, space[:0])
	o.mu.Unlock()
	if err != nil {
		o.fail(fmt.Errorf("%w: %w", fault.ErrInternal, err))
		return
	}
	p.carry(actions)
}

// carry does what the task decided: what others wait for first, then our own arithmetic, then the
// end.
func (p *part) carry(actions []task.Action) {
	for i := range actions {
		p.emit(&actions[i])
	}
	p.compute(actions)
}

// emit sends what an action has for other ranks.
func (p *part) emit(a *task.Action) {
	switch a.Kind {
	case task.Send:
		p.send(a)
	case task.Grant:
		p.grant(a)
	}
}

// compute runs kernels, and ends what has ended.
func (p *part) compute(actions []task.Action) {
	ends := false
	for i := range actions {
		switch a := &actions[i]; a.Kind {
		case task.Reduce:
			p.reduce(a)
		case task.Copy:
			p.copy(a)
		case task.Resolve, task.Retire:
			ends = true
		}
	}
	if !ends {
		return
	}
	o := p.operation
	o.mu.Lock()
	resolved := o.end(actions)
	o.mu.Unlock()
	if resolved {
		o.resolve()
	}
}

// ended: a part that no task drives is done with everything. Nothing is locked.
func (o *Operation) ended() { o.reached(task.Resolve, task.Retire) }

// reached: a part that no task drives has come so far. Nothing is locked.
func (o *Operation) reached(ends ...task.ActionKind) {
	var space [2]task.Action
	actions := space[:0]
	for _, k := range ends {
		actions = append(actions, task.Action{Kind: k})
	}
	o.mu.Lock()
	o.holds++
	resolved := o.end(actions)
	o.mu.Unlock()
	if resolved {
		o.resolve()
	}
	o.leave()
}

// end notes which parts have ended, and reports whether the operation has resolved with them. An
// operation that has retired is forgotten by whoever leaves it last. Under mu.
func (o *Operation) end(actions []task.Action) (resolved bool) {
	for i := range actions {
		switch actions[i].Kind {
		case task.Resolve:
			o.unresolved--
			resolved = o.unresolved == 0
		case task.Retire:
			o.unretired--
			o.retired = o.unretired == 0
		}
	}
	return resolved
}

// abortParts ends all parts, and reports whether the operation has resolved with that. Under mu.
func (o *Operation) abortParts() (resolved bool) {
	for i := range o.parts {
		p := &o.parts[i]
		if !p.active {
			continue
		}
		var space [2]task.Action
		actions, _ := p.task.Step(task.Event{Kind: task.Abort}, space[:0])
		resolved = o.end(actions) || resolved
	}
	return resolved
}

// reduce runs a kernel and tells the task.
func (p *part) reduce(a *task.Action) {
	o := p.operation
	t := o.group.trace.Load()
	var began time.Duration
	if t != nil {
		began = o.now(t)
	}
	if err := p.fold(p.at(a.Dst), a.Args); err != nil {
		o.fail(fmt.Errorf("operator %v: %w", o.request.Op, err))
	}
	p.reduced(a, t, began)
	o.step(p.lane, task.Event{Kind: task.Reduced, Ref: a.Ref})
}

// reduced is what follows a kernel that began then.
func (p *part) reduced(a *task.Action, t *Trace, began time.Duration) {
	if o := p.operation; t != nil {
		o.record(t, &TraceEvent{At: began, Took: max(0, o.now(t)-began), Kind: TraceReduce, Lane: p.lane, Rail: -1,
			Peer: -1, Bytes: a.Dst.Len})
	}
	p.finishFinal(a)
}

// copy puts values together, one after the other. A value may be where it belongs already.
func (p *part) copy(a *task.Action) {
	dst := p.at(a.Dst)
	for _, from := range a.Args {
		dst = dst[copy(dst, p.at(from)):]
	}
	p.finishFinal(a)
	p.operation.step(p.lane, task.Event{Kind: task.Reduced, Ref: a.Ref})
}

// fold computes ((a₀∘a₁)∘a₂)… into dst, which may be a₀ or a₁.
func (p *part) fold(dst []byte, args []task.Loc) error {
	if len(dst) == 0 { // a barrier has no operator
		return nil
	}
	o := p.operation
	left := p.at(args[0])
	for _, right := range args[1:] {
		if err := o.combine(dst, left, p.at(right)); err != nil {
			return err
		}
		left = dst
	}
	return nil
}

// apart calls a caller's function on a goroutine of its own. A panic and runtime.Goexit, as FailNow of
// a test calls it, end that one and the operation; else they would end the process, or a reader.
func apart(f op.Combine) op.Combine {
	return func(dst, a, b []byte) error {
		done := make(chan error, 1)
		go func() {
			err := errors.New("it ended its goroutine") // unless it returns, or panics
			defer func() {
				if r := recover(); r != nil {
					err = fmt.Errorf("panic: %v", r)
				}
				done <- err
			}()
			err = f(dst, a, b)
		}()
		return <-done
	}
}

// finishFinal divides an average, once, where it becomes final.
func (p *part) finishFinal(a *task.Action) {
	o := p.operation
	if a.Last && o.shape.desc.Code == op.CodeAvg {
		reduce.Divide(o.shape.desc.DType, p.at(a.Dst), o.group.Size)
	}
}
