package sim

import (
	"bytes"
	"hash/maphash"
	"slices"

	"github.com/polyrail/polyrail/collective/op"
	"github.com/polyrail/polyrail/collective/table"
	"github.com/polyrail/polyrail/collective/task"
)

// operation is one call on one rank: the task, and the memory that it directs.
type operation struct {
	rank *rank
	seq  uint64
	call *call

	task     *task.Task
	src, dst []float32
	arena    []float32
	srcHash  uint64 // out of place: of what must not change

	timing   timing
	jobs     []task.Action // kernels under way
	events   []task.Event  // to be stepped, in order
	stepping bool
	resolved bool
	retired  bool
}

// begin starts an operation on the caller's goroutine, as a coordinator does.
func (s *Sim) begin(r *rank, seq uint64, t *table.Table) {
	c := s.calls[seq-1]
	s.settle(c, r.id, seq, t)
	o := &operation{rank: r, seq: seq, call: c, src: c.inputs[r.id], task: s.newTask()}
	o.dst = o.src
	if !o.inPlace() {
		o.dst = s.floats.get(c.bytes / 4)
		o.srcHash = hash(o.src)
	}
	config := task.Config{
		Program: s.program(c.algorithm, r.id), Plan: c.plan,
		InPlace: o.inPlace(), Eager: c.eager, Window: s.setup.windows[r.id],
	}
	o.task.Reset(config)
	s.checkArena(o, config)
	o.arena = s.floats.get(o.task.ScratchBytes() / 4)
	r.open = append(r.open, o)
	s.logf("begin   rank %d seq %d: %v of %d bytes, table %d, eager %v, in place %v, %d spans",
		r.id, seq, c.algorithm, c.bytes, t.Version, c.eager, o.inPlace(), len(c.plan.Spans))
	s.startClocks(o)
	if s.chance(50) {
		s.replayGrants(o)
	}
	s.step(o, task.Event{Kind: task.Start})
	s.replayGrants(o)
	s.replay(o)
}

func (o *operation) inPlace() bool { return o.call.inPlace>>o.rank.id&1 == 1 }

// checkArena: scratch is bounded by the window, however large the operation.
func (s *Sim) checkArena(o *operation, c task.Config) {
	slot := (c.Plan.SpanBytes + 63) &^ 63
	spans := len(c.Plan.Spans)
	if !c.Eager {
		spans = 0
		past := false
		for _, rail := range c.Plan.PerRail {
			spans += min(c.Window, rail.Len())
			past = past || rail.Len() > c.Window
		}
		if past {
			s.stats.SpansPast++
		}
	}
	if got, limit := o.task.ScratchBytes(), max(spans, 1)*c.Program.Slots*slot; got > limit {
		s.fail("rank %d seq %d: scratch of %d bytes, the limit is %d", o.rank.id, o.seq, got, limit)
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
func (o *operation) at(l task.Loc) []float32 {
	var m []float32
	switch l.Mem {
	case task.Input:
		m = o.src
	case task.Scratch:
		m = o.arena
	case task.Final:
		m = o.dst
	}
	return m[l.Off/4 : (l.Off+l.Len)/4]
}

// step gives the task an event and carries out its actions, and so on with what comes of them.
func (s *Sim) step(o *operation, e task.Event) {
	if o == nil || o.retired {
		s.fail("event %+v for an operation that is over", e)
	}
	o.events = append(o.events, e)
	if o.stepping {
		return
	}
	o.stepping = true
	for i := 0; i < len(o.events); i++ {
		actions, err := o.task.Step(o.events[i], nil)
		s.failIf(err, "rank %d seq %d: event %+v", o.rank.id, o.seq, o.events[i])
		for j := range actions {
			s.do(o, &actions[j])
		}
	}
	o.events = o.events[:0]
	o.stepping = false
	if o.retired {
		s.tasks = append(s.tasks, o.task)
		o.task = nil
	}
}

func (s *Sim) do(o *operation, a *task.Action) {
	if o.retired {
		s.fail("rank %d seq %d: %+v after it has retired", o.rank.id, o.seq, *a)
	}
	switch a.Kind {
	case task.Send:
		s.sendData(o, a)
	case task.Grant:
		s.sendGrant(o, a.To, a.Rail, a.Limit)
	case task.Reduce, task.Copy:
		s.startKernel(o, a)
	case task.Resolve:
		s.resolve(o)
	case task.Retire:
		s.retire(o)
	}
}

// sendData lends the memory to a frame, or copies it where there is room.
func (s *Sim) sendData(o *operation, a *task.Action) {
	if a.User && o.resolved {
		s.fail("rank %d seq %d: sends user memory after it has resolved", o.rank.id, o.seq)
	}
	span := &o.call.plan.Spans[a.Span]
	f := s.newFrame(dataFrame, o.rank, s.ranks[a.To])
	f.seq, f.version, f.rail, f.first, f.count = o.seq, o.call.table.Version, span.Rail, span.First, span.Count
	f.owner, f.step, f.length, f.ackNow, f.eager = a.Owner, a.Step, a.Loc.Len, a.AckNow, o.call.eager
	if a.Rail != span.Rail {
		s.fail("rank %d seq %d: span %d is sent on rail %d, planned is %d", o.rank.id, o.seq, a.Span, a.Rail, span.Rail)
	}
	memory := o.at(a.Loc)
	if f.length <= s.setup.copyBytes && o.rank.pooled+f.length <= s.setup.poolBytes {
		o.rank.pooled += f.length
		f.memory = s.floats.get(len(memory))
		copy(f.memory, memory)
		s.send(f)
		s.step(o, task.Event{Kind: task.Released, Ref: a.Ref})
		return
	}
	s.stats.Borrowed++
	f.memory, f.lender, f.ref = memory, o, a.Ref
	f.shadow = s.floats.get(len(memory))
	copy(f.shadow, memory)
	s.send(f)
}

// arrived: a frame is whole in its place.
func (s *Sim) arrived(o *operation, ref task.Ref, place task.Loc, payload []float32) {
	copy(o.at(place), payload)
	s.step(o, task.Event{Kind: task.Arrived, Ref: ref})
}

// startKernel runs a kernel on the goroutine that delivered the event: at once, or it takes its time.
func (s *Sim) startKernel(o *operation, a *task.Action) {
	o.jobs = append(o.jobs, *a)
	job := len(o.jobs) - 1
	if s.chance(s.setup.slowKernels) {
		s.schedule(event{kind: kernelDone, at: s.now + s.some(s.setup.kernelTime), op: o, job: job})
		return
	}
	s.kernel(o, job)
}

// kernel folds the arguments from left to right. The destination may be one of the first two.
func (s *Sim) kernel(o *operation, job int) {
	a := &o.jobs[job]
	dst, first := o.at(a.Dst), o.at(a.Args[0])
	if a.Kind == task.Copy {
		copy(dst, first)
	} else {
		o.call.combine(dst, first, o.at(a.Args[1]))
		for _, arg := range a.Args[2:] {
			o.call.combine(dst, dst, o.at(arg))
		}
	}
	if a.Last {
		for i := range dst {
			dst[i] *= finalFactor
		}
	}
	s.step(o, task.Event{Kind: task.Reduced, Ref: a.Ref})
}

// resolve checks the result. From here on the memory is the caller's again, who overwrites it.
func (s *Sim) resolve(o *operation) {
	if o.resolved {
		s.fail("rank %d seq %d resolves twice", o.rank.id, o.seq)
	}
	o.resolved = true
	s.logf("resolve rank %d seq %d", o.rank.id, o.seq)
	if !same(o.dst, o.call.expected) {
		s.wrong(o)
	}
	if !o.inPlace() && hash(o.src) != o.srcHash {
		s.fail("rank %d seq %d: the source of an out-of-place call was written", o.rank.id, o.seq)
	}
	poison(o.src)
	poison(o.dst)
	o.rank.unresolved--
	if o.rank.asleep {
		s.wake(o.rank)
	}
}

func (s *Sim) wrong(o *operation) {
	for i, want := range o.call.expected {
		if got := o.dst[i]; got != want || !same(o.dst[i:i+1], o.call.expected[i:i+1]) {
			s.fail("rank %d seq %d, %v of %d bytes: element %d is %x, want %x",
				o.rank.id, o.seq, o.call.algorithm, o.call.bytes, i, got, want)
		}
	}
}

// retire checks that nothing was written after the operation resolved.
func (s *Sim) retire(o *operation) {
	if !o.resolved {
		s.fail("rank %d seq %d retires before it resolves", o.rank.id, o.seq)
	}
	s.logf("retire  rank %d seq %d", o.rank.id, o.seq)
	if !poisoned(o.src) || !poisoned(o.dst) {
		s.fail("rank %d seq %d: user memory was written after it resolved", o.rank.id, o.seq)
	}
	o.retired = true
	s.timed(o)
	o.rank.open = slices.DeleteFunc(o.rank.open, func(other *operation) bool { return other == o })
	s.floats.put(o.arena)
	if !o.inPlace() {
		s.floats.put(o.dst)
	}
}

// same reports whether two vectors are equal to the bit.
func same(a, b []float32) bool { return bytes.Equal(op.Bytes(a), op.Bytes(b)) }

var hashSeed = maphash.MakeSeed()

func hash(v []float32) uint64 { return maphash.Bytes(hashSeed, op.Bytes(v)) }
