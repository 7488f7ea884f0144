package schedule_test

import (
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

// history is the global happens-before relation of one owner's programs, as edges from
// each moment to those that follow it.
type history map[moment][]moment

func newHistory(programs []*schedule.Program, owner int) history {
	h := history{}
	add := func(a, b moment) { h[a] = append(h[a], b) }
	for r, p := range programs {
		for v, in := range p.ByOwner[owner] {
			begin := moment{op.Rank(r), schedule.Value(v), false}
			end := moment{op.Rank(r), schedule.Value(v), true}
			add(begin, end)
			for _, a := range in.Args {
				if a != schedule.Input {
					add(moment{op.Rank(r), a, true}, begin)
				}
			}
			if in.Kind == schedule.Send {
				there, ok := programs[in.Peer].FindRecv(owner, in.Step)
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
func through(programs []*schedule.Program, r op.Rank, owner int, reader schedule.Value) moment {
	if in := programs[r].ByOwner[owner][reader]; in.Kind == schedule.Send {
		there, _ := programs[in.Peer].FindRecv(owner, in.Step)
		return moment{in.Peer, there, true}
	}
	return moment{r, reader, true}
}

// before reports whether a has happened whenever b happens.
func (h history) before(a, b moment) bool {
	seen := map[moment]bool{}
	var reach func(m moment) bool
	reach = func(m moment) bool {
		if m == b {
			return true
		}
		if seen[m] {
			return false
		}
		seen[m] = true
		for _, next := range h[m] {
			if reach(next) {
				return true
			}
		}
		return false
	}
	return reach(a)
}

// The rule on overwriting (DESIGN §4.2): in an in-place operation the final value takes
// the place of the rank's own operand. So whoever reads that operand must be through by
// then: a kernel has ended; a frame is whole at its receiver, or it is a hazard of the
// write, which then waits for its release. What is received into Final has no hazards,
// since nothing could hold the frame back.
func TestFinalIsWrittenAfterEveryReaderOfInputIsThrough(t *testing.T) {
	each(t, func(t *testing.T, v variant, programs []*schedule.Program) {
		for o := range programs[0].Owners {
			h := newHistory(programs, o)
			for r, p := range programs {
				for w, write := range p.ByOwner[o] {
					if write.Store.Kind == schedule.Final {
						check(t, h, programs, op.Rank(r), o, schedule.Value(w))
					}
				}
			}
		}
	})
}

func check(t *testing.T, h history, programs []*schedule.Program, r op.Rank, owner int, w schedule.Value) {
	t.Helper()
	code := programs[r].ByOwner[owner]
	write := &code[w]
	if write.Kind == schedule.Recv && len(write.Hazards) > 0 {
		t.Errorf("rank %d: what is received into Final has hazards %v", r, write.Hazards)
	}
	hazard := map[schedule.Value]bool{}
	for _, s := range write.Hazards {
		hazard[s] = true
		if code[s].Kind != schedule.Send || code[s].Args[0] != schedule.Input {
			t.Errorf("rank %d: hazard %d of the final value sends no input", r, s)
		}
	}
	for v, in := range code {
		reader := schedule.Value(v)
		if reader == w {
			// A kernel may write over its first or second operand only.
			for _, a := range in.Args[min(2, len(in.Args)):] {
				if a == schedule.Input {
					t.Errorf("rank %d: the last kernel overwrites the input before it reads it", r)
				}
			}
			continue
		}
		for _, a := range in.Args {
			if a == schedule.Input && !hazard[reader] && !h.before(through(programs, r, owner, reader), moment{r, w, false}) {
				t.Errorf("rank %d owner %d: instruction %d may still read the input when %d overwrites it", r, in.Owner, v, w)
			}
		}
	}
}

// The proof above would find a missing hazard: without its hazards recursive doubling fails it.
func TestRecursiveDoublingNeedsItsHazards(t *testing.T) {
	programs := build(t, variant{op.RecursiveDoubling, 2}, 4)
	h := newHistory(programs, 0)
	for r, p := range programs {
		var write, send schedule.Value
		for v, in := range p.ByOwner[0] {
			if in.Store.Kind == schedule.Final {
				write = schedule.Value(v)
			}
			if in.Kind == schedule.Send && in.Args[0] == schedule.Input {
				send = schedule.Value(v)
			}
		}
		if h.before(through(programs, op.Rank(r), 0, send), moment{op.Rank(r), write, false}) {
			t.Errorf("rank %d: the final value depends on the arrival of the input, so that hazards %v are idle", r, p.ByOwner[0][write].Hazards)
		}
	}
}
