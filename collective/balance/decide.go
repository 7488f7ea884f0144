package balance

import (
	"math"
	"slices"
)

// best is the division that the model promises most of: all on the best rail (cold) or the shares
// by fill (hot). It is for classes of which nothing was measured; decide knows better. ok is false
// while nothing is known.
func (b *Balancer) best(c Class) (shares []int, seconds float64, ok bool) {
	k := &b.classes[c]
	rail, alone := b.bestAlone(c)
	if rail < 0 {
		return nil, 0, false
	}
	if b.undivided(c) {
		rail, alone = b.withLarge(c, b.main(), rail, alone)
	}
	hot, together := b.hot(c)
	split := hot != nil && together*gainToSplit < alone
	if !split {
		together = alone
	}
	if b.homely(k) && b.harmlessAtHome(c, together) {
		return slices.Clone(k.home), b.predict(c, k.home), true
	}
	if split {
		return hot, together, true
	}
	return b.cold(c, rail), alone, true
}

// undivided reports whether the class's operations are so small that one rail carries each of them.
func (b *Balancer) undivided(c Class) bool { return c.MaxBytes() < b.setup.SplitBytes }

// withLarge is for operations that are never divided: main, the rail that large ones are quickest
// on, unless the one that is best by a probe takes far less time. The probe's times of a few small
// operations differ by chance.
func (b *Balancer) withLarge(c Class, main, best int, alone float64) (rail int, seconds float64) {
	if main < 0 {
		return best, alone
	}
	if l := b.line(c, main, true); l.known && l.at(b.classes[c].bytes) < alone*gainToMove {
		return main, l.at(b.classes[c].bytes)
	}
	return best, alone
}

// main is the rail that large operations are quickest on; -1: nothing is known.
func (b *Balancer) main() (rail int) {
	rail, _ = b.bestAlone(largeClass)
	return rail
}

// hot is the division over several rails that ends soonest by the model; nil if that is one on a
// single rail.
func (b *Balancer) hot(c Class) (shares []int, seconds float64) {
	k := &b.classes[c]
	if k.rounds < 2 || b.undivided(c) {
		return nil, 0
	}
	startup, perRound := b.together(c)
	shares = make([]int, b.setup.Rails)
	if seconds = fill(k.rounds, startup, perRound, shares); count(shares) < 2 {
		return nil, 0
	}
	return shares, seconds * math.Exp(k.beyond)
}

// cold is the division that gives everything to one rail.
func (b *Balancer) cold(c Class, rail int) []int {
	shares := make([]int, b.setup.Rails)
	shares[rail] = b.classes[c].rounds
	return shares
}

// line is a rail's cost around a class's sizes.
func (b *Balancer) line(c Class, rail int, alone bool) line {
	k := &b.classes[c]
	bytes := k.bytes
	if !alone {
		bytes *= float64(k.shares[rail]) / float64(k.rounds)
	}
	m := b.rails[rail].of(k.form)
	return m.through(m.fit(c, alone, k.own.lean()), c, alone, bytes)
}

// bestAlone is the rail that carries the class's operations soonest by itself. A time alone that
// was not measured near here is a guess from small operations, and could be far off: then only a
// rail that carries as much as any can be meant.
func (b *Balancer) bestAlone(c Class) (rail int, seconds float64) {
	k := &b.classes[c]
	rail = -1
	guess := k.sets == 0 || k.rounds < smallPart || b.undivided(c)
	for i := range b.rails {
		l := b.line(c, i, true)
		if !l.known || !guess && !k.leads(i) && !b.tested(c, i) {
			continue
		}
		if t := l.at(k.bytes); rail < 0 || t < seconds {
			rail, seconds = i, t
		}
	}
	return rail, seconds
}

// together are the costs of the rails per round when several of them work; perRound is 0 where
// nothing is known.
func (b *Balancer) together(c Class) (startup, perRound []float64) {
	k := &b.classes[c]
	startup, perRound = make([]float64, b.setup.Rails), make([]float64, b.setup.Rails)
	for i := range b.rails {
		if l := b.line(c, i, false); l.known {
			startup[i], perRound[i] = l.startup, l.perByte*k.bytes/float64(k.rounds)
		}
	}
	return startup, perRound
}

// predict is what a division takes by the model.
func (b *Balancer) predict(c Class, shares []int) float64 {
	k := &b.classes[c]
	if main := most(shares); shares[main] == k.rounds {
		if l := b.line(c, main, true); l.known {
			return l.at(k.bytes)
		}
		return math.Inf(1)
	}
	startup, perRound := b.together(c)
	return slowest(startup, perRound, shares) * math.Exp(k.beyond)
}

// due is the division that the class should try for one set of windows, if it is time: one that the
// balancer would choose if it knew more of it, or one in which a rail that is out has a round. nil:
// none.
func (b *Balancer) due(c Class) (shares []int) {
	k := &b.classes[c]
	k.samples.tick()
	now := b.predict(c, k.shares)
	soon := k.sets > settlingSets && b.startsSlowly(c, now) || k.rest > rested && b.gainsLittle(c)
	if !k.samples.due() && !soon {
		return nil
	}
	rail, alone := b.bestAlone(c)
	switch {
	case soon: // once: on quick rails it may be half the time
		shares = b.cold(c, most(k.shares))
	case k.bytes < float64(b.setup.SplitBytes):
		if rail = b.other(c); rail < 0 {
			return nil
		}
		shares = b.cold(c, rail)
	case rail >= 0 && count(k.shares) > 1 && (alone < now || k.littleHelp() && alone < now*b.doubtAlone(c, rail)):
		shares = b.cold(c, rail)
	case k.rounds < smallPart:
		return nil
	default:
		rail, shares = -1, b.glimpse(c, now)
		if shares == nil {
			return nil
		}
	}
	if b.promises(c, rail, alone, now) {
		k.samples.repeat()
	} else {
		k.samples.double(samplePause)
	}
	return shares
}

// startsSlowly reports whether the rail that has most may do better by itself, though nothing
// promises it: what is known of it alone is a probe's, which a busy moment can make several times
// too slow, and smaller operations say that a good part of the time is startup. The trial takes
// what the best single rail does.
func (b *Balancer) startsSlowly(c Class, now float64) bool {
	k := &b.classes[c]
	rail := b.rails[most(k.shares)]
	least := math.Inf(1)
	for _, m := range rail {
		least = min(least, m.soonest(k.bytes))
	}
	return count(k.shares) > 1 && !b.tested(c, most(k.shares)) && least < now && least > leastStartup*now
}

// gainsLittle reports whether the rail that has most carries so much that a trial of it alone is
// cheap, and there was none: what it takes alone only a probe has said, which may be off by more
// than the others' help.
func (b *Balancer) gainsLittle(c Class) bool {
	k := &b.classes[c]
	return count(k.shares) > 1 && k.littleHelp() && !b.tested(c, most(k.shares))
}

// littleHelp reports whether the rail that has most would take little longer with all of it.
func (k *class) littleHelp() bool {
	return float64(k.rounds) < littleHelp*float64(k.shares[most(k.shares)])
}

// promises reports whether the rail that has most was measured to do better by itself, and only
// more trials are needed to prove it.
func (b *Balancer) promises(c Class, rail int, alone, now float64) bool {
	k := &b.classes[c]
	if rail < 0 || rail != most(k.shares) || count(k.shares) < 2 || k.atHome() || !b.tested(c, rail) {
		return false
	}
	return now/alone > gainToChange*b.doubtAlone(c, rail)
}

// doubtAlone is the quotient that noise alone may make between what a class's operations take now
// and on one rail alone.
func (b *Balancer) doubtAlone(c Class, rail int) float64 {
	k := &b.classes[c]
	return k.doubt(likely, b.evidence(c, k.shares, false), b.evidence(c, b.cold(c, rail), true))
}

// tested reports whether a rail has worked alone for operations near the class.
func (b *Balancer) tested(c Class, rail int) bool {
	return b.rails[rail].of(b.classes[c].form).tested(c)
}

// glimpse is the split that shows a rail which is out: the one over several rails that the model
// prefers, if operations that are not brief have a single rail, and it costs them little. Others give
// one round to a rail. Long operations can't: other frames would bind to a rail with so little to do
// (docs/decisions/032), and a ring waits for each. nil: there is none.
func (b *Balancer) glimpse(c Class, now float64) (shares []int) {
	k := &b.classes[c]
	if hot, seconds := b.hot(c); hot != nil && count(k.shares) == 1 && now > brief && seconds < now*clearly {
		return hot
	}
	rail := b.candidate(c)
	if rail < 0 {
		return nil
	}
	shares = slices.Clone(k.shares)
	shares[most(shares)]--
	shares[rail] = 1
	return shares
}

// candidate is the rail that is to have a single round for a trial; -1: none. One that was only
// probed may look worse than it is.
func (b *Balancer) candidate(c Class) (rail int) {
	k := &b.classes[c]
	return b.outsider(c, false, k.bytes/float64(k.rounds), greatlyFar)
}

// other is the rail that operations which are never divided are to be tried on; -1: none. A probe
// of few small operations is easily disturbed, and would be believed for ever.
func (b *Balancer) other(c Class) (rail int) {
	return b.outsider(c, true, b.classes[c].bytes, farOff)
}

// outsider is of the rails that are out the one that would end first with so many bytes; -1 if
// there is none, or it would hold the operation up: guess is how many times longer it may take
// where nothing but a probe says so.
func (b *Balancer) outsider(c Class, alone bool, bytes, guess float64) (rail int) {
	k := &b.classes[c]
	now := b.predict(c, k.shares)
	rail, soonest := -1, math.Inf(1)
	for i, share := range k.shares {
		if share > 0 {
			continue
		}
		l, harm := b.line(c, i, alone), clearly
		if alone || !b.rails[i].of(k.form).measured(c) { // one that was disturbed would be believed for ever
			harm = guess
		}
		t := l.at(bytes)
		if !l.known || t < min(soonest, now*harm) {
			rail, soonest = i, t
		}
	}
	return rail
}

// count is the number of rails that carry something.
func count[T int | uint32 | float64](shares []T) (rails int) {
	for _, s := range shares {
		if s > 0 {
			rails++
		}
	}
	return rails
}

// most is the rail with the largest share.
func most(shares []int) int {
	return slices.Index(shares, slices.Max(shares))
}
