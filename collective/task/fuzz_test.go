package task

import (
	"testing"

	"github.com/polyrail/polyrail/collective/op"
)

// Whatever a header says, Place refuses it or names a range inside the arena or the buffer.
func FuzzPlace(f *testing.F) {
	f.Add(2, 0, 16, 1, 0, 16<<10)
	f.Add(2, 16, 16, 0, 1, 16<<10)
	f.Add(-1, -1, -1, -1, -1, -1)
	f.Add(2, 0, 1<<62, 1, 0, 16<<10)
	f.Fuzz(func(t *testing.T, from, first, count, mark, step, length int) {
		const size = 3 * 64 << 10
		task := newTask(t, op.Ring, 0, 3, size, Config{Window: 1})
		start(t, task)
		ref, loc, err := task.Place(Frame{op.Rank(from), first, count, mark, step, length})
		if err != nil {
			return
		}
		limit := size
		if loc.Mem == Scratch {
			limit = task.ScratchBytes()
		}
		if loc.Off < 0 || loc.Len != length || loc.Off+loc.Len > limit {
			t.Fatalf("placed at %+v", loc)
		}
		if _, err := task.Step(Event{Kind: Torn, Ref: ref}, nil); err != nil {
			t.Fatal(err)
		}
	})
}
