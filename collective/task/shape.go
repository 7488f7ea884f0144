package task

import (
	"fmt"
	"slices"

	"github.com/polyrail/polyrail/collective/schedule"
)

// shape is what follows from the program alone, kept from one operation to the next.
type shape struct {
	of      *schedule.Program
	inPlace bool

	need0       []uint16 // by instruction: what it waits for at the start
	argsAt      []int    // by instruction: its first operand in a span's part of Task.args
	argsPerSpan int
	ready       []int    // instructions that can run at the start, ordered by step
	counts0     counts   // of a span in which all blocks take part
	sends0      []counts // by link: of the Sends of such a span
	recvs0      []int    // by link of Program.From: Recvs of such a span
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
	s.of, s.inPlace, s.argsPerSpan, s.counts0 = p, inPlace, 0, counts{}
	s.need0 = resize(s.need0, len(p.Code))
	s.argsAt = resize(s.argsAt, len(p.Code))
	s.sends0 = resize(s.sends0, len(p.To))
	s.recvs0 = resize(s.recvs0, len(p.From))
	for i := range p.Code {
		in := &p.Code[i]
		s.argsAt[i] = s.argsPerSpan
		s.counts0.add(in, 1)
		for _, u := range in.Uses {
			s.need0[u]++
		}
		if inPlace {
			for _, u := range in.Frees {
				s.need0[u]++
			}
		}
		switch in.Kind {
		case schedule.Reduce:
			s.argsPerSpan += len(in.Args)
		case schedule.Copy:
			s.argsPerSpan += len(in.Pieces)
		case schedule.Send:
			s.sends0[in.Link].add(in, 1)
		case schedule.Recv:
			s.recvs0[in.Link]++
		}
	}
	s.ready = s.ready[:0]
	for at, need := range s.need0 {
		if need == 0 && p.Code[at].Kind != schedule.Recv {
			s.ready = append(s.ready, at)
		}
	}
	slices.SortStableFunc(s.ready, func(x, y int) int { return p.Code[x].Step - p.Code[y].Step })
}

// Reset makes the task ready for another part of an operation. It reuses memory: for a shape
// that it had before it allocates nothing. It panics when the plan isn't the program's or
// the window has no span.
func (t *Task) Reset(c Config) {
	if len(c.Plan.Blocks) != len(c.Program.Blocks) || c.Window < 1 && !c.Eager {
		panic(fmt.Sprintf("task: a plan of %d blocks for a program of %d, window %d",
			len(c.Plan.Blocks), len(c.Program.Blocks), c.Window))
	}
	t.Config, t.lane = c, &c.Plan.Lanes[c.Lane]
	t.started, t.aborted, t.resolved, t.retired = false, false, false, false
	t.busy, t.userBusy, t.kernels, t.free, t.given = 0, 0, 0, 0, 0
	t.shape.set(c.Program, c.InPlace)
	spans, links := len(t.lane.Spans), len(c.Program.To)

	t.state = resize(t.state, spans*len(c.Program.Code))
	t.next = grow(t.next, spans*len(c.Program.Code))
	t.need = grow(t.need, spans*len(c.Program.Code))
	t.args = grow(t.args, spans*t.argsPerSpan)
	t.parked = resize(t.parked, (links+1)*spans)
	t.limits = resize(t.limits, links)
	t.sends = resize(t.sends, links)
	t.scratch = resize(t.scratch, spans)
	for link, n := range t.sends0 {
		t.sends[link] = counts{all: spans * n.all, user: spans * n.user}
	}
	t.comes = resize(t.comes, len(c.Program.From))
	for link, n := range t.recvs0 {
		t.comes[link] = spans * n
	}
	t.left, t.userLeft = spans*t.counts0.all, spans*t.counts0.user
	for span := range spans {
		copy(t.need[span*len(t.need0):], t.need0)
		t.scratch[span] = t.counts0.scratch
		if !c.Plan.Full() {
			t.skip(span)
		}
	}
	t.window = spans
	if !c.Eager {
		t.window = min(c.Window, spans)
	}
	t.layOut()
}

// skip ends the instructions of a span that have nothing to move: of blocks that are too short.
func (t *Task) skip(span int) {
	for at := range t.Program.Code {
		in := &t.Program.Code[at]
		if t.bytes(span, in.Blocks) > 0 {
			continue
		}
		t.state[t.ref(span, at)] = done
		t.left--
		if in.User {
			t.userLeft--
		}
		if in.Scratch {
			t.scratch[span]--
		}
		switch in.Kind {
		case schedule.Send:
			t.sends[in.Link].add(in, -1)
		case schedule.Recv:
			t.comes[in.Link]--
		}
		for _, u := range in.Uses {
			t.need[t.ref(span, int(u))]--
		}
		if t.InPlace {
			for _, u := range in.Frees {
				t.need[t.ref(span, int(u))]--
			}
		}
	}
}

// layOut gives the slots their places in the arena.
func (t *Task) layOut() {
	t.slots = grow(t.slots, len(t.Program.Slots))
	t.spanBytes = 0
	for i, blocks := range t.Program.Slots {
		t.slots[i] = t.spanBytes
		bytes := 0
		for _, block := range blocks {
			bytes += t.Plan.SlotBytes(t.lane, block)
		}
		t.spanBytes += (bytes + slotAlignment - 1) &^ (slotAlignment - 1)
	}
}

const slotAlignment = 64 // bytes; a cache line, and a multiple of every element size

// ScratchBytes is the size of the arena that the part needs from Start to Retire. It
// should begin on a multiple of 64 bytes, as slots in it do.
func (t *Task) ScratchBytes() int { return t.window * t.spanBytes }

// SpanBytes is the scratch of one span.
func (t *Task) SpanBytes() int { return t.spanBytes }

// Narrow makes the window smaller, before the start. It panics when there would be no span in it.
func (t *Task) Narrow(window int) {
	if window < 1 || t.started || t.Eager {
		panic(fmt.Sprintf("task: window of %d spans, started %v, eager %v", window, t.started, t.Eager))
	}
	t.window = min(t.window, window)
}

// Window is the number of spans that have scratch at a time.
func (t *Task) Window() int { return t.window }

// Remaining is how many bytes have yet to be received, and how many to be sent and acknowledged. It
// looks at every instruction: it is for rare occasions.
func (t *Task) Remaining() (in, out int64) {
	for span := range t.lane.Spans {
		for at := range t.Program.Code {
			if t.state[t.ref(span, at)] == done {
				continue
			}
			instr := &t.Program.Code[at]
			switch instr.Kind {
			case schedule.Recv:
				in += int64(t.bytes(span, instr.Blocks))
			case schedule.Send:
				out += int64(t.bytes(span, instr.Blocks))
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

// Outgoing is what has yet to be handed out: bytes by link of Program.To, of which each frame has so
// many more than its payload. It looks at every instruction.
func (t *Task) Outgoing(perFrame int) []int {
	out := make([]int, len(t.Program.To))
	for at := range t.Program.Code {
		in := &t.Program.Code[at]
		if in.Kind != schedule.Send {
			continue
		}
		for span := range t.lane.Spans {
			if t.state[t.ref(span, at)] == waiting {
				out[in.Link] += t.bytes(span, in.Blocks) + perFrame
			}
		}
	}
	return out
}
