package sim

import (
	"flag"
	"fmt"
	"testing"

	"github.com/polyrail/polyrail/test/seeds"
)

var many = flag.Int("ranks", 0, "-seed is of TestManyRanks, of a group of so many; 0: of another test")

// TestManyRanks plays groups larger than those whose ranks are all connected, with every kind and
// algorithm.
func TestManyRanks(t *testing.T) {
	if _, one := seeds.One(); one || *measured {
		t.Skip("replaying one seed, or other seeds")
	}
	for ranks, count := range map[int]uint64{64: 20, 256: 2} {
		t.Run(fmt.Sprint(ranks), func(t *testing.T) {
			count := seeds.Count(count, 1)
			stats := play(t, *from, count, func(s *Sim) { s.Ranks = ranks },
				fmt.Sprintf("make sim RANKS=%d", ranks))
			t.Logf("%d seeds: %+v", stats.Seeds, stats)
		})
	}
}
