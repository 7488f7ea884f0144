package balance

import (
	"cmp"
	"math"
	"slices"
)

// burn is a share that has shown to be too large: with so many bytes of an operation a rail made it
// slower than it was with fewer. A line through what was measured can't tell that where a rail has
// a knee: a shaper lets a burst pass in no time, and what is more waits for tokens. Then the line
// promises again and again what the rail can't keep. What changes the rail may look the same, so a
// burn outlives a change; it concerns brief operations alone, of which 32 sets are soon over.
type burn struct {
	bytes float64 // the least of them; 0: none
	pace          // until as much may be tried again
}

// champion is the best division that a class has seen.
type champion struct {
	shares []int   // nil: none
	took   float64 // per byte, in logarithms
	others int     // sets in a row under another one
}

// learnBurns takes what a set's operations took under the shares in force, in logarithms per byte.
func (k *class) learnBurns(set []Window, took float64) {
	for i := range k.burns {
		k.burns[i].tick()
	}
	if tookOf(set) > brief && (k.best.shares == nil || math.Exp(k.best.took)*k.bytes > brief) {
		k.forgetBurns()
		return
	}
	k.remember(took)
	best := &k.best
	same := slices.Equal(best.shares, k.shares)
	if best.others++; same {
		best.others = 0
	}
	if bad := !same && took > best.took+min(k.beyondNoise(gainToSplit), math.Log(clearly)); bad && best.shares != nil && best.others < rested {
		k.burn(set)
		return
	}
	k.heal(set)
	switch {
	case same:
		best.took = (best.took + took) / 2
	case best.shares == nil || took < best.took || best.others >= rested:
		*best = champion{slices.Clone(k.shares), took, 0}
	}
}

// burn remembers what the slowest rail had, if that is more than under the best division.
func (k *class) burn(set []Window) {
	slowest := slices.MaxFunc(set, func(a, b Window) int { return cmp.Compare(a.Elapsed, b.Elapsed) })
	if k.shares[slowest.Rail] <= k.best.shares[slowest.Rail] {
		return
	}
	if k.burns == nil {
		k.burns = make([]burn, len(k.shares))
	}
	u := &k.burns[slowest.Rail]
	if bytes := float64(slowest.Bytes); u.bytes == 0 || bytes < u.bytes {
		u.bytes = bytes
	}
	if u.due() {
		u.double(penaltyPause)
	} else {
		u.repeat()
	}
}

// heal forgets the burns of rails that have as much again and make nothing worse.
func (k *class) heal(set []Window) {
	if k.burns == nil {
		return
	}
	for i := range set {
		if u := &k.burns[set[i].Rail]; float64(set[i].Bytes)*gainToSplit >= u.bytes {
			u.bytes, u.left = 0, 0
		}
	}
}

// unburned is how many of these rounds a rail may have: half the way from what it has to what it
// was burned with.
func (k *class) unburned(rail, rounds int) int {
	if k.burns == nil || k.burns[rail].due() {
		return rounds
	}
	now, burned := k.shares[rail], k.burns[rail].bytes/gainToSplit/k.bytes*float64(k.rounds)
	if float64(rounds) < burned {
		return rounds
	}
	return max(now, (now+int(burned))/2)
}

// burned reports whether a division would give a rail more than it may have.
func (k *class) burned(shares []int) bool {
	for rail, s := range shares {
		if s > k.shares[rail] && k.unburned(rail, s) < s {
			return true
		}
	}
	return false
}

// forgetBurns begins anew: the operations are of another size, or not brief.
func (k *class) forgetBurns() { k.burns, k.best, k.tried = nil, champion{}, nil }
