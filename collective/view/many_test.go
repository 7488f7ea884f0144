package view

import (
	"flag"
	"fmt"
	"testing"
	"time"

	"github.com/polyrail/polyrail/test/seeds"
)

var from = flag.Uint64("from", 1, "first seed of the groups of many nodes")

// many are numbers of nodes whose ranks are not all connected with each other, and of seeds.
var many = []struct {
	nodes         int
	seeds, shorts uint64
}{{64, 3, 1}, {256, 1, 0}}

// TestManyNodesForm runs large groups against the faults of TestAgreementUnderChaos, and then in quiet.
func TestManyNodesForm(t *testing.T) {
	simulateMany(t, func(w *world) error {
		w.chaos(time.Duration(1+w.rng.Intn(4)) * time.Second)
		w.calm()
		return w.err
	})
}

// TestManyNodesLoseSome lets up to half of a large group die, twice; the others always go on.
func TestManyNodesLoseSome(t *testing.T) {
	simulateMany(t, func(w *world) error {
		s := newShrinkWorldIn(w)
		s.root()
		for range 2 {
			if w.err == nil {
				s.death()
			}
		}
		s.checkLineage()
		return w.err
	})
}

// simulateMany runs all numbers of nodes and seeds, or the one that is to be replayed.
func simulateMany(t *testing.T, run func(w *world) error) {
	for _, m := range many {
		t.Run(fmt.Sprint(m.nodes), func(t *testing.T) {
			simulateSeeds(t, *from, seeds.Count(m.seeds, m.shorts), func(seed int64, logf func(string, ...any)) error {
				return run(newWorldOf(m.nodes, seed, logf))
			})
		})
	}
}
