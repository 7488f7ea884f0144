package balance

import (
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
	probeWeight  = 0.9  // of a probed point, in windows
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
	m := b.rails[rail].of(b.classes[c].algorithm)
	m.points = append(m.points, point{class: c, alone: true, bytes: float64(max(bytes, 1)), seconds: max(elapsed, 1).Seconds(), weight: probeWeight})
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
		k.quiet = false
	}
	if rescaled && !k.trial {
		k.pause, k.waited = firstTrial, 0
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
