package balance

import (
	"math"
	"slices"
	"time"

	"github.com/polyrail/polyrail/collective/op"
	"github.com/polyrail/polyrail/collective/plan"
	"github.com/polyrail/polyrail/collective/schedule"
	"github.com/polyrail/polyrail/collective/table"
)

// Setup is what a Balancer knows from the start.
type Setup struct {
	Rails      int
	SplitBytes int64                          // smaller operations use one rail
	Ranges     []Range                        // algorithms that the user chose
	Start      *table.Table                   // the table in force
	Algorithm  func(bytes int64) op.Algorithm // what runs an operation of that size
	Owners     func(a op.Algorithm) int       // into how many blocks it cuts the buffer

	// With order: free, what may run operations of that size, and what that takes by its form; nil
	// otherwise.
	Free func(bytes int64) []op.Algorithm
	Cost func(a op.Algorithm) schedule.Cost

	// TreeBytes is the largest operation that goes over a tree only where that is measured to be
	// faster; 0: there are none, or another rule.
	TreeBytes int64
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
	classes [Classes]class
	choices [Classes]*choice // nil: the class's algorithm is fixed
	probed  [Classes]spread  // of the probe's operations, by their size
	told    *table.Table     // the last one that was asked for, or the one at the start
	trees   []bool           // by rail: it has a tree
}

// NewBalancer starts from the table in force.
func NewBalancer(s Setup) *Balancer {
	b := &Balancer{setup: s, rails: make([]models, s.Rails), told: s.Start, trees: make([]bool, s.Rails)}
	for i := range b.rails {
		b.rails[i] = make(models)
	}
	for c := range b.classes {
		b.classes[c] = b.newClass(Class(c), form{algorithm: s.Algorithm(Class(c).MaxBytes())})
		b.choices[c] = b.newChoice(Class(c), b.classes[c].algorithm)
	}
	return b
}

// Probed takes what one rail took alone for operations of so many bytes, measured when the
// communicator formed: the quickest is the rail's, the others show the noise. Decide makes shares
// of it.
func (b *Balancer) Probed(rail int, bytes int64, elapsed ...time.Duration) {
	c := ClassOf(bytes)
	m := b.rails[rail].of(b.classes[c].form)
	quickest := max(slices.Min(elapsed), 1)
	m.points = append(m.points, point{class: c, alone: true, bytes: float64(max(bytes, 1)), seconds: quickest.Seconds(), weight: probeWeight})
	if bytes >= b.setup.SplitBytes {
		b.noise(c, elapsed)
	}
}

// Decide makes shares for all classes from what is known, and returns the table.
func (b *Balancer) Decide() []table.Entry {
	for c := range b.classes {
		k := &b.classes[c]
		if k.sets == 0 {
			noise := b.assumed(Class(c))
			k.own, k.common, k.whole = noise, noise, noise
		}
		if shares, _, ok := b.best(Class(c)); ok {
			copy(k.shares, shares)
		}
	}
	return b.Table()
}

// Observe takes a merged set of windows, and decides anew; changed: the table should be replaced by
// Table.
func (b *Balancer) Observe(set []Window) (changed bool) {
	var total float64
	for i := range set {
		total += float64(set[i].Bytes)
	}
	if len(set) == 0 || total == 0 {
		return false
	}
	c := set[0].Class
	k := &b.classes[c]
	if k.sets == 0 { // it ran as the table says, whatever the class was taught since
		k.shares = plan.Rounds(k.rounds, b.told.Lookup(int64(total)).Weights)
		b.inherit(c)
	}
	k.sets++
	b.resize(k, total)
	took := math.Log(tookOf(set) / total)
	k.note(took)
	if !b.undivided(c) {
		k.learnBurns(set, took)
	}
	k.learnBeyond(set)
	atRest := k.mode == settled
	rescaled := b.learn(c, set)
	if changed = b.decide(c, took, rescaled); changed {
		k.last = 0
	}
	if changed || rescaled || !atRest {
		changed = b.teach(c) || changed
	}
	changed = b.lead(c) || changed
	return b.choose(c, wholeOf(set), atRest, rescaled, changed) || changed
}

// option is a division that a class could change to.
type option struct {
	shares  []int
	seconds float64
	need    float64 // gain over the shares in force that it must promise
}

// decide takes a class from one mode to the next, with the split of its next sets. Took is what the
// set's operations did, per byte in logarithms.
func (b *Balancer) decide(c Class, took float64, rescaled bool) (changed bool) {
	k := &b.classes[c]
	now := slices.Clone(k.shares)
	b.step(c, took, rescaled)
	return !slices.Equal(now, k.shares)
}

// step asks the questions of docs/balancing.md in their order.
func (b *Balancer) step(c Class, took float64, rescaled bool) {
	k := &b.classes[c]
	k.rest++
	k.trials.tick()
	sampled := k.mode == sampling
	if rescaled {
		k.rest, k.trials = 0, newPace(samplePause)
		if !sampled {
			k.samples = b.samples(c.MaxBytes())
		}
		if k.mode == comparing {
			k.settle(settling, k.shares)
		}
	}
	if k.mode == comparing {
		k.contend(took)
		return
	}
	if b.leave(c, k.retreat(took), took) {
		return
	}
	if sampled { // what it showed is in the lines
		k.settle(k.resting(), k.before)
	}
	if b.leave(c, b.better(c), took) {
		return
	}
	if k.settle(k.resting(), k.shares); sampled {
		return
	}
	if b.leave(c, k.shown(), took) {
		return
	}
	if b.suspect(c) {
		k.compare(took)
	} else if shares := b.due(c); shares != nil {
		k.sample(shares)
	}
}

// leave goes over to a split that is said to be better, if there is one and the class may leave its
// own: on a noisy host it needs proof to leave home, and where a contest has led there, another one.
func (b *Balancer) leave(c Class, want []int, took float64) bool {
	k := &b.classes[c]
	switch {
	case want == nil:
		return false
	case !b.guarded(c):
		k.settle(settling, want)
	case b.doubtful(c, want):
		return false
	case !k.contested():
		k.settle(settling, want)
	case k.trials.due():
		k.challenge(want, took)
	default:
		return false
	}
	return true
}

// better is the option that promises most beyond what it must; nil: none does.
func (b *Balancer) better(c Class) (shares []int) {
	k := &b.classes[c]
	now, most := b.predict(c, k.shares), 1.0
	var chosen option
	for _, o := range b.options(c) {
		if gain := now / o.seconds / o.need; gain > most && !slices.Equal(o.shares, k.shares) && !k.disproved(o.shares) {
			chosen, most = o, gain
		}
	}
	return chosen.shares
}

// options are the best division over several rails and the best single rail. What one must promise
// grows with the doubt in the two times that are compared: the noise of the measurements, and how
// few of them there are.
func (b *Balancer) options(c Class) (options []option) {
	k := &b.classes[c]
	single := count(k.shares) == 1
	doubt := doubtWhileSettling
	// One that is never divided loses little by another rail, and has few measurements of it.
	if k.mode != settling && k.bytes >= float64(b.setup.SplitBytes) {
		doubt = likely
	}
	together := b.evidence(c, k.shares, false)
	if shares, seconds := b.hot(c); shares != nil {
		o := option{shares, seconds, gainToSplit}
		if !single {
			o.need = gainToChange * math.Exp(doubt*k.own.deviation()/math.Sqrt(max(together, 1)))
		} else if joint := b.evidence(c, shares, false); joint >= fade { // that they are worth it was tried
			o.need *= k.doubt(min(doubt, 1), joint, b.evidence(c, k.shares, true))
		}
		if b.bound(k, o.shares); b.predict(c, o.shares) < b.predict(c, k.shares) { // each step is to be one forward
			options = append(options, o)
		}
	}
	if rail, seconds := b.bestAlone(c); rail >= 0 {
		main := -1
		if b.undivided(c) {
			main = b.main()
			rail, seconds = b.withLarge(c, main, rail, seconds)
		}
		o := option{b.cold(c, rail), seconds, gainToChange}
		known := together
		if single {
			o.need, known = gainToMove, b.evidence(c, k.shares, true)
			if rail == main {
				o.need = 1 / gainToMove
			}
		}
		if !single && k.littleHelp() && b.tested(c, rail) {
			o.need = 1 // one rail is worth a tie
		} else {
			o.need *= k.doubt(doubt, known, b.evidence(c, o.shares, true))
		}
		options = append(options, o)
	}
	return options
}

// doubt is the quotient of two times that noise alone may make, by so many standard deviations,
// where so many measurements speak for each.
func (k *class) doubt(deviations, one, other float64) float64 {
	return math.Exp(deviations * k.common.deviation() * math.Sqrt(1/one+1/other))
}

// bound keeps each share from growing by more than mostGrowth, and to what it was burned with. In a
// division that is right, twice a rail's share is twice the time, which is at most twice the best
// single rail's.
func (b *Balancer) bound(k *class, shares []int) {
	over := 0
	free := k.burns == nil && (k.own.quiet() || k.rest == 0) // nothing is in doubt
	for i, s := range shares {
		has := k.shares[i]
		if k.burns != nil && k.best.shares != nil { // what went well may be had again
			has = max(has, k.best.shares[i])
		}
		most := s
		if !free {
			most = k.unburned(i, min(s, max(mostGrowth*has, k.rounds/smallPart, 1)))
		}
		if s > most {
			over += s - most
			shares[i] = most
		}
	}
	shares[most(k.shares)] += over
}

// evidence is how many measurements speak for the time of a division: those of the rail that was
// measured least.
func (b *Balancer) evidence(c Class, shares []int, alone bool) float64 {
	least := math.Inf(1)
	for i, s := range shares {
		if s > 0 {
			least = min(least, b.rails[i].of(b.classes[c].form).evidence(c, alone))
		}
	}
	return max(least, otherMode) // of what was measured in the other mode alone
}

// named is the algorithm that the table has for the class which ends there. With a fixed order it
// is the one that the table had from the start.
func (b *Balancer) named(end int64, c Class) op.Algorithm {
	a := algorithmOf(end, b.setup.Ranges)
	switch {
	case a != op.Auto:
		return a
	case b.choices[c] != nil && b.setup.Free != nil:
		return b.classes[c].algorithm
	case end == 0:
		end = math.MaxInt64
	}
	return b.setup.Start.Lookup(end).Algorithm
}

// Table is the table of the shares that were decided. It is to be in force when the next windows
// are observed.
func (b *Balancer) Table() []table.Entry {
	ends := make([]int64, 0, len(b.classes)+len(b.setup.Ranges))
	for c := range Classes - 1 {
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
		c := Class(Classes - 1)
		if end != 0 {
			c = ClassOf(end)
		}
		k := &b.classes[c]
		e := table.Entry{MaxBytes: end, Weights: make([]uint32, b.setup.Rails), Algorithm: b.named(end, c),
			Route: b.route(end, c)}
		for rail, share := range k.shares {
			e.Weights[rail] = uint32(share)
			if share == k.rounds {
				e.Weights[rail] = 1 // all of it, however many rounds that is: equal entries become one
			}
		}
		if last := len(entries) - 1; last >= 0 && entries[last].Algorithm == e.Algorithm && entries[last].Route == e.Route && slices.Equal(entries[last].Weights, e.Weights) {
			entries[last].MaxBytes = end
			continue
		}
		entries = append(entries, e)
	}
	b.told = &table.Table{Entries: entries}
	return entries
}
