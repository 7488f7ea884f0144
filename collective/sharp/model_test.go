package sharp_test

import (
	"testing"

	"github.com/polyrail/polyrail/test/seeds"
)

// limit is the number of steps of a run that gets nowhere.
const limit = 1 << 20

// TestGroupsGiveTheRightResults runs whole groups of cores in random steps. In two of three runs an
// aggregation node dies, or is said to have. All ranks must get the right results, to the bit,
// whoever folded them.
func TestGroupsGiveTheRightResults(t *testing.T) {
	if seed, one := seeds.One(); one {
		if f := newWorld(seed, nothing, t.Logf).run(); f != nil {
			t.Fatal(f)
		}
		return
	}
	var seen stats
	for seed := range seeds.Count(4000, 400) {
		seed++ // 0 is no -seed
		w := newWorld(seed, nothing, nil)
		if f := w.run(); f != nil {
			t.Fatalf("seed %d: %v\nreplay: go test ./collective/sharp -run %s -seed %d -v", seed, f, t.Name(), seed)
		}
		seen.add(w.seen)
	}
	t.Logf("%+v", seen)
	for what, count := range map[string]int{"deaths": seen.deaths, "false alarms": seen.falseAlarms,
		"results placed by a repair": seen.saved, "fragments folded again": seen.redone,
		"operations launched after a fence": seen.late, "trees of two levels": seen.levels,
		"trees of a radix":      seen.radix,
		"nodes full of results": seen.full, "torn frames": seen.torn, "disagreements": seen.disagreed} {
		if count == 0 {
			t.Errorf("no %s were seen", what)
		}
	}
}

// run lets things happen until all ranks have their results.
func (w *world) run() *failure {
	for w.failure == nil && !w.disagreed && !w.complete() {
		if w.steps++; w.steps > limit {
			w.fail("stuck", "after %d steps", limit)
		}
		w.age()
		w.step()
	}
	if w.failure == nil && w.lied() && !w.disagreed {
		w.fail("unnoticed", "the ranks called different operations, and nobody says so")
	}
	if w.failure == nil {
		return w.refusal
	}
	return w.failure
}

func (w *world) complete() bool {
	for _, r := range w.ranks {
		if r.finished < len(w.ops) {
			return false
		}
	}
	return true
}

// step draws what happens next: a frame, a rank, or the folding of a repair.
func (w *world) step() {
	i := w.rng.IntN(len(w.frames) + len(w.ranks) + 1)
	switch {
	case i < len(w.frames):
		if f := w.frames[i]; w.rng.Float64() >= w.lazy[f.kind] {
			w.advance(i)
		}
	case i < len(w.frames)+len(w.ranks):
		i -= len(w.frames)
		if w.rng.Float64() < w.slow[i] || w.act(w.ranks[i]) || len(w.frames) > 0 {
			return
		}
		for _, r := range w.ranks { // nothing is under way: does anybody go on?
			if w.act(r) {
				return
			}
		}
		if !w.redo() && !w.complete() && w.alarm < 0 {
			w.fail("stuck", "nobody has anything to do")
		}
	default:
		w.redo()
	}
}

// advance delivers a frame, or a part of it.
func (w *world) advance(i int) {
	f := w.frames[i]
	if w.logf != nil {
		w.log("%v %d from %s to %s, begun %v", f.kind, f.number, f.sender(), f.receiver(), f.begun)
	}
	if !w.deliver(f) {
		return
	}
	for i, x := range w.frames { // delivering may have removed others
		if x == f {
			last := len(w.frames) - 1
			w.frames[i] = w.frames[last]
			w.frames = w.frames[:last]
			return
		}
	}
}

// age loses a node when it is time.
func (w *world) age() {
	if w.alarm < 0 || w.responses < w.alarm {
		return
	}
	if w.patience--; w.patience < 0 {
		w.alarm = -1
		w.lose()
	}
}

// lose is a node's death, after which some of what it sent still comes, or a false alarm.
func (w *world) lose() {
	w.post(&frame{kind: noticed})
	if w.rng.IntN(3) == 0 {
		w.seen.falseAlarms++
		w.log("false alarm")
		return
	}
	w.seen.deaths++
	a := w.nodes[w.rng.IntN(len(w.nodes))]
	a.dead = true
	w.log("node %d dies", a.id)
	frames := w.frames[:0]
	for _, f := range w.frames {
		if f.from != a || w.rng.IntN(2) == 0 {
			frames = append(frames, f)
		}
	}
	w.frames = frames
}
