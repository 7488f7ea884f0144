package schedule_test

import (
	"maps"
	"slices"
	"testing"

	"github.com/polyrail/polyrail/collective/op"
	"github.com/polyrail/polyrail/collective/schedule"
)

func TestWhatIsChosenCanBeBuilt(t *testing.T) {
	for _, k := range append([]op.Kind{op.KindBarrier, op.KindView, op.KindDup}, op.Kinds...) {
		for _, n := range []int{1, 2, 3, 8, 9, 64} {
			for _, layout := range slices.Sorted(maps.Keys(hostLayouts)) {
				for bytes := int64(0); bytes < 1<<30; bytes = 2*bytes + 1 {
					if a := schedule.Choose(k, bytes, n, places(layout, n)); !slices.Contains(schedule.Algorithms(k), a) {
						t.Errorf("%v of %d bytes among %d ranks %s: %v", k, bytes, n, layout, a)
					}
				}
			}
		}
	}
}

// Between what doubling carries and what the ring does lies Bcube, or Bruck's algorithm for numbers of
// ranks of which a group would be large.
func TestHalvesRunAllreducesBetweenDoublingAndRing(t *testing.T) {
	for _, c := range []struct {
		n      int
		layout string
		bytes  int64
		want   op.Algorithm
	}{
		{2, "", 16<<10 + 1, op.Ring},
		{4, "", 16 << 10, op.RecursiveDoubling}, {4, "", 16<<10 + 1, op.Bcube},
		{4, "", 32 << 10, op.Bcube}, {4, "", 32<<10 + 1, op.Ring},
		{13, "", 64 << 10, op.Bcube}, {17, "", 16 << 10, op.RecursiveDoubling}, {17, "", 16<<10 + 1, op.Bruck},
		{17, "", 136 << 10, op.Bruck}, {17, "", 136<<10 + 1, op.Ring}, {51, "", 64 << 10, op.Bruck}, {52, "", 64 << 10, op.Bcube},
		{64, "", 2 << 10, op.Tree}, {64, "", 2<<10 + 1, op.RecursiveDoubling}, {64, "", 16 << 10, op.RecursiveDoubling},
		{64, "", 16<<10 + 1, op.Bcube}, {64, "", 512 << 10, op.Bcube}, {64, "", 512<<10 + 1, op.Ring},
		{512, "", 2 << 20, op.Bcube}, {512, "", 2<<20 + 1, op.Ring},
		{64, "together", 16 << 10, op.Tree}, {64, "together", 16<<10 + 1, op.Bcube},
		{64, "together", 256 << 10, op.Bcube}, {64, "together", 256<<10 + 1, op.Ring},
		{128, "together", 256<<10 + 1, op.RecursiveDoubling},
	} {
		if got := schedule.Choose(op.KindAllReduce, c.bytes, c.n, places(c.layout, c.n)); got != c.want {
			t.Errorf("%d bytes among %d ranks %s: %v, want %v", c.bytes, c.n, c.layout, got, c.want)
		}
	}
}

// Reduce-scatters and allgathers go by a half of either, and among many ranks from smaller sizes on.
func TestOtherKindsGoByFewSteps(t *testing.T) {
	for _, c := range []struct {
		kind   op.Kind
		n      int
		layout string
		bytes  int64
		want   op.Algorithm
	}{
		{op.KindReduceScatter, 8, "", 16 << 10, op.Direct}, {op.KindReduceScatter, 8, "", 16<<10 + 1, op.Bcube},
		{op.KindReduceScatter, 8, "", 64 << 10, op.Bcube}, {op.KindReduceScatter, 8, "", 64<<10 + 1, op.Ring},
		{op.KindReduceScatter, 64, "", 1, op.Bcube}, {op.KindReduceScatter, 64, "together", 1, op.Bcube},
		{op.KindReduceScatter, 64, "", 512<<10 + 1, op.Ring}, {op.KindReduceScatter, 17, "", 1, op.Bruck},
		{op.KindAllGather, 8, "", 16 << 10, op.Direct}, {op.KindAllGather, 8, "", 16<<10 + 1, op.Bcube},
		{op.KindAllGather, 64, "", 2 << 10, op.Tree}, {op.KindAllGather, 64, "", 2<<10 + 1, op.Bcube},
		{op.KindAllGather, 64, "together", 16 << 10, op.Tree}, {op.KindAllGather, 64, "together", 16<<10 + 1, op.Bcube},
		{op.KindAllGather, 17, "", 16 << 10, op.Bruck}, {op.KindAllGather, 17, "", 136<<10 + 1, op.Ring},
		{op.KindReduce, 8, "", 32 << 10, op.Chain}, {op.KindAllToAll, 8, "", 32 << 10, op.Direct},
		{op.KindAllToAll, 8, "", 16 << 10, op.Bruck}, {op.KindAllToAll, 2, "", 8, op.Direct}, {op.KindAllToAll, 2, "", 16 << 10, op.Direct},
	} {
		if got := schedule.Choose(c.kind, c.bytes, c.n, places(c.layout, c.n)); got != c.want {
			t.Errorf("%v of %d bytes among %d ranks %s: %v, want %v", c.kind, c.bytes, c.n, c.layout, got, c.want)
		}
	}
}
