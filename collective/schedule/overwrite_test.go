package schedule_test

import (
	"slices"
	"testing"

	"github.com/polyrail/polyrail/collective/op"
	"github.com/polyrail/polyrail/collective/schedule"
)

// moment is the beginning or the end of an instruction at a rank. A Recv may begin as
// soon as the Send over there does, and ends when the frame is whole.
type moment struct {
	rank op.Rank
	v    schedule.Value
	end  bool
}

// history is the global happens-before relation of all ranks' programs, as edges from
// each moment to those that follow it.
type history map[moment][]moment

func newHistory(programs []*schedule.Program) history {
	h := history{}
	add := func(a, b moment) { h[a] = append(h[a], b) }
	for r, p := range programs {
		for v, in := range p.Code {
			begin := moment{op.Rank(r), schedule.Value(v), false}
			end := moment{op.Rank(r), schedule.Value(v), true}
			add(begin, end)
			for _, a := range slices.Concat(in.Args, in.After) {
				if _, isInput := a.Input(); !isInput {
					add(moment{op.Rank(r), a, true}, begin)
				}
			}
			if in.Kind == schedule.Send {
				there, ok := programs[in.Peer].FindRecv(in.Mark, in.Step)
				if !ok {
					continue // another test's business
				}
				add(begin, moment{in.Peer, there, false})
			}
		}
	}
	return h
}

// through is the moment from which on a reader doesn't need the input any more: the end of
// a kernel, the arrival of a frame (it is never sent again from then on).
func through(programs []*schedule.Program, r op.Rank, reader schedule.Value) moment {
	if in := programs[r].Code[reader]; in.Kind == schedule.Send {
		there, _ := programs[in.Peer].FindRecv(in.Mark, in.Step)
		return moment{in.Peer, there, true}
	}
	return moment{r, reader, true}
}

// after is the set of moments that have not happened before a has.
func (h history) after(a moment) map[moment]bool {
	seen := map[moment]bool{}
	var reach func(m moment)
	reach = func(m moment) {
		if seen[m] {
			return
		}
		seen[m] = true
		for _, next := range h[m] {
			reach(next)
		}
	}
	reach(a)
	return seen
}

// The rule on overwriting: in an in-place operation the final value of a block takes
// the place of the rank's own operand, if it has both. So whoever reads that operand must
// be through by then: a kernel has ended; a frame is whole at its receiver, or it is a
// hazard of the write, which then waits for its release. What is received into Final has no
// hazards, since nothing could hold the frame back.
func TestFinalIsWrittenAfterEveryReaderOfInputIsThrough(t *testing.T) {
	each(t, func(t *testing.T, v variant, programs []*schedule.Program) {
		if len(programs) > 17 {
			return // the relation grows with the square
		}
		h := newHistory(programs)
		for r, p := range programs {
			for w, write := range p.Code {
				if block := p.Blocks[write.Blocks[0]]; write.Store.Kind == schedule.Final &&
					block.Source != schedule.None && inPlace(v, p) {
					check(t, h, programs, op.Rank(r), schedule.Value(w))
				}
			}
		}
	})
}

// inPlace reports whether the program may run in place.
func inPlace(v variant, p *schedule.Program) bool { return v.kind != op.KindAllToAll || p.InPlace }

func check(t *testing.T, h history, programs []*schedule.Program, r op.Rank, w schedule.Value) {
	t.Helper()
	code := programs[r].Code
	write := &code[w]
	if write.Kind == schedule.Recv && len(write.Hazards) > 0 {
		t.Errorf("rank %d: what is received into Final has hazards %v", r, write.Hazards)
	}
	own := schedule.Input(write.Blocks[0])
	for _, s := range write.Hazards {
		if !slices.Contains(code[s].Args, own) {
			t.Errorf("rank %d: hazard %d of the final value doesn't read the input", r, s)
		}
	}
	for v, in := range code {
		reader := schedule.Value(v)
		if reader == w {
			// A kernel may write over its first or second operand only.
			if slices.Contains(in.Args[min(2, len(in.Args)):], own) {
				t.Errorf("rank %d: the last kernel overwrites the input before it reads it", r)
			}
			continue
		}
		if slices.Contains(in.Args, own) && !slices.Contains(write.Hazards, reader) &&
			!h.after(through(programs, r, reader))[moment{r, w, false}] {
			t.Errorf("rank %d: instruction %d may still read the input of block %d when %d overwrites it",
				r, v, write.Blocks[0], w)
		}
	}
}

// The proof above would find a missing hazard: without its hazards recursive doubling fails it.
func TestRecursiveDoublingNeedsItsHazards(t *testing.T) {
	programs := build(t, variant{kind: op.KindAllReduce, algorithm: op.RecursiveDoubling}, 4, 0)
	h := newHistory(programs)
	for r, p := range programs {
		var write, send schedule.Value
		for v, in := range p.Code {
			if in.Store.Kind == schedule.Final {
				write = schedule.Value(v)
			}
			if in.Kind == schedule.Send && in.Args[0] == schedule.Input(0) {
				send = schedule.Value(v)
			}
		}
		if h.after(through(programs, op.Rank(r), send))[moment{op.Rank(r), write, false}] {
			t.Errorf("rank %d: the final value depends on the arrival of the input, so that hazards %v are idle",
				r, p.Code[write].Hazards)
		}
	}
}
