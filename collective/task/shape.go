package task

import (
	"fmt"

	"github.com/polyrail/polyrail/collective/schedule"
)

// shape is what follows from the program alone, kept from one operation to the next.
type shape struct {
	of      *schedule.Program
	inPlace bool

	need0       []uint16 // by instruction: what it waits for at the start
	argsAt      []int    // by instruction: its first operand in a span's part of Task.args
	argsPerSpan int
	upTo        []counts // by number of owners: of the instructions of the first so many
	sends0      []counts // by link: of the Sends of one span
}

// counts are numbers of instructions: all of them, and those that touch a memory.
type counts struct{ all, user, scratch int }

func (c *counts) add(in *schedule.Instr, by int) {
	c.all += by
	if in.User {
		c.user += by
	}
	if in.Scratch {
		c.scratch += by
	}
}

func (s *shape) set(p *schedule.Program, inPlace bool) {
	if s.of == p && s.inPlace == inPlace {
		return
	}
	s.of, s.inPlace, s.argsPerSpan = p, inPlace, 0
	s.need0 = resize(s.need0, len(p.Code))
	s.argsAt = resize(s.argsAt, len(p.Code))
	s.upTo = resize(s.upTo, p.Owners+1)
	s.sends0 = resize(s.sends0, len(p.To))
	var c counts
	for i := range p.Code {
		in := &p.Code[i]
		s.argsAt[i] = s.argsPerSpan
		c.add(in, 1)
		s.upTo[in.Owner+1] = c
		for _, u := range in.Uses {
			if in.Kind != schedule.Send || inPlace {
				s.need0[p.Base[in.Owner]+int(u)]++
			}
		}
		switch {
		case in.Kind == schedule.Reduce, in.Kind == schedule.Copy:
			s.argsPerSpan += len(in.Args)
		case in.Kind == schedule.Send:
			s.sends0[in.Link].add(in, 1)
		}
	}
}

// Reset makes the task ready for another operation. It reuses memory: for a shape that
// it had before it allocates nothing. It panics when the plan isn't the program's or the
// window has no span.
func (t *Task) Reset(c Config) {
	if c.Plan.Owners != c.Program.Owners || c.Window < 1 && !c.Eager {
		panic(fmt.Sprintf("task: a plan of %d owners for a program of %d, window %d", c.Plan.Owners, c.Program.Owners, c.Window))
	}
	t.Config = c
	t.started, t.aborted, t.resolved, t.retired = false, false, false, false
	t.left, t.userLeft, t.busy, t.userBusy, t.kernels = 0, 0, 0, 0, 0
	t.shape.set(c.Program, c.InPlace)
	spans, rails, links := len(c.Plan.Spans), len(c.Plan.PerRail), len(c.Program.To)

	t.rails = resize(t.rails, rails)
	t.state = resize(t.state, spans*len(c.Program.Code))
	t.next = grow(t.next, spans*len(c.Program.Code))
	t.need = grow(t.need, spans*len(c.Program.Code))
	t.args = grow(t.args, spans*t.argsPerSpan)
	t.parked = resize(t.parked, links*spans)
	t.limits = resize(t.limits, links*rails)
	t.sends = resize(t.sends, links*rails)
	t.scratch = resize(t.scratch, spans)
	for span := range spans {
		copy(t.need[span*len(t.need0):], t.need0)
		n := t.upTo[c.Plan.OwnersIn(span)]
		t.left += n.all
		t.userLeft += n.user
		t.scratch[span] = n.scratch
		t.countSends(span)
	}

	t.slotBytes = (c.Plan.SpanBytes + slotAlignment - 1) &^ (slotAlignment - 1)
	t.scratchBytes = 0
	for r := range t.rails {
		t.rails[r].window = c.Plan.PerRail[r].Len()
		if !c.Eager {
			t.rails[r].window = min(c.Window, t.rails[r].window)
		}
		t.rails[r].arena = t.scratchBytes
		t.scratchBytes += t.rails[r].window * c.Program.Slots * t.slotBytes
	}
}

// countSends counts a span's Sends, so that the last ones to each peer on each rail are
// known when they go.
func (t *Task) countSends(span int) {
	rail, owners := t.Plan.Spans[span].Rail, t.Plan.OwnersIn(span)
	if owners == t.Program.Owners {
		for link, n := range t.sends0 {
			left := &t.sends[link*len(t.rails)+rail]
			left.all += n.all
			left.user += n.user
		}
		return
	}
	for i := range t.Program.Code[:t.Program.Base[owners]] {
		if in := &t.Program.Code[i]; in.Kind == schedule.Send {
			t.sends[in.Link*len(t.rails)+rail].add(in, 1)
		}
	}
}

const slotAlignment = 64 // bytes; a cache line, and a multiple of every element size

// ScratchBytes is the size of the arena that the operation needs from Start to Retire. It
// should begin on a multiple of 64 bytes, as slots in it do.
func (t *Task) ScratchBytes() int { return t.scratchBytes }

// Remaining is how many bytes have yet to be received, and how many to be sent and acknowledged. It looks at
// every instruction: it is for rare occasions.
func (t *Task) Remaining() (in, out int64) {
	for span := range t.Plan.Spans {
		for at := range t.Program.Base[t.Plan.OwnersIn(span)] {
			instr := &t.Program.Code[at]
			if t.state[t.ref(span, at)] == done {
				continue
			}
			_, length := t.Plan.RangeOf(span, instr.Owner)
			switch instr.Kind {
			case schedule.Recv:
				in += int64(length)
			case schedule.Send:
				out += int64(length)
			}
		}
	}
	return in, out
}

// resize is s with n zero elements, in its own memory if that is large enough.
func resize[T any](s []T, n int) []T {
	s = grow(s, n)
	clear(s)
	return s
}

// grow is s with n elements of any value.
func grow[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n)
	}
	return s[:n]
}
