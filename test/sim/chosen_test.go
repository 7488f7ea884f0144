package sim

import (
	"flag"
	"fmt"
	"iter"
	"testing"

	"github.com/polyrail/polyrail/collective/op"
	"github.com/polyrail/polyrail/collective/schedule"
	"github.com/polyrail/polyrail/test/seeds"
)

var every = flag.Bool("every", false, "cut each step also of 7 ranks, and each two with up to 8 (minutes); otherwise with up to 3")

// Ranks of chosen runs. Trees have two levels among the deep ones.
const (
	chosenRanks = 8
	deepRanks   = maxRanks
)

// schedules are all that there are, for all roots; among deep ranks only the trees.
func schedules(ranks int) (all []Chosen) {
	for _, k := range kinds {
		for _, a := range schedule.Algorithms(k) {
			if ranks > chosenRanks && a != op.Tree {
				continue
			}
			c := Chosen{Kind: k, Algorithm: a, Ranks: ranks, Base: 2}
			if a.ByHost() { // three hosts, dealt in turn
				for r := range ranks {
					c.Hosts = append(c.Hosts, r%3)
				}
			}
			all = append(all, c)
			if a == op.Bcube {
				for _, c.Base = range []int{3, 8} {
					all = append(all, c)
				}
			}
			for c.Root = 1; k.Rooted() && c.Root < ranks; c.Root++ {
				all = append(all, c)
			}
		}
	}
	return all
}

// TestEveryStepOfEveryPairIsCut cuts the connection that carries a step's frame, for every step
// that any rank sends to any other, when it is sent and when it has arrived.
func TestEveryStepOfEveryPairIsCut(t *testing.T) {
	ranks := []int{2, 3, 4, 5, 6, chosenRanks, deepRanks}
	switch {
	case testing.Short():
		ranks = ranks[:3]
	case *every:
		ranks = append(ranks, 7)
	}
	eachSchedule(t, ranks, func(c Chosen, points []Point) (runs []Chosen) {
		for _, p := range points {
			for _, when := range []Moment{Sent, Received} {
				run := c
				run.Cuts = []Cut{{p, when}}
				runs = append(runs, run)
			}
		}
		return runs
	})
}

// TestEveryTwoStepsAreCut does so with each two of these steps, within one operation. The moments
// take turns.
func TestEveryTwoStepsAreCut(t *testing.T) {
	ranks := []int{2, 3}
	if *every {
		ranks = []int{2, 3, 4, 5, 6, 7, chosenRanks}
	}
	eachSchedule(t, ranks, func(c Chosen, points []Point) (runs []Chosen) {
		for i, p := range points {
			for j, q := range points[:i] {
				run := c
				run.Cuts = []Cut{{p, Moment(i % 2)}, {q, Moment((i + j) / 2 % 2)}}
				runs = append(runs, run)
			}
		}
		return runs
	})
}

func eachSchedule(t *testing.T, ranks []int, runs func(c Chosen, points []Point) []Chosen) {
	if _, one := seeds.One(); one || *measured {
		t.Skip("replaying one seed, or other seeds")
	}
	total := 0
	for _, n := range ranks {
		for _, c := range schedules(n) {
			t.Run(fmt.Sprintf("%v/%v/base=%d/n=%d/root=%d", c.Kind, c.Algorithm, c.Base, n,
				c.Root), func(t *testing.T) {
				points, err := c.Points()
				if err != nil {
					t.Fatal(err)
				}
				total += playChosen(t, runs(c, points))
			})
		}
	}
	t.Logf("%d runs", total)
}

// playChosen plays each run with a seed of its own, which is its number.
func playChosen(t *testing.T, runs []Chosen) int {
	seeds.Spread(0, uint64(len(runs)), func(numbers iter.Seq[uint64]) {
		s := New(nil)
		for i := range numbers {
			s.Chosen = &runs[i]
			if err := s.Run(i + 1); err != nil {
				t.Errorf("run %d, cuts %v: %v", i, runs[i].Cuts, err)
				break
			}
		}
	})
	return len(runs)
}
