package sim

import (
	"flag"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/polyrail/polyrail/collective/op"
)

var every = flag.Bool("every", false, "cut each two steps with up to 8 ranks (minutes); otherwise with up to 3")

// schedules are all that there are.
var schedules = []struct {
	algorithm op.Algorithm
	base      int
}{{op.Ring, 2}, {op.RecursiveDoubling, 2}, {op.Bcube, 2}, {op.Bcube, 3}, {op.Bcube, 8}, {op.Tree, 2}}

// TestEveryStepOfEveryPairIsCut cuts the connection that carries a step's frame, for every step that any rank sends to
// any other, when it is sent and when it has arrived.
func TestEveryStepOfEveryPairIsCut(t *testing.T) {
	most := maxRanks
	if testing.Short() {
		most = 4
	}
	eachSchedule(t, most, func(c Chosen, points []Point) (runs []Chosen) {
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

// TestEveryTwoStepsAreCut does so with each two of these steps, within one operation. The moments take turns.
func TestEveryTwoStepsAreCut(t *testing.T) {
	most := 3
	if *every {
		most = maxRanks
	}
	eachSchedule(t, most, func(c Chosen, points []Point) (runs []Chosen) {
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

func eachSchedule(t *testing.T, most int, runs func(c Chosen, points []Point) []Chosen) {
	if *seed != 0 || *measured {
		t.Skip("replaying one seed, or other seeds")
	}
	total := 0
	for _, s := range schedules {
		for n := 2; n <= most; n++ {
			t.Run(fmt.Sprintf("%v/base=%d/n=%d", s.algorithm, s.base, n), func(t *testing.T) {
				points, err := Points(s.algorithm, n, s.base)
				if err != nil {
					t.Fatal(err)
				}
				total += playChosen(t, runs(Chosen{Algorithm: s.algorithm, Ranks: n, Base: s.base}, points))
			})
		}
	}
	t.Logf("%d runs", total)
}

// playChosen plays each run with a seed of its own, which is its number.
func playChosen(t *testing.T, runs []Chosen) int {
	var next atomic.Int64
	var all sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		all.Go(func() {
			s := New(nil)
			for !t.Failed() {
				i := int(next.Add(1)) - 1
				if i >= len(runs) {
					return
				}
				s.Chosen = &runs[i]
				if err := s.Run(uint64(i + 1)); err != nil {
					t.Errorf("run %d, cuts %v: %v", i, runs[i].Cuts, err)
				}
			}
		})
	}
	all.Wait()
	return len(runs)
}
