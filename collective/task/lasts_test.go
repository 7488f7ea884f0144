package task

import (
	"slices"
	"testing"

	"github.com/polyrail/polyrail/collective/op"
	"github.com/polyrail/polyrail/collective/schedule"
)

// A frame is folded by whoever has claimed it, once, and by nobody after an abort: the caller's memory may
// be its own again.
func TestAFrameIsClaimedOnceAndNotAfterAnAbort(t *testing.T) {
	for _, aborted := range []bool{false, true} {
		task := newTask(t, op.RecursiveDoubling, 0, 2, 8, Config{Eager: true})
		start(t, task)
		place(t, task, 1, 1, Loc{Scratch, 0, 8})
		if _, err := task.Step(Event{Kind: Folded, Ref: 1}, nil); err == nil {
			t.Error("a frame is folded that was not claimed")
		}
		if aborted {
			expect(t, task, Event{Kind: Abort})
		}
		if _, _, ok := task.Claim(1, true); ok == aborted {
			t.Errorf("aborted %v: claimed %v", aborted, ok)
		}
		if _, _, ok := task.Claim(1, true); ok {
			t.Errorf("aborted %v: claimed twice", aborted)
		}
		if aborted {
			expect(t, task, Event{Kind: Released, Ref: 0}, Action{Kind: Resolve})
			expect(t, task, Event{Kind: Arrived, Ref: 1}, Action{Kind: Retire})
			continue
		}
		expect(t, task, Event{Kind: Folded, Ref: 1})
		expect(t, task, Event{Kind: Released, Ref: 0}, Action{Kind: Resolve}, Action{Kind: Retire})
	}
}

// A caller's function that runs on scratch alone is still the caller's.
func TestAnAbortWaitsForKernels(t *testing.T) {
	task := newTask(t, op.RecursiveDoubling, 0, 8, 8, Config{Eager: true})
	out, err := task.Step(Event{Kind: Start}, nil)
	for err == nil && len(out) > 0 {
		a := out[0]
		out = out[1:]
		next := Event{Kind: Reduced, Ref: a.Ref}
		if a.Kind == Reduce && a.Dst.Mem == Scratch && !slices.ContainsFunc(a.Args, func(l Loc) bool { return l.Mem != Scratch }) {
			expect(t, task, Event{Kind: Abort})
			expect(t, task, next, Action{Kind: Resolve}, Action{Kind: Retire})
			return
		}
		if a.Kind == Send {
			next.Kind = Released
		}
		if out, err = task.Step(next, out); err == nil && a.Kind == Send { // its peer sends in the same step
			i := slices.IndexFunc(task.Program.Code, func(in schedule.Instr) bool {
				return in.Kind == schedule.Recv && in.Step == a.Step
			})
			var ref Ref
			in := &task.Program.Code[i]
			if ref, _, err = task.Place(Frame{From: in.Peer, Count: task.lane.Spans[0].Count, Mark: in.Mark, Step: in.Step, Bytes: 8}); err == nil {
				out, err = task.Step(Event{Kind: Arrived, Ref: ref}, out)
			}
		}
	}
	t.Fatalf("no kernel ran on scratch alone: %v", err)
}

// In place more waits for more.
func TestATaskThatWasInPlaceIsNotWhenItIsReused(t *testing.T) {
	for _, inPlace := range []bool{false, true} {
		fresh := newTask(t, op.RecursiveDoubling, 0, 2, 8, Config{Eager: true, InPlace: inPlace})
		reused := newTask(t, op.RecursiveDoubling, 0, 2, 8, Config{Eager: true, InPlace: !inPlace})
		c := reused.Config
		c.InPlace = inPlace
		reused.Reset(c)
		if !slices.Equal(fresh.need, reused.need) {
			t.Errorf("in place %v: instructions wait for %v, want %v", inPlace, reused.need, fresh.need)
		}
	}
}
