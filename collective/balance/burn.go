package balance

import (
	"cmp"
	"math"
	"slices"
)

// What a division that made things worse is remembered for.
const (
	worse          = 1.03 // times what operations take under the best division, and beyond the noise
	beyondTheNoise = 2    // standard deviations of it
	surelyWorse    = 1.25 // whatever the noise is
	sameBurn       = 0.97 // of the bytes that a rail was burned with: still as much
	firstForgiven  = 32   // sets until as much may be tried again
	lastForgiven   = 1024 // twice as many when that burns again, up to this
	settledIn      = 16   // sets in a row under a division that make it the one to compare with, whatever was better once
	brief          = 0.01 // seconds, of operations that a burst can be a large part of
)

// burn is a share that has shown to be too large: with so many bytes of an operation a rail made it slower than it was with fewer. A line
// through what was measured can't tell that where a rail has a knee: a shaper lets a burst pass in no time, and what is more waits for tokens. Then
// the line promises again and again what the rail can't keep. What changes the rail may look the same, so a burn outlives a change; it concerns brief operations alone,
// of which 32 sets are soon over.
type burn struct {
	bytes float64 // the least of them; 0: none
	left  int     // sets until as much may be tried again; 0: it may
	pause int     // what left begins with
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
		k.burns[i].left = max(k.burns[i].left-1, 0)
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
	if bad := !same && took > best.took+min(k.beyondNoise(worse), math.Log(surelyWorse)); bad && best.shares != nil && best.others < settledIn {
		k.burn(set)
		return
	}
	k.heal(set)
	switch {
	case same:
		best.took = (best.took + took) / 2
	case best.shares == nil || took < best.took || best.others >= settledIn:
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
	if u.left == 0 {
		u.pause = min(max(2*u.pause, firstForgiven), lastForgiven)
	}
	if bytes := float64(slowest.Bytes); u.bytes == 0 || bytes < u.bytes {
		u.bytes = bytes
	}
	u.left = u.pause
}

// heal forgets the burns of rails that have as much again and make nothing worse.
func (k *class) heal(set []Window) {
	if k.burns == nil {
		return
	}
	for i := range set {
		if u := &k.burns[set[i].Rail]; float64(set[i].Bytes) >= sameBurn*u.bytes {
			u.bytes, u.left = 0, 0
		}
	}
}

// unburned is how many of these rounds a rail may have: half the way from what it has to what it was burned with.
func (k *class) unburned(rail, rounds int) int {
	if k.burns == nil || k.burns[rail].left == 0 {
		return rounds
	}
	now, burned := k.shares[rail], sameBurn*k.burns[rail].bytes/k.bytes*float64(k.rounds)
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
