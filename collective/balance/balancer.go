package balance

import (
	"math"
	"slices"
	"time"

	"github.com/polyrail/polyrail/collective/op"
	"github.com/polyrail/polyrail/collective/plan"
	"github.com/polyrail/polyrail/collective/table"
)

// When the balancer changes a table. Gains are quotients of predicted times.
const (
	gainToSplit   = 1.03 // several rails must promise this over the best one alone (Eq. 1), for what the model leaves out
	gainToAdjust  = 1.01 // between shares, while a class settles
	gainToDisturb = 1.03 // once it has settled: hysteresis
	gainToJump    = 1.02 // below it a change is one round, so that noise moves little
	gainToMove    = 1.25 // from one single rail to another one: times of single rails carry the ranks' skew

	settling     = 4    // sets before hysteresis begins
	trialRounds  = 8    // an operation of fewer rounds tries nothing: one of them would be too large a part
	trialHarm    = 1.25 // a rail whose single round would take this many times the operation's time isn't tried
	firstTrial   = 8    // sets of windows until a rail that is out is tried
	lastTrial    = 128  // the pause doubles up to this
	reach        = 6    // classes that a measurement teaches to either side
	largestClass = 40   // 1 TiB; what is larger is divided like it
)

// Setup is what a Balancer knows from the start.
type Setup struct {
	Rails      int
	SplitBytes int64                          // smaller operations use one rail
	Ranges     []Range                        // algorithms that the user chose
	Start      *table.Table                   // the table in force
	Algorithm  func(bytes int64) op.Algorithm // what runs an operation of that size
	Owners     func(a op.Algorithm) int       // into how many blocks it cuts the buffer
}

// Balancer is Nezha's Load Balancer (§IV-C): it learns what each rail costs, and decides per size class
// whether one rail carries an operation (cold) or several do (hot), and with which shares.
// It is not safe for concurrent use.
//
// What it is told is, per class and rail, the bytes that the rail carried and how long that
// took while the others carried theirs. From that it has a line α + bytes/E per rail and algorithm, as
// measured near that class. Shares follow from the lines (fill); they are tried, measured,
// and corrected until the correction promises nothing any more.
type Balancer struct {
	setup   Setup
	rails   []models
	classes [largestClass + 1]class
}

// class is the state of one size class.
type class struct {
	algorithm op.Algorithm
	rounds    int     // of its largest operation
	bytes     float64 // mean size of the operations that were seen; its largest before
	shares    []int   // rounds by rail, in force

	sets    int // complete sets of windows, one of each rail that carries something
	quiet   bool
	waited  int // sets since the last trial
	pause   int // sets until the next one
	trial   bool
	pending []Window // of the set that comes in, by rail; Operations 0: missing
}

// NewBalancer starts from the table in force.
func NewBalancer(s Setup) *Balancer {
	b := &Balancer{setup: s, rails: make([]models, s.Rails)}
	for i := range b.rails {
		b.rails[i] = make(models)
	}
	for c := range b.classes {
		k, size := &b.classes[c], Class(c).MaxBytes()
		k.algorithm = s.Algorithm(size)
		k.bytes = float64(size)
		k.rounds = b.roundsOf(k)
		k.shares = plan.Rounds(k.rounds, s.Start.Lookup(size).Weights)
		k.pause = firstTrial
		k.pending = make([]Window, s.Rails)
	}
	return b
}

// maxUnits bounds the resolution of shares: more rounds than that are shared in larger units.
const maxUnits = 1024

// roundsOf is the number of rounds of the class's operations.
func (b *Balancer) roundsOf(k *class) int {
	return min(plan.NewLayout(int(k.bytes), 1, b.setup.Owners(k.algorithm)).Rounds, maxUnits)
}

// Switched begins all sets of windows anew: a table has come into force.
func (b *Balancer) Switched() {
	for c := range b.classes {
		clear(b.classes[c].pending)
	}
}

// Probed takes what one rail took alone for an operation of so many bytes, measured when
// the communicator formed. Decide makes shares of it.
func (b *Balancer) Probed(rail int, bytes int64, elapsed time.Duration) {
	c := min(ClassOf(bytes), largestClass)
	b.rails[rail].of(b.classes[c].algorithm).observe(c, true, bytes, elapsed)
}

// Decide makes shares for all classes from what is known, and returns the table.
func (b *Balancer) Decide() []table.Entry {
	for c := range b.classes {
		if shares, _, ok := b.best(Class(c)); ok {
			copy(b.classes[c].shares, shares)
		}
	}
	return b.Table()
}

// Observe takes the merged windows of one rail and class. When the rails of the class have all reported, it
// decides anew; changed: the table should be replaced by Table.
func (b *Balancer) Observe(w Window) (changed bool) {
	if w.Class > largestClass || w.Bytes == 0 {
		return false
	}
	k := &b.classes[w.Class]
	again := k.pending[w.Rail].Operations > 0
	if again {
		// The others carry nothing in operations as small as these: the set is as complete as it gets.
		changed = b.complete(w.Class)
	}
	k.pending[w.Rail] = w
	for rail, share := range k.shares {
		if share > 0 && k.pending[rail].Operations == 0 {
			return changed
		}
	}
	return b.complete(w.Class) || changed
}

// complete learns from a set of windows and decides.
func (b *Balancer) complete(c Class) (changed bool) {
	k := &b.classes[c]
	var total float64
	reported := 0
	for i := range k.pending {
		if w := &k.pending[i]; w.Operations > 0 {
			total += float64(w.Bytes)
			reported++
		}
	}
	k.sets++
	b.resize(k, total)
	rescaled := false
	for rail := range k.pending {
		if w := &k.pending[rail]; w.Operations > 0 {
			if b.rails[rail].of(k.algorithm).observe(c, reported == 1, w.Bytes, w.Elapsed) {
				rescaled = true
			}
		}
	}
	clear(k.pending)
	if rescaled {
		k.quiet, k.pause, k.waited = false, firstTrial, 0
	}
	changed = b.decide(c)
	if changed || rescaled || k.sets <= 3 {
		changed = b.teach(c) || changed
	}
	return changed
}

// resize follows the size of the operations that are seen in a class.
func (b *Balancer) resize(k *class, bytes float64) {
	k.bytes = bytes
	if rounds := b.roundsOf(k); rounds != k.rounds {
		weights := make([]uint32, len(k.shares))
		for i, s := range k.shares {
			weights[i] = uint32(s)
		}
		k.rounds, k.shares = rounds, plan.Rounds(rounds, weights)
	}
}

// decide brings a measured class nearer to what the model says is best.
func (b *Balancer) decide(c Class) (changed bool) {
	k := &b.classes[c]
	want, seconds, ok := b.best(c)
	if !ok {
		return false
	}
	ended := k.trial // a trial takes one set: what it showed is in the model
	k.trial = false
	now := b.predict(c, k.shares)
	if !ended && b.isDue(c) {
		return b.try(c, want)
	}
	need := gainToAdjust
	switch single := count(k.shares) == 1; {
	case single && count(want) == 1:
		need = gainToMove
	case k.quiet || single:
		need = gainToDisturb
	}
	gain := now / seconds
	if slices.Equal(want, k.shares) || gain < need && !ended {
		k.quiet = k.sets >= settling
		return false
	}
	k.quiet = false
	if gain < gainToJump && count(want) > 1 && sameRails(want, k.shares) {
		want = step(k.shares, want)
	}
	copy(k.shares, want)
	return true
}

// teach applies the model to near classes that have no measurements of their own.
func (b *Balancer) teach(c Class) (changed bool) {
	for near := max(int(c)-reach, 0); near <= min(int(c)+reach, largestClass); near++ {
		k := &b.classes[near]
		if k.sets > 0 || k.algorithm != b.classes[c].algorithm {
			continue
		}
		want, seconds, ok := b.best(Class(near))
		if !ok || slices.Equal(want, k.shares) {
			continue
		}
		if b.predict(Class(near), k.shares) > 1.1*seconds {
			changed = true
		}
		copy(k.shares, want) // goes out with the next table, worth one of its own or not
	}
	return changed
}

// best is the division that the model promises most of: all on the best rail (cold) or the shares
// by fill (hot). ok is false while nothing is known.
func (b *Balancer) best(c Class) (shares []int, seconds float64, ok bool) {
	k := &b.classes[c]
	shares = make([]int, b.setup.Rails)
	rail, alone := b.bestAlone(c)
	if rail < 0 {
		return nil, 0, false
	}
	if k.rounds > 1 && Class(c).MaxBytes() >= b.setup.SplitBytes {
		startup, perRound := b.together(c)
		if hot := fill(k.rounds, startup, perRound, shares); hot*gainToSplit < alone && count(shares) > 1 {
			b.giveUnknown(k, shares)
			return shares, hot, true
		}
	}
	clear(shares)
	shares[rail] = k.rounds
	if k.sets == 0 {
		b.giveUnknown(k, shares)
	}
	return shares, alone, true
}

// giveUnknown gives each rail that was never measured one round: that much is learned at little risk.
func (b *Balancer) giveUnknown(k *class, shares []int) {
	if k.rounds < trialRounds || k.bytes < float64(b.setup.SplitBytes) {
		return
	}
	for i := range shares {
		if len(b.rails[i].of(k.algorithm).points) == 0 {
			shares[most(shares)]--
			shares[i] = 1
		}
	}
}

// bestAlone is the rail that carries the class's operations soonest by itself. The one that does so
// now stays, unless another one is clearly better.
func (b *Balancer) bestAlone(c Class) (rail int, seconds float64) {
	k := &b.classes[c]
	rail = -1
	for i := range b.rails {
		l := b.rails[i].of(k.algorithm).fit(c, true)
		if !l.known {
			continue
		}
		if t := l.at(k.bytes); rail < 0 || t < seconds {
			rail, seconds = i, t
		}
	}
	return rail, seconds
}

// together are the costs of the rails per round when several of them work; perRound is 0 where nothing is known.
func (b *Balancer) together(c Class) (startup, perRound []float64) {
	k := &b.classes[c]
	startup, perRound = make([]float64, b.setup.Rails), make([]float64, b.setup.Rails)
	for i := range b.rails {
		if l := b.rails[i].of(k.algorithm).fit(c, false); l.known {
			startup[i], perRound[i] = l.startup, l.perByte*k.bytes/float64(k.rounds)
		}
	}
	return startup, perRound
}

// predict is what a division takes by the model.
func (b *Balancer) predict(c Class, shares []int) float64 {
	k := &b.classes[c]
	if main := most(shares); shares[main] == k.rounds {
		if l := b.rails[main].of(k.algorithm).fit(c, true); l.known {
			return l.at(k.bytes)
		}
		return math.Inf(1)
	}
	startup, perRound := b.together(c)
	return slowest(startup, perRound, shares)
}

// isDue reports whether the class should try a rail that is out.
func (b *Balancer) isDue(c Class) bool {
	k := &b.classes[c]
	k.waited++
	return k.waited >= k.pause && k.rounds >= trialRounds && k.bytes >= float64(b.setup.SplitBytes) && b.candidate(c) >= 0
}

// candidate is the rail to be tried: of those that are out, the one whose single round would end first; -1 if
// there is none, or it would hold the operation up.
func (b *Balancer) candidate(c Class) (rail int) {
	k := &b.classes[c]
	now := b.predict(c, k.shares)
	rail, soonest := -1, now*trialHarm
	for i, share := range k.shares {
		if share > 0 {
			continue
		}
		l := b.rails[i].of(k.algorithm).fit(c, false)
		if t := l.at(k.bytes / float64(k.rounds)); !l.known || t < soonest {
			rail, soonest = i, t
		}
	}
	return rail
}

// try gives a rail that is out one round, for one set of windows.
func (b *Balancer) try(c Class, want []int) bool {
	k := &b.classes[c]
	rail := b.candidate(c)
	k.waited, k.pause = 0, min(2*k.pause, lastTrial)
	if want[rail] == 0 {
		want[most(want)]--
		want[rail] = 1
	}
	k.trial = true
	copy(k.shares, want)
	return true
}

// Table is the table of the shares that were decided.
func (b *Balancer) Table() []table.Entry {
	ends := make([]int64, 0, len(b.classes)+len(b.setup.Ranges))
	for c := range largestClass {
		ends = append(ends, Class(c).MaxBytes())
	}
	for _, r := range b.setup.Ranges {
		if r.MaxBytes > 0 {
			ends = append(ends, r.MaxBytes)
		}
	}
	slices.Sort(ends)
	var entries []table.Entry
	for _, end := range append(slices.Compact(ends), 0) {
		c := Class(largestClass)
		if end != 0 {
			c = min(ClassOf(end), largestClass)
		}
		e := table.Entry{MaxBytes: end, Weights: make([]uint32, b.setup.Rails), Algorithm: algorithmOf(end, b.setup.Ranges)}
		k := &b.classes[c]
		for rail, share := range k.shares {
			e.Weights[rail] = uint32(share)
			if share == k.rounds {
				e.Weights[rail] = 1 // all of it, however many rounds that is: equal entries become one
			}
		}
		if last := len(entries) - 1; last >= 0 && entries[last].Algorithm == e.Algorithm && slices.Equal(entries[last].Weights, e.Weights) {
			entries[last].MaxBytes = end
			continue
		}
		entries = append(entries, e)
	}
	return entries
}

// count is the number of rails that carry something.
func count(shares []int) (rails int) {
	for _, s := range shares {
		if s > 0 {
			rails++
		}
	}
	return rails
}

// most is the rail with the largest share.
func most(shares []int) (rail int) {
	for i, s := range shares {
		if s > shares[rail] {
			rail = i
		}
	}
	return rail
}

func sameRails(a, b []int) bool {
	for i := range a {
		if (a[i] > 0) != (b[i] > 0) {
			return false
		}
	}
	return true
}

// step moves about 1 %, a round at least, from the rail that has most too many to the one that has most too few.
func step(from, to []int) []int {
	next, over, under, rounds := slices.Clone(from), 0, 0, 0
	for i := range from {
		rounds += from[i]
		if from[i]-to[i] > from[over]-to[over] {
			over = i
		}
		if to[i]-from[i] > to[under]-from[under] {
			under = i
		}
	}
	move := min(max(rounds/100, 1), from[over]-to[over], to[under]-from[under])
	next[over] -= move
	next[under] += move
	return next
}
