package balance

import (
	"math"
	"slices"

	"github.com/polyrail/polyrail/collective/plan"
	"github.com/polyrail/polyrail/collective/schedule"
)

// class is the state of one size class.
type class struct {
	form
	rounds int     // of its largest operation
	bytes  float64 // mean size of the operations that were seen; its largest before
	shares []int   // rounds by rail, in force

	sets    int // of windows, one of each rail that carries something
	rest    int // sets since a rail has changed
	mode    mode
	samples pace  // of trials of a rail
	before  []int // the shares that a trial has interrupted; nil: none goes on

	suspects []suspect // by rail
	own      spread    // of the rails' times against each other's
	common   spread    // of all rails' times, and of one that works alone

	home    []int    // equal shares
	contest *contest // of home and other shares; nil: none goes on
	trials  pace     // of the next ones
	last    float64  // what the set before took per byte, in logarithms; 0: it was under other shares
	whole   spread   // of that
	best    champion
	burns   []burn     // by rail; nil: none yet
	tried   []division // that brief operations ran with
	beyond  float64    // how much longer operations over several rails take than the one that ends last on the mean, as a logarithm
}

// suspect is a rail's last time, where that was far from what was expected and may have been noise.
type suspect struct {
	off   float64 // by how much, in logarithms; 0: it wasn't
	moved float64 // how much of that is expected since
}

// newClass has the shares of the table that was in force at the start.
func (b *Balancer) newClass(c Class, f form) class {
	size := c.MaxBytes()
	k := class{form: f, bytes: float64(size)}
	k.rounds = b.roundsOf(&k)
	k.shares = plan.Rounds(k.rounds, b.setup.Start.Lookup(size).Weights)
	k.home = slices.Clone(k.shares)
	k.samples, k.trials = b.samples(size), newPace(samplePause)
	k.suspects = make([]suspect, b.setup.Rails)
	return k
}

// samples is the pace at which operations of a size begin to try what is out.
func (b *Balancer) samples(size int64) pace {
	if size < b.setup.SplitBytes {
		return newPace(1) // one costs next to nothing, and nothing else tells
	}
	return newPace(samplePause)
}

// roundsOf is the number of rounds of the class's operations. Those that are larger than any class
// divide like the last one's: their size is what a peer or a file says, and may be anything.
func (b *Balancer) roundsOf(k *class) int {
	bytes := int(min(k.bytes, float64(Class(Classes-1).MaxBytes())))
	longest := (bytes + b.setup.Owners(k.algorithm) - 1) / b.setup.Owners(k.algorithm)
	return min(plan.RoundsOf(longest, schedule.Cost{}), maxUnits)
}

// inherit begins with the noise of the nearest class that was measured: much of it is the host's.
// What disturbs operations comes by time, so of longer ones a window is the mean of more of it.
func (b *Balancer) inherit(c Class) {
	for away := 1; away < Classes; away++ {
		for _, near := range []int{int(c) - away, int(c) + away} {
			if near >= 0 && near < Classes && b.classes[near].sets > 0 {
				k, from := &b.classes[c], &b.classes[near]
				longer := b.predict(c, k.shares) / b.predict(Class(near), from.shares)
				if !(longer > 1) || math.IsInf(longer, 1) { // or not known
					longer = 1
				}
				k.own, k.common, k.whole = from.own.over(longer), from.common.over(longer), from.whole.over(longer)
				return
			}
		}
	}
}

// resize follows the size of the operations that are seen in a class. All splits that the class knows
// keep their proportions: its sizes may come in turns, and each must find what the others learned.
func (b *Balancer) resize(k *class, bytes float64) {
	k.bytes = bytes
	rounds := b.roundsOf(k)
	if rounds == k.rounds {
		return
	}
	home := plan.Rounds(rounds, b.setup.Start.Lookup(int64(bytes)).Weights)
	rescale := func(shares []int) []int {
		switch {
		case shares == nil:
			return nil
		case slices.Equal(shares, k.home): // whatever rounding would make of it
			return slices.Clone(home)
		}
		return plan.Rounds(rounds, weightsOf(shares))
	}
	k.shares, k.before = rescale(k.shares), rescale(k.before)
	k.best.shares = rescale(k.best.shares)
	for i := range k.tried {
		k.tried[i].shares = rescale(k.tried[i].shares)
	}
	if k.contest != nil {
		k.contest.away = rescale(k.contest.away)
	}
	k.rounds, k.home = rounds, home
}
