package engine

import (
	"math/rand"
	"testing"

	"github.com/polyrail/polyrail/collective/view"
)

func TestProgressKnowsTheFirstUnfinishedOperation(t *testing.T) {
	for seed := range int64(200) {
		rng := rand.New(rand.NewSource(seed))
		var p progress
		if p.uneven() != (view.SeqRange{First: 1, Last: 0}) {
			t.Fatalf("at first %+v", p.uneven())
		}
		done := map[uint64]bool{}
		for base := 0; base < 100; base += 10 { // ten in flight, in any order, of which some never end
			for _, i := range rng.Perm(10) {
				if base >= 50 && rng.Intn(10) == 0 {
					continue
				}
				seq := uint64(base + i + 1)
				done[seq] = true
				p.add(seq)
			}
			want := view.SeqRange{First: 1}
			for done[want.First] {
				want.First++
			}
			for seq := range done {
				want.Last = max(want.Last, seq)
			}
			if p.uneven() != want || len(p.beyond) > 100 {
				t.Fatalf("seed %d: %+v, want %+v", seed, p.uneven(), want)
			}
		}
	}
}
