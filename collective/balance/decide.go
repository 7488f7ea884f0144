package balance

import (
	"math"
	"slices"
)

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
