package sim

import (
	"flag"
	"fmt"
	"iter"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/polyrail/polyrail/test/seeds"
)

var (
	from     = flag.Uint64("from", 1, "first seed")
	measured = flag.Bool("measured", false, "-seeds and -seed are those of TestMeasuredTablesSettle")
)

// Seeds of a plain "go test", and of one with -short.
const (
	ordinarySeeds = 4000
	shortSeeds    = 300

	measuredSeeds      = 300
	shortMeasuredSeeds = 20
)

// TestSeeds plays many seeds over all processors. A failure names the seed and how to replay it.
func TestSeeds(t *testing.T) {
	if _, one := seeds.One(); one || *measured {
		t.Skip("replaying one seed, or other seeds")
	}
	count := seeds.Count(ordinarySeeds, shortSeeds)
	start := time.Now()
	stats := play(t, *from, count, func(*Sim) {}, "make sim")
	elapsed := time.Since(start)
	t.Logf("%d seeds in %v, %.0f a second: %+v", stats.Seeds, elapsed.Round(time.Millisecond), float64(stats.Seeds)/elapsed.Seconds(), stats)
	if t.Failed() {
		return
	}
	if stats.Seeds != int(count) {
		t.Fatalf("%d of %d seeds were played", stats.Seeds, count)
	}
	requireEverythingMet(t, &stats)
}

// TestMeasuredTablesSettle plays whole groups whose tables, and algorithms in half of the runs, are
// what the real balancer makes of the ranks' measurements: with delays, skew, clocks that run
// apart, and connections that are lost. No rank runs a seq under another table than the others
// (Sim.settle fails then), and the tables come to rest.
func TestMeasuredTablesSettle(t *testing.T) {
	if _, one := seeds.One(); one {
		t.Skip("replaying one seed")
	}
	count := uint64(measuredSeeds)
	switch {
	case *measured:
		count = seeds.Count(measuredSeeds, shortMeasuredSeeds)
	case testing.Short():
		count = shortMeasuredSeeds
	}
	start := time.Now()
	stats := play(t, *from, count, func(s *Sim) { s.Measured = true }, "make tables")
	t.Logf("%d seeds in %v: %+v", stats.Seeds, time.Since(start).Round(time.Millisecond), stats)
	if t.Failed() {
		return
	}
	if stats.Measured != int(count) || stats.Tables < stats.Measured || stats.Sets < 7*stats.Measured {
		t.Errorf("%d measured runs had %d tables of %d sets: that shows little", stats.Measured, stats.Tables, stats.Sets)
	}
	if stats.Restless > stats.Measured/100 {
		t.Errorf("%d of %d runs have more than %d tables in their last third", stats.Restless, stats.Measured, mostLate)
	}
	if stats.LateTables > stats.Measured*mostLate/4 {
		t.Errorf("%d tables in the last thirds of %d runs", stats.LateTables, stats.Measured)
	}
}

// requireEverythingMet: a simulation that never met the hard cases proves little.
func requireEverythingMet(t *testing.T, s *Stats) {
	if s.Seeds < 1000 {
		return
	}
	for what, count := range map[string]int{
		"early frames": s.Early, "starved frames": s.Starved, "capped frames": s.Capped, "borrowed frames": s.Borrowed,
		"torn frames": s.Torn, "frames sent again": s.Resent, "frames on other rails than planned": s.Strayed,
		"cut connections": s.Cuts, "committed tables": s.Tables, "operations under a later table": s.Switched,
		"answers of too late": s.TooLate, "held calls": s.Held, "operations longer than their window": s.SpansPast,
		"narrowed windows": s.Narrowed, "uneven operations": s.Uneven, "operations that skip": s.Skipped,
	} {
		if count < s.Seeds/100 {
			t.Errorf("only %d %s in %d seeds", count, what, s.Seeds)
		}
	}
	if kind, algorithm, count := s.Ran.least(); count < s.Seeds/50 {
		t.Errorf("only %d operations of %v by %v in %d seeds", count, kind, algorithm, s.Seeds)
	}
}

// play runs seeds first … first+count-1, each on one goroutine, in simulators that are set up so.
// A failure says which command replays it.
func play(t *testing.T, first, count uint64, set func(*Sim), replay string) Stats {
	var (
		mu    sync.Mutex
		total Stats
	)
	seeds.Spread(first, count, func(seeds iter.Seq[uint64]) {
		s := New(nil)
		set(s)
		for seed := range seeds {
			if err := s.Run(seed); err != nil {
				t.Errorf("seed %d: %v\nreplay it with: %s SEED=%d", seed, err, replay, seed)
				break
			}
		}
		mu.Lock()
		defer mu.Unlock()
		stats := s.Stats()
		total.add(&stats)
	})
	return total
}

// TestReplay plays the seed of -seed and writes its log.
func TestReplay(t *testing.T) {
	seed, one := seeds.One()
	if !one {
		t.Skip("no -seed")
	}
	s := New(os.Stdout)
	s.Measured, s.Ranks = *measured, *many
	if err := s.Run(seed); err != nil {
		t.Fatalf("seed %d: %v", seed, err)
	}
	fmt.Printf("seed %d: ok, %+v\n", seed, s.Stats())
}

// TestASeedReplaysExactly: the log of a run is a function of its seed, whatever ran before.
func TestASeedReplaysExactly(t *testing.T) {
	for seed := uint64(1); seed <= 20; seed++ {
		var fresh, used recorder
		first := New(&fresh)
		first.Measured = seed > 18
		if err := first.Run(seed); err != nil {
			t.Fatal(err)
		}
		s := New(&used)
		s.Measured = first.Measured
		if err := s.Run(seed + 100); err != nil {
			t.Fatal(err)
		}
		used = recorder{}
		if err := s.Run(seed); err != nil {
			t.Fatal(err)
		}
		if string(fresh.text) != string(used.text) {
			t.Fatalf("seed %d went two ways", seed)
		}
	}
}

type recorder struct{ text []byte }

func (r *recorder) Write(p []byte) (int, error) {
	r.text = append(r.text, p...)
	return len(p), nil
}
