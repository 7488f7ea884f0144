package balance

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/polyrail/polyrail/collective/op"
	"github.com/polyrail/polyrail/collective/plan"
	"github.com/polyrail/polyrail/collective/schedule"
	"github.com/polyrail/polyrail/collective/table"
)

// world is a set of rails that obey the model, with noise, and a balancer that has to find out.
type world struct {
	rng   *rand.Rand
	alpha []float64 // seconds
	rate  []float64 // bytes/s, as seen by an operation
	noise float64
	ranks int
	crowd float64 // how much slower rails are when several of them work
	// mood is the deviation, in logarithms, of what a busy host does to all rails alike, from one set
	// or probe to the next.
	mood   float64
	stalls float64 // part of the windows in which a rail took up to twice as long
	uneven bool    // operations take as long as the rail that ends last in each of them, and windows say so
	// probed is how much longer a probe takes than operations do; 0: as long. Behind a shaper what
	// follows a pause goes in a burst.
	probed float64
	tails  float64   // part of a rail's operations that take several times as long
	drift  float64   // deviation, in logarithms, of a rate's steps from set to set
	cross  float64   // part of the sets with which other traffic comes, for twenty sets on average
	calm   []float64 // rates without drift and other traffic; nil: as they are
	off    []float64 // by rail: how far its rate has drifted, in logarithms
	taken  int       // the rail that other traffic is on; 0: none, else its number from 1
	b      *Balancer
	table  *table.Table
	known  map[int][2]float64 // best, by size
	worst  float64            // the slowest operation so far, against the best single rail
	commit int                // tables
}

func algorithmAt(bytes int64) op.Algorithm {
	if bytes <= 16<<10 {
		return op.RecursiveDoubling
	}
	return op.Ring
}

// probedSizes are the ones that a rail is probed with.
var probedSizes = []int{8, 16 << 10, 32 << 10, 256 << 10}

// start makes the balancer; probe: with figures of each rail alone, as noisy as everything.
func (w *world) start(probe bool) {
	t, err := Static(Equal(len(w.rate)), 16<<10, nil)
	if err != nil {
		panic(err)
	}
	w.table = t
	w.b = NewBalancer(Setup{Rails: len(w.rate), SplitBytes: 16 << 10, Start: t, Algorithm: algorithmAt,
		Owners: func(a op.Algorithm) int {
			if a == op.Ring {
				return w.ranks
			}
			return 1
		}})
	if !probe {
		return
	}
	longer := max(w.probed, 1)
	for rail := range w.rate {
		for _, bytes := range probedSizes {
			w.b.Probed(rail, int64(bytes), seconds(longer*w.once(rail, float64(bytes), 1)*w.swing()*w.stall()))
		}
	}
	w.table = &table.Table{Entries: w.b.Decide()}
}

func seconds(s float64) time.Duration { return time.Duration(s * 1e9) }

// once is one operation's time on one rail.
func (w *world) once(rail int, bytes float64, rails int) float64 {
	t := w.alpha[rail] + bytes/w.rate[rail]
	if rails > 1 && w.crowd > 0 {
		t *= w.crowd
	}
	return t * (1 + w.noise*(2*w.rng.Float64()-1)) * tail(w.rng, w.tails)
}

// tail is a factor that is above 1 in that part of the cases, and heavy then.
func tail(rng *rand.Rand, part float64) float64 {
	if part == 0 || rng.Float64() >= part {
		return 1
	}
	return min(1/math.Sqrt(1-rng.Float64()), 8)
}

// wander changes the rates before a set, where they drift or other traffic comes and goes.
func (w *world) wander() {
	if w.drift == 0 && w.cross == 0 {
		return
	}
	if w.calm == nil {
		w.calm, w.off = slices.Clone(w.rate), make([]float64, len(w.rate))
	}
	switch {
	case w.cross == 0:
	case w.taken > 0 && w.rng.Float64() < 1.0/20:
		w.taken = 0
	case w.taken == 0 && w.rng.Float64() < w.cross:
		w.taken = 1 + w.rng.IntN(len(w.rate))
	}
	for rail := range w.rate {
		w.off[rail] = 0.98*w.off[rail] + w.drift*w.rng.NormFloat64()
		w.rate[rail] = w.calm[rail] * math.Exp(w.off[rail])
		if w.taken == rail+1 {
			w.rate[rail] *= 0.3
		}
	}
	w.known = nil
}

// swing is the host's mood during one set or probe.
func (w *world) swing() float64 { return math.Exp(w.mood * w.rng.NormFloat64()) }

// stall is what a rail suffers by itself in one window.
func (w *world) stall() float64 {
	if w.rng.Float64() >= w.stalls {
		return 1
	}
	return 1 + w.rng.Float64()
}

// shares is how an operation of that size is divided now.
func (w *world) shares(bytes int) []int {
	return plan.Rounds(w.rounds(bytes), w.table.Lookup(int64(bytes)).Weights)
}

func (w *world) rounds(bytes int) int {
	owners := 1
	if algorithmAt(int64(bytes)) == op.Ring {
		owners = w.ranks
	}
	return plan.RoundsOf(plan.Even(bytes, owners)[0], schedule.Cost{})
}

// exact is the noiseless time of a division, without what the balancer can't know.
func (w *world) exact(bytes int, shares []int) float64 {
	startup, perRound := slices.Clone(w.alpha), make([]float64, len(w.rate))
	for i, r := range w.rate {
		perRound[i] = float64(bytes) / float64(w.rounds(bytes)) / r
		if count(shares) > 1 && w.crowd > 0 {
			startup[i] *= w.crowd
			perRound[i] *= w.crowd
		}
	}
	return slowest(startup, perRound, shares)
}

// best is the fastest division into whole rounds, and the best rail alone, found by search.
func (w *world) best(bytes int) (split, single float64) {
	if known, ok := w.known[bytes]; ok {
		return known[0], known[1]
	}
	rounds := w.rounds(bytes)
	shares := make([]int, len(w.rate))
	for i := range w.rate {
		clear(shares)
		shares[i] = rounds
		if t := w.exact(bytes, shares); i == 0 || t < single {
			single = t
		}
	}
	clear(shares)
	for range rounds { // each round where it ends first: the best for times that only grow
		at, end := -1, 0.0
		for i := range shares {
			shares[i]++
			one := make([]int, len(shares))
			one[i] = shares[i]
			shares[i]--
			t := w.exact(bytes, one)
			if at < 0 || t < end {
				at, end = i, t
			}
		}
		shares[at]++
	}
	split = min(w.exact(bytes, shares), single)
	if w.known == nil {
		w.known = make(map[int][2]float64)
	}
	w.known[bytes] = [2]float64{split, single}
	return split, single
}

// set runs ten operations and tells the balancer. ratio is what the next operation takes, against
// the best that whole rounds allow.
func (w *world) set(bytes int) (ratio float64) {
	w.wander()
	shares := w.shares(bytes)
	split, single := w.best(bytes)
	w.worst = max(w.worst, w.exact(bytes, shares)/single)
	per := float64(bytes) / float64(w.rounds(bytes))
	var windows []Window
	swing, whole := w.swing(), make([]float64, WindowOperations)
	for rail, r := range shares {
		if r == 0 {
			continue
		}
		var sum, top float64
		for i := range whole {
			t := w.once(rail, per*float64(r), count(shares))
			sum, top = sum+t, max(top, t)
			whole[i] = max(whole[i], t)
		}
		windows = append(windows, Window{Rail: rail, Class: ClassOf(int64(bytes)), Operations: WindowOperations,
			Bytes: int64(per * float64(r)), Elapsed: seconds((sum - top) / (WindowOperations - 1) * swing * w.stall())})
	}
	if w.uneven {
		slices.Sort(whole)
		for i := range windows {
			windows[i].Took = seconds(mean(whole[:WindowOperations-1]) * swing)
		}
	}
	if w.b.Observe(windows) {
		w.table = &table.Table{Entries: w.b.Table()}
		w.commit++
		if err := w.table.Validate(len(w.rate)); err != nil {
			panic(err)
		}
	}
	return w.exact(bytes, w.shares(bytes)) / split
}

// randomWorld has 2 to 4 rails, up to 16 : 1 apart.
func randomWorld(seed uint64) *world {
	rng := rand.New(rand.NewPCG(seed, 4))
	between := func(low, high float64) float64 { // even in the logarithm
		return low * math.Pow(high/low, rng.Float64())
	}
	w := &world{rng: rng, noise: 0.1, ranks: 2 + rng.IntN(7)}
	fastest := between(5e6, 5e9)
	for range 2 + rng.IntN(3) {
		w.alpha = append(w.alpha, between(10e-6, 500e-6))
		w.rate = append(w.rate, fastest/between(1, 16))
	}
	return w
}

func (w *world) randomSize() int {
	return (64 << 10) << w.rng.IntN(10) * (50 + w.rng.IntN(51)) / 100 &^ 63
}

// expectQuiet reports more than a table in twenty sets of a class that has settled, and operations
// that take more than so many times the best on average; total is the sum of what they took against
// it.
func expectQuiet(t *testing.T, tables, sets int, total, most float64) {
	t.Helper()
	if tables > sets/20 {
		t.Errorf("%d tables in %d windows after settling", tables, sets)
	}
	if mean := total / float64(sets); mean > most {
		t.Errorf("operations take %.3f times the best on average", mean)
	}
}

func mean(v []float64) (m float64) {
	for _, x := range v {
		m += x / float64(len(v))
	}
	return m
}
