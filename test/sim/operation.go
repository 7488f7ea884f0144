package sim

import (
	"slices"

	"github.com/polyrail/polyrail/collective/plan"
	"github.com/polyrail/polyrail/collective/table"
	"github.com/polyrail/polyrail/collective/task"
)

// operation is one call on one rank: its parts, and the caller's memory.
type operation struct {
	rank *rank
	seq  uint64
	call *call
	plan *plan.Plan

	parts      []*part // by lane; nil: the lane has no rounds
	unresolved int     // parts
	unretired  int

	memory   []float32 // of an in-place call: what src and dst are parts of
	own      int       // where the smaller one begins in it
	src, dst []float32
	timing   timing
}

// begin starts an operation on the caller's goroutine, as a coordinator does.
func (s *Sim) begin(r *rank, seq uint64, t *table.Table) {
	c := s.calls[seq-1]
	s.settle(c, r.id, seq, t)
	o := &operation{rank: r, seq: seq, call: c}
	s.allocate(o)
	program := s.program(c, r.id, o.inPlace())
	o.plan = s.planOf(c, program.Blocks)
	if !o.plan.Full() {
		s.stats.Skipped++
	}
	r.open = append(r.open, o)
	s.logf("begin   rank %d seq %d: %v, table %d, eager %v, in place %v", r.id, seq, c, t.Version,
		c.eager, o.inPlace())
	s.startClocks(o)
	o.parts = make([]*part, len(o.plan.Lanes))
	for lane := range o.plan.Lanes {
		if o.plan.Lanes[lane].Rounds > 0 {
			o.parts[lane] = s.newPart(o, program, lane)
			o.unresolved++
			o.unretired++
		}
	}
	if s.chance(50) {
		s.replayGrants(o)
	}
	for _, p := range o.parts {
		if p != nil {
			s.step(p, task.Event{Kind: task.Start})
		}
	}
	s.replayGrants(o)
	s.replay(o)
}

func (o *operation) inPlace() bool { return o.call.inPlace>>(o.rank.id%32)&1 == 1 }

// allocate makes the caller's memory. In place the smaller one of source and destination is a
// part of the other: the rank's own, where there is one for each rank.
func (s *Sim) allocate(o *operation) {
	c, r := o.call, o.rank.id
	source, destination := c.buffers(r, s.setup.ranks)
	source, destination = source/4, destination/4
	if destination != len(c.expected[r]) {
		s.fail("rank %d seq %d, %v: a destination of %d elements, the result has %d", r, o.seq, c,
			destination, len(c.expected[r]))
	}
	if !o.inPlace() {
		o.src, o.dst = s.floats.get(source), s.floats.get(destination)
		copy(o.src, c.inputs[r])
		return
	}
	if len(c.parts) > 1 && source != destination && min(source, destination) > 0 {
		o.own = c.parts[:r].Total() / 4
	}
	o.memory = s.floats.get(max(source, destination))
	o.src, o.dst = o.memory[:source], o.memory[:destination]
	if source < destination {
		o.src = o.memory[o.own : o.own+source]
	} else {
		o.dst = o.memory[o.own : o.own+destination]
	}
	copy(o.src, c.inputs[r])
}

// partResolved: a lane doesn't touch the caller's memory any more. When none does, the result is
// checked. From here on the memory is the caller's again, who overwrites it.
func (s *Sim) partResolved(o *operation) {
	if o.unresolved--; o.unresolved > 0 {
		return
	}
	s.logf("resolve rank %d seq %d", o.rank.id, o.seq)
	if !same(o.dst, o.call.expected[o.rank.id]) {
		s.wrong(o)
	}
	s.checkSource(o)
	poison(o.src)
	poison(o.dst)
	o.rank.unresolved--
	if o.rank.asleep {
		s.wake(o.rank)
	}
}

func (s *Sim) wrong(o *operation) {
	for i, want := range o.call.expected[o.rank.id] {
		if got := o.dst[i]; got != want || !same(o.dst[i:i+1], o.call.expected[o.rank.id][i:i+1]) {
			s.fail("rank %d seq %d, %v: element %d is %x, want %x", o.rank.id, o.seq, o.call, i, got, want)
		}
	}
}

// checkSource: no source is written, but for what of it is destination.
func (s *Sim) checkSource(o *operation) {
	input := o.call.inputs[o.rank.id]
	if o.inPlace() && len(o.dst) >= len(o.src) {
		return
	}
	copied := s.floats.get(len(o.src))
	copy(copied, o.src)
	if o.inPlace() {
		copy(copied[o.own:o.own+len(o.dst)], input[o.own:])
	}
	if !same(copied, input) {
		s.fail("rank %d seq %d, %v: the source was written", o.rank.id, o.seq, o.call)
	}
	s.floats.put(copied)
}

// partRetired checks, when all parts are over, that nothing was written after the operation
// resolved.
func (s *Sim) partRetired(o *operation) {
	if o.unretired--; o.unretired > 0 {
		return
	}
	s.logf("retire  rank %d seq %d", o.rank.id, o.seq)
	if !poisoned(o.src) || !poisoned(o.dst) {
		s.fail("rank %d seq %d, %v: user memory was written after it resolved", o.rank.id, o.seq, o.call)
	}
	s.timed(o)
	o.rank.open = slices.DeleteFunc(o.rank.open, func(other *operation) bool { return other == o })
	if o.inPlace() {
		s.floats.put(o.memory)
		return
	}
	s.floats.put(o.src)
	s.floats.put(o.dst)
}
