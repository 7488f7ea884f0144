package sim

import (
	"github.com/polyrail/polyrail/collective/peer"
	"github.com/polyrail/polyrail/collective/plan"
	"github.com/polyrail/polyrail/collective/schedule"
	"github.com/polyrail/polyrail/collective/task"
)

// part is what one lane does of an operation: the task, and the memory that it directs.
type part struct {
	*operation
	lane  int
	task  *task.Task
	arena []float32

	jobs     []task.Action // kernels under way
	events   []task.Event  // to be stepped, in order
	stepping bool
	resolved bool
	retired  bool
}

func (s *Sim) newPart(o *operation, program *schedule.Program, lane int) *part {
	p := &part{operation: o, lane: lane, task: s.newTask()}
	config := task.Config{
		Program: program, Plan: o.plan, Lane: lane, InPlace: o.inPlace(), Eager: o.call.eager,
		Window: s.setup.windows[o.rank.id],
	}
	p.task.Reset(config)
	spans := len(o.plan.Lanes[lane].Spans)
	if !config.Eager {
		if spans > config.Window {
			s.stats.SpansPast++
		}
		if s.chance(s.setup.narrow) {
			config.Window = s.between(1, config.Window)
			p.task.Narrow(config.Window)
			s.stats.Narrowed++
		}
		spans = min(spans, config.Window)
	}
	s.checkArena(p, spans)
	p.arena = s.floats.get(p.task.ScratchBytes() / 4)
	return p
}

// checkArena: scratch is bounded by the window and the algorithm's form, however large the
// operation.
func (s *Sim) checkArena(p *part, spans int) {
	c, slot := p.call, 0
	lane := &p.plan.Lanes[p.lane]
	for block := range p.plan.Blocks {
		slot = max(slot, (p.plan.SlotBytes(lane, block)+63)&^63)
	}
	limit := spans * slot * s.cost(c).Slots
	if got := p.task.ScratchBytes(); got > limit {
		s.fail("rank %d seq %d lane %d, %v: scratch of %d bytes, the limit is %d", p.rank.id, p.seq,
			p.lane, c, got, limit)
	}
}

func (s *Sim) newTask() *task.Task {
	if kept := len(s.tasks); kept > 0 {
		t := s.tasks[kept-1]
		s.tasks = s.tasks[:kept-1]
		return t
	}
	return new(task.Task)
}

// at is the memory of a place.
func (p *part) at(l task.Loc) []float32 {
	var m []float32
	switch l.Mem {
	case task.Input:
		m = p.src
	case task.Scratch:
		m = p.arena
	case task.Final:
		m = p.dst
	}
	return m[l.Off/4 : (l.Off+l.Len)/4]
}

// step gives the task an event and carries out its actions, and so on with what comes of them.
func (s *Sim) step(p *part, e task.Event) {
	if p == nil || p.retired {
		s.fail("event %+v for a part that is over", e)
	}
	p.events = append(p.events, e)
	if p.stepping {
		return
	}
	p.stepping = true
	for i := 0; i < len(p.events); i++ {
		actions, err := p.task.Step(p.events[i], nil)
		s.failIf(err, "rank %d seq %d lane %d: event %+v", p.rank.id, p.seq, p.lane, p.events[i])
		for j := range actions {
			s.do(p, &actions[j])
		}
	}
	p.events = p.events[:0]
	p.stepping = false
	if p.retired {
		s.tasks = append(s.tasks, p.task)
		p.task = nil
	}
}

func (s *Sim) do(p *part, a *task.Action) {
	if p.retired {
		s.fail("rank %d seq %d lane %d: %+v after it has retired", p.rank.id, p.seq, p.lane, *a)
	}
	switch a.Kind {
	case task.Send:
		s.sendData(p, a)
	case task.Grant:
		s.sendGrant(p, a.To, a.Limit)
	case task.Reduce, task.Copy:
		s.startKernel(p, a)
	case task.Resolve:
		if p.resolved {
			s.fail("rank %d seq %d lane %d resolves twice", p.rank.id, p.seq, p.lane)
		}
		p.resolved = true
		s.partResolved(p.operation)
	case task.Retire:
		if !p.resolved {
			s.fail("rank %d seq %d lane %d retires before it resolves", p.rank.id, p.seq, p.lane)
		}
		p.retired = true
		s.floats.put(p.arena)
		s.partRetired(p.operation)
	}
}

// sendData lends the memory to a frame, or copies it where there is room.
func (s *Sim) sendData(p *part, a *task.Action) {
	if a.User && p.resolved {
		s.fail("rank %d seq %d lane %d: sends user memory after it has resolved", p.rank.id, p.seq, p.lane)
	}
	if a.User != (a.Loc.Mem != task.Scratch) || a.Loc.Len > plan.MaxSpanBytes {
		s.fail("rank %d seq %d lane %d: sends %+v", p.rank.id, p.seq, p.lane, *a)
	}
	span := &p.plan.Lanes[p.lane].Spans[a.Span]
	f := s.newFrame(dataFrame, p.rank, s.ranks[a.To])
	f.seq, f.version, f.lane, f.first, f.count = p.seq, p.call.table.Version, p.lane, span.First, span.Count
	f.rails = p.carriers()
	f.mark, f.step, f.length, f.ackNow, f.eager = a.Mark, a.Step, a.Loc.Len, a.AckNow, p.call.eager
	memory := p.at(a.Loc)
	if f.length <= s.setup.copyBytes && p.rank.pooled+f.length <= s.setup.poolBytes {
		p.rank.pooled += f.length
		f.memory = s.floats.get(len(memory))
		copy(f.memory, memory)
		s.send(f)
		s.step(p, task.Event{Kind: task.Released, Ref: a.Ref})
		return
	}
	s.stats.Borrowed++
	f.memory, f.lender, f.ref = memory, p, a.Ref
	f.shadow = s.floats.get(len(memory))
	copy(f.shadow, memory)
	s.send(f)
}

// carriers are the rails that may carry a frame: those that the plan has something for.
func (p *part) carriers() (rails peer.Rails) {
	for lane := range p.plan.Lanes {
		if p.plan.Lanes[lane].Rounds > 0 {
			rails.Add(lane)
		}
	}
	return rails
}

// arrived: a frame is whole in its place.
func (s *Sim) arrived(p *part, ref task.Ref, place task.Loc, payload []float32) {
	copy(p.at(place), payload)
	s.step(p, task.Event{Kind: task.Arrived, Ref: ref})
}

// startKernel runs a kernel on the goroutine that delivered the event: at once, or it takes its
// time.
func (s *Sim) startKernel(p *part, a *task.Action) {
	p.jobs = append(p.jobs, *a)
	job := len(p.jobs) - 1
	if s.chance(s.setup.slowKernels) {
		s.schedule(event{kind: kernelDone, at: s.now + s.some(s.setup.kernelTime), part: p, job: job})
		return
	}
	s.kernel(p, job)
}

// kernel folds the arguments from left to right, or puts one after the other. The destination of a
// fold may be one of the first two.
func (s *Sim) kernel(p *part, job int) {
	a := &p.jobs[job]
	for _, l := range append([]task.Loc{a.Dst}, a.Args...) {
		if p.resolved && l.Mem != task.Scratch {
			s.fail("rank %d seq %d lane %d: %+v uses user memory after it has resolved", p.rank.id,
				p.seq, p.lane, *a)
		}
	}
	dst := p.at(a.Dst)
	if a.Kind == task.Copy {
		rest := dst
		for _, arg := range a.Args {
			rest = rest[copy(rest, p.at(arg)):]
		}
		if len(rest) > 0 {
			s.fail("rank %d seq %d lane %d: %+v lacks %d elements", p.rank.id, p.seq, p.lane, *a, len(rest))
		}
	} else {
		p.call.combine(dst, p.at(a.Args[0]), p.at(a.Args[1]))
		for _, arg := range a.Args[2:] {
			p.call.combine(dst, dst, p.at(arg))
		}
	}
	if a.Last {
		for i := range dst {
			dst[i] *= finalFactor
		}
	}
	s.step(p, task.Event{Kind: task.Reduced, Ref: a.Ref})
}
