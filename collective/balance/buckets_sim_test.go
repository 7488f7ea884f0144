package balance

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/polyrail/polyrail/collective/op"
	"github.com/polyrail/polyrail/collective/plan"
	"github.com/polyrail/polyrail/collective/schedule"
	"github.com/polyrail/polyrail/collective/table"
)

// buckets are two ranks over rails behind token buckets, which fill while operations go over other
// rails. The program keeps a number of operations in flight, and pauses before each next one.
// A rail serves operations in the order in which they began. A rail without a burst is a line.
type buckets struct {
	rng    *rand.Rand
	rate   []float64 // bytes/s
	burst  []float64 // bytes
	tokens []float64
	at     []float64   // seconds: until when tokens were added
	free   []float64   // seconds: when the rail has served all that it was given
	queue  [][]service // by rail: what it serves from now on
	now    float64     // seconds: when the last operation began
	depth  int         // operations in flight; 0: one
	jitter float64     // a transfer is off by up to this part of it
	flight []flown     // by their end
	timer  *Timer
	b      *Balancer
	table  *table.Table
	tables uint32
}

// flown is an operation in flight.
type flown struct {
	bytes int
	table *table.Table
	began float64
	ended float64
	times []RailTime
}

// service is what a rail serves of an operation, from one second to another one.
type service struct{ bytes, from, to float64 }

const (
	bucketStart = 20e-6 // seconds, of an operation
	bucketPause = 25e-6 // between two
	bucketSplit = 8 << 10
)

func newBuckets(seed uint64, rate, burst []float64) *buckets {
	w := &buckets{rng: rand.New(rand.NewPCG(seed, 12)), rate: rate, burst: burst}
	w.rest()
	start, err := Static(Equal(len(rate)), bucketSplit, nil)
	if err != nil {
		panic(err)
	}
	w.table, w.timer = start, NewTimer(bucketSplit)
	w.b = NewBalancer(Setup{
		Rails: len(rate), SplitBytes: bucketSplit, Start: start,
		Algorithm: algorithmAt, Owners: bucketOwners,
	})
	for rail := range rate {
		only := make([]int, len(rate))
		only[rail] = 1
		for _, bytes := range []int{8, 2 << 10, 16 << 10, 32 << 10, 256 << 10} {
			for range 2 {
				o := w.run(bytes, only)
				w.b.Probed(rail, int64(bytes), seconds(o.ended-o.began))
			}
		}
	}
	w.table = &table.Table{Entries: w.b.Decide()}
	return w
}

// rest fills the buckets.
func (w *buckets) rest() {
	w.tokens = slices.Clone(w.burst)
	w.at, w.free, w.flight = make([]float64, len(w.rate)), make([]float64, len(w.rate)), nil
	w.queue = make([][]service, len(w.rate))
}

func bucketOwners(a op.Algorithm) int {
	if a == op.Ring {
		return 2
	}
	return 1
}

func (w *buckets) rounds(bytes int) int {
	owners := bucketOwners(algorithmAt(int64(bytes)))
	return plan.RoundsOf(plan.Even(bytes, owners)[0], schedule.Cost{})
}

func (w *buckets) shares(bytes int) []int {
	return plan.Rounds(w.rounds(bytes), w.table.Lookup(int64(bytes)).Weights)
}

// run begins an operation as soon as the depth allows, and returns the one that ended for it.
func (w *buckets) run(bytes int, shares []int) (done flown) {
	o := flown{bytes: bytes, table: w.table, began: w.now}
	rounds := 0
	for _, s := range shares {
		rounds += s
	}
	for rail, s := range shares {
		if s == 0 {
			continue
		}
		own := float64(bytes) * float64(s) / float64(rounds)
		before := w.queued(rail)
		end := w.serve(rail, own)
		o.times = append(o.times, RailTime{Rail: rail, Bytes: int64(own),
			Elapsed: Own(seconds(end-w.now), int64(own), int64(own+before))})
		o.ended = max(o.ended, end)
	}
	at, _ := slices.BinarySearchFunc(w.flight, o.ended, func(a flown, ended float64) int {
		return cmp.Compare(a.ended, ended)
	})
	w.flight = slices.Insert(w.flight, at, o)
	if len(w.flight) < w.depth {
		return flown{}
	}
	done, w.flight = w.flight[0], w.flight[1:]
	w.now = max(w.now, done.ended+bucketPause)
	return done
}

// queued is how many bytes a rail has yet to serve.
func (w *buckets) queued(rail int) (bytes float64) {
	w.queue[rail] = slices.DeleteFunc(w.queue[rail], func(p service) bool { return p.to <= w.now })
	for _, p := range w.queue[rail] {
		if p.from >= w.now {
			bytes += p.bytes
		} else {
			bytes += p.bytes * (p.to - w.now) / (p.to - p.from)
		}
	}
	return bytes
}

// serve gives a rail bytes of an operation, and returns when that has ended.
func (w *buckets) serve(rail int, bytes float64) (end float64) {
	start := max(w.now, w.free[rail])
	w.tokens[rail] = min(w.tokens[rail]+(start-w.at[rail])*w.rate[rail], w.burst[rail])
	w.at[rail] = start
	transfer := max(bytes-w.tokens[rail], 0) / w.rate[rail]
	if w.jitter > 0 {
		transfer *= 1 + w.jitter*(2*w.rng.Float64()-1)
	}
	w.tokens[rail] -= bytes
	w.free[rail] = start + transfer
	w.queue[rail] = append(w.queue[rail], service{bytes, start, w.free[rail]})
	return w.free[rail] + bucketStart + 10e-6*w.rng.ExpFloat64()
}

// step runs an operation by the table in force. observed: with the operation that ended for it, of
// that size, the balancer had a set of windows.
func (w *buckets) step(bytes int) (size int, observed bool) {
	o := w.run(bytes, w.shares(bytes))
	if len(o.times) == 0 {
		return 0, false
	}
	class := ClassOf(int64(o.bytes))
	set, full := w.timer.Add(o.table.Version, SplitOf(o.table, table.AllReduces, class), class, o.times)
	if !full {
		return 0, false
	}
	for i := range set {
		set[i].Took = set[i].Whole
	}
	if w.b.Observe(set) {
		w.tables++
		w.table = &table.Table{Version: w.tables, Entries: w.b.Table()}
	}
	return o.bytes, true
}

// mean is what operations take in so many seconds, the first half of which don't count. Without
// shares the balancer's are in force.
func (w *buckets) mean(bytes int, long float64, shares []int) float64 {
	var all []float64
	pause := bucketPause
	if w.depth > 1 { // it is a part of what other operations take
		pause = 0
	}
	for begin := w.now; w.now < begin+long; {
		before := w.now
		if shares == nil {
			w.step(bytes)
		} else {
			w.run(bytes, shares)
		}
		if w.now > begin+long/2 {
			all = append(all, w.now-before-pause)
		}
	}
	return mean(all)
}

// randomBuckets are rails, up to 10 : 1 apart, that save up for 0.2 to 2.1 ms, or a packet.
func randomBuckets(seed uint64, rails int) (rate, burst []float64) {
	rng := rand.New(rand.NewPCG(seed, 77))
	rate = append(rate, 20e6*math.Pow(4, rng.Float64()))
	for range rails - 1 {
		rate = append(rate, rate[0]/math.Pow(10, 0.1+0.9*rng.Float64()))
	}
	for _, r := range rate {
		burst = append(burst, max(9000, r*1e-4*math.Pow(20, rng.Float64()))+r*1e-4)
	}
	return rate, burst
}

// byHand is what operations take alone, and with the best of some fifty divisions.
func byHand(bytes int, rate, burst []float64) (alone, best float64) {
	w := newBuckets(1, rate, burst)
	n := w.rounds(bytes)
	alone = w.mean(bytes, 0.1, []int{n, 0})
	best = alone
	for s := 1; s <= n/2; s += max(1, n/48) {
		took := w.mean(bytes, max(0.05, 12*alone), []int{n - s, s})
		best = min(best, took)
	}
	return alone, best
}
