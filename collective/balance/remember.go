package balance

import (
	"cmp"
	"math"
	"slices"
)

// division is what operations took with shares that were in force.
//
// Behind a shaper no line tells what a rail does with more or less: it takes next to nothing until
// what it had saved up is used, which may be many operations later, and saves again while another
// rail is slower. What whole operations took with a division goes before what the lines promise of
// it, once a rail was burned.
type division struct {
	shares []int
	took   float64 // per byte, in logarithms; of the last sets
	sets   int     // in a row
	age    int     // sets since
}

// remember takes what a set's operations took under the shares in force, in logarithms per byte.
func (k *class) remember(took float64) {
	for i := range k.tried {
		k.tried[i].age++
	}
	k.tried = slices.DeleteFunc(k.tried, func(d division) bool { return d.age > remembered })
	d := k.recall(k.shares)
	if d != nil && math.Abs(took-d.took) > k.beyondNoise(greatly) { // the network is another one
		k.tried, d = nil, nil
	}
	if d == nil {
		k.tried = append(k.tried, division{slices.Clone(k.shares), took, 1, 0})
		return
	}
	if d.age > 1 {
		d.sets = 0
	}
	*d = division{d.shares, (d.took + took) / 2, d.sets + 1, 0}
}

// recall is what is remembered of a division; nil: nothing.
func (k *class) recall(shares []int) *division {
	if i := slices.IndexFunc(k.tried, func(d division) bool { return slices.Equal(d.shares, shares) }); i >= 0 {
		return &k.tried[i]
	}
	return nil
}

// disproved reports whether a division took no less than the one in force does, whatever the lines
// promise.
func (k *class) disproved(shares []int) bool {
	now, then := k.recall(k.shares), k.recall(shares)
	return k.burns != nil && now != nil && then != nil && then.took >= now.took
}

// shown is the division that took least, if that is less than what the one in force does and
// nothing else promises more; nil: it isn't, or too little is known.
func (k *class) shown() (shares []int) {
	now := k.recall(k.shares)
	if k.mode == settling || k.burns == nil || now == nil || now.sets < settlingSets {
		return nil
	}
	best := slices.MinFunc(k.tried, func(a, b division) int { return cmp.Compare(a.took, b.took) })
	if now.took-best.took < k.beyondNoise(gainToSplit) {
		return nil
	}
	return best.shares
}

// retreat is the best split, where the one in force is much worse; nil: it isn't.
func (k *class) retreat(took float64) (best []int) {
	if k.burns == nil || k.best.shares == nil || k.mode == sampling || slices.Equal(k.shares, k.best.shares) ||
		took-k.best.took <= k.beyondNoise(greatly) {
		return nil
	}
	return k.best.shares
}

// beyondNoise is a factor, and what noise makes of two sets' times on top, in logarithms.
func (k *class) beyondNoise(factor float64) float64 {
	return math.Log(factor) + likely*k.whole.deviation()
}
