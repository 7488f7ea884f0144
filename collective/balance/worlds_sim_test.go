package balance

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/polyrail/polyrail/collective/op"
	"github.com/polyrail/polyrail/collective/plan"
)

// A simulation is a network with the balancer that learns it.
type simulation interface {
	// next runs operations until the balancer has taken a set of windows, and returns their size.
	next() (size int)
	// over is what operations of a size take by the shares in force, over the best; without noise.
	over(size int) float64
	// tables is how many were published.
	tables() int
	// change makes a rail four times as fast or as slow; ok: the simulation can.
	change(faster bool) (ok bool)
}

// kind of world that the balancer is scored on.
type kind struct {
	name  string
	sizes int // that it has
	make  func(seed uint64) simulation
}

var kinds = []kind{
	{"lines", 1, shapedLines(nil)},
	{"lines, no probe", 1, func(seed uint64) simulation { return newLines(seed, false, nil) }},
	{"noisy host", 1, newNoisy},
	{"rails slow each other", 1, shapedLines(func(w *world) { w.crowd = 5 })},
	{"one rail does better", 1, shapedLines(alone)},
	{"heavy tails", 1, shapedLines(func(w *world) { w.tails = 0.1 })},
	{"drift", 1, shapedLines(func(w *world) { w.drift = 0.05 })},
	{"cross traffic", 1, shapedLines(func(w *world) { w.cross = 0.01 })},
	{"two sizes of a class", 2, newTwins},
	{"ten sizes", 10, newTen},
	{"busy host", 1, newCrowd},
	{"two buckets", 1, func(seed uint64) simulation { return newShaped(seed, 2) }},
	{"three buckets", 1, func(seed uint64) simulation { return newShaped(seed, 3) }},
	{"four buckets", 1, func(seed uint64) simulation { return newShaped(seed, 4) }},
	{"buckets, sizes in turn", 5, newTurns},
	{"overlap", 1, func(seed uint64) simulation { return newOverlap(seed, false) }},
	{"overlap, buckets", 1, func(seed uint64) simulation { return newOverlap(seed, true) }},
	{"overlap, four sizes", 1, newFlow},
	{"free order", 1, newFree},
	{"broadcast", 1, newFabric(op.KindBroadcast)},
	{"reduce", 1, newFabric(op.KindReduce)},
	{"gather", 1, newFabric(op.KindGather)},
	{"scatter", 1, newFabric(op.KindScatter)},
	{"alltoall", 1, newFabric(op.KindAllToAll)},
}

// lines are rails of today's tests, whose operations come one after the other.
type lines struct {
	*world
	sizes []int // each as likely
}

func newLines(seed uint64, probe bool, shape func(*world)) *lines {
	w := randomWorld(seed)
	if shape != nil {
		shape(w)
	}
	w.start(probe)
	return &lines{world: w, sizes: []int{w.randomSize()}}
}

func shapedLines(shape func(*world)) func(seed uint64) simulation {
	return func(seed uint64) simulation { return newLines(seed, true, shape) }
}

func newNoisy(seed uint64) simulation {
	return &lines{world: noisy(seed), sizes: []int{1 << 20}}
}

// alone is a quick rail beside a slow one that gains little.
func alone(w *world) {
	w.ranks, w.noise, w.crowd, w.mood, w.uneven, w.probed = 6, 0.3, 1.15, 0.05, true, 1.1
	w.alpha, w.rate = []float64{50e-6, 50e-6}, []float64{18.75e6, 1.875e6}
}

// newTwins has windows of two sizes of a class.
func newTwins(seed uint64) simulation {
	l := newLines(seed, true, nil)
	large := int(ClassOf(int64(l.sizes[0])).MaxBytes())
	l.sizes = []int{large * 60 / 100 &^ 63, large}
	return l
}

func (l *lines) next() (size int) {
	size = l.sizes[0]
	if len(l.sizes) > 1 {
		size = l.sizes[l.rng.IntN(len(l.sizes))]
	}
	l.set(size)
	return size
}

func (l *lines) over(size int) float64 {
	split, _ := l.best(size)
	return l.exact(size, l.world.shares(size)) / split
}

func (l *lines) tables() int { return l.commit }

func (l *lines) change(faster bool) bool {
	if l.calm != nil || len(l.sizes) > 1 {
		return false
	}
	quarter(l.rate, most(l.world.shares(l.sizes[0])), faster)
	l.known = nil
	return true
}

// quarter makes a rail four times as fast, or as slow.
func quarter(rate []float64, rail int, faster bool) {
	if faster {
		rate[rail] *= 4
	} else {
		rate[rail] /= 4
	}
}

// crowd is a busy host.
type crowd struct {
	*host
	size int
}

func newCrowd(seed uint64) simulation {
	h := randomHost(seed)
	return &crowd{h, (32 << 10) << h.rng.IntN(10)}
}

func (c *crowd) next() int {
	c.set(c.size)
	return c.size
}

func (c *crowd) over(size int) float64 {
	return c.exact(size, c.shares(size)) / c.exact(size, c.equal(size))
}

func (c *crowd) tables() int      { return c.commits }
func (c *crowd) change(bool) bool { return false }

// shapedRails are rails behind token buckets or plain ones, and what divisions take on them.
type shapedRails struct {
	*buckets
	draw func() (size int)
	took map[string]float64
}

func newShaped(seed uint64, rails int) *shapedRails {
	rate, burst := randomBuckets(seed, rails)
	s := newStream(newBuckets(seed, rate, burst))
	size := (8 << 10) << s.rng.IntN(8)
	s.draw = func() int { return size }
	return s
}

func newStream(w *buckets) *shapedRails {
	return &shapedRails{buckets: w, took: make(map[string]float64)}
}

// newTen has operations of ten sizes, in any order, over plain lines.
func newTen(seed uint64) simulation {
	rate, burst := randomBuckets(seed, 3)
	clear(burst)
	s := newStream(newBuckets(seed, rate, burst))
	s.draw = func() int { return (4 << 10) << s.rng.IntN(10) }
	return s
}

// newTurns has five sizes one after the other, behind buckets of 20 and 2 MB/s: operations of
// 0.1 ms to 0.4 s.
func newTurns(seed uint64) simulation {
	const turn = 50 // sets
	_, burst := randomBuckets(seed, 2)
	s := newStream(newBuckets(seed, []float64{20e6, 2e6}, burst))
	sizes := []int{4 << 10, 16 << 10, 128 << 10, 1 << 20, 8 << 20}
	s.rng.Shuffle(len(sizes), func(i, j int) { sizes[i], sizes[j] = sizes[j], sizes[i] })
	s.draw = func() int { return sizes[s.sets()/turn%len(sizes)] }
	return s
}

// newOverlap has 4 to 16 operations in flight together, over plain lines or behind token buckets.
func newOverlap(seed uint64, bursts bool) simulation {
	s := newDeep(seed, bursts)
	size := (64 << 10) << s.rng.IntN(7)
	s.draw = func() int { return size }
	return s
}

func newDeep(seed uint64, bursts bool) *shapedRails {
	rate, burst := randomBuckets(seed, 2+int(seed%2))
	if !bursts {
		clear(burst)
	}
	s := newStream(newBuckets(seed, rate, burst))
	s.jitter = 0.2
	s.depth = 4 + s.rng.IntN(13)
	return s
}

// newFlow has operations of several sizes in flight together.
func newFlow(seed uint64) simulation {
	s := newDeep(seed, false)
	s.draw = func() int { return flowSizes[s.rng.IntN(len(flowSizes))] }
	return &flow{s}
}

// sets is how many were observed.
func (s *shapedRails) sets() (sets int) {
	for c := range s.b.classes {
		sets += s.b.classes[c].sets
	}
	return sets
}

func (s *shapedRails) next() int {
	for {
		if size, observed := s.step(s.draw()); observed {
			return size
		}
	}
}

func (s *shapedRails) tables() int { return int(s.buckets.tables) }

func (s *shapedRails) change(faster bool) bool {
	if s.burst[0] == 0 && s.depth == 0 {
		return false
	}
	quarter(s.rate, most(s.shares(s.draw())), faster)
	clear(s.took)
	return true
}

func (s *shapedRails) over(size int) float64 {
	return s.takes(size, s.shares(size)) / s.best(size)
}

// takes is what operations of a size take on the mean, always with these shares.
func (s *shapedRails) takes(size int, shares []int) float64 {
	key := fmt.Sprint(size, shares)
	if took, ok := s.took[key]; ok {
		return took
	}
	w := s.again()
	took := w.mean(size, max(0.02, float64(20+4*s.depth)*w.fluid(size)), shares)
	s.took[key] = took
	return took
}

// likeRates are shares in proportion to the rates.
func (s *shapedRails) likeRates(size int) []int {
	weights := make([]uint32, len(s.rate))
	for i, r := range s.rate {
		weights[i] = uint32(1 + 1000*r/slices.Max(s.rate))
	}
	return plan.Rounds(s.rounds(size), weights)
}

// again is the same network, which nobody has used yet.
func (s *shapedRails) again() *buckets {
	w := &buckets{rng: rand.New(rand.NewPCG(1, 12)), rate: s.rate, burst: s.burst, depth: s.depth, jitter: s.jitter}
	w.rest()
	return w
}

// fluid is what an operation takes at the sum of all rates.
func (w *buckets) fluid(size int) float64 {
	var sum float64
	for _, r := range w.rate {
		sum += r
	}
	return bucketStart + float64(size)/sum
}

// best is what operations of a size take with the best shares that were found.
func (s *shapedRails) best(size int) float64 {
	key := fmt.Sprint(size, "best")
	if took, ok := s.took[key]; ok {
		return took
	}
	n := s.rounds(size)
	shares, step := s.likeRates(size), 1
	if size < bucketSplit { // one rail carries it
		clear(shares)
		shares[0], step = n, n
	}
	took := least(shares, step, func(shares []int) float64 { return s.takes(size, shares) })
	s.took[key] = took
	return took
}

// least is the least time that was found by moving ever fewer rounds from one rail to another.
func least(shares []int, step int, takes func(shares []int) float64) (least float64) {
	n := 0
	for _, s := range shares {
		n += s
	}
	least = takes(shares)
	for move := n; move >= step; move /= 2 {
		for moved := true; moved; {
			moved = false
			for from := range shares {
				for to := range shares {
					tried := slices.Clone(shares)
					tried[from], tried[to] = tried[from]-move, tried[to]+move
					if from == to || tried[from] < 0 {
						continue
					}
					if took := takes(tried); took < least*0.999 {
						least, shares, moved = took, tried, true
					}
				}
			}
		}
	}
	return least
}

// flow is operations of several sizes in flight together: what counts is the time of all of them.
type flow struct{ *shapedRails }

var flowSizes = [...]int{64 << 10, 256 << 10, 1 << 20, 4 << 20}

func (f *flow) next() int {
	f.shapedRails.next()
	return 0
}

func (f *flow) over(int) float64 {
	return f.remember("now", f.shapedRails.shares) / f.remember("ideal", f.likeRates)
}

// remember is the time of a flow with certain shares of each size.
func (f *flow) remember(name string, shares func(size int) []int) float64 {
	key := name
	for _, size := range flowSizes {
		key += fmt.Sprint(shares(size))
	}
	took, ok := f.took[key]
	if !ok {
		took = f.total(shares)
		f.took[key] = took
	}
	return took
}

// total is the time of some hundred operations.
func (f *flow) total(shares func(size int) []int) float64 {
	w := f.again()
	for range 300 {
		size := flowSizes[w.rng.IntN(len(flowSizes))]
		w.run(size, shares(size))
	}
	return w.now
}

// free is a group that may choose the algorithm.
type free struct {
	*group
	size int
}

func newFree(seed uint64) simulation {
	g := newGroup(seed)
	g.start(g.setup(true), true)
	return &free{g, g.size()}
}

func (f *free) next() int {
	f.set(f.size)
	return f.size
}

func (f *free) over(size int) float64 {
	least := math.Inf(1)
	for _, a := range allAlgorithms {
		least = min(least, f.best(a, size))
	}
	return f.now(size) / least
}

func (f *free) tables() int      { return f.group.tables }
func (f *free) change(bool) bool { return false }
