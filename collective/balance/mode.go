package balance

import (
	"fmt"
	"slices"
)

// mode says what the next set of a class is for.
//
//	settling --(some sets since a rail has changed, no gain is promised)--> settled
//	settled --(another split is in force)--> settling
//	settling, settled --(it is time)--> sampling --(one set)--> the mode before
//	settled --(solo timings contradict the split in force)--> comparing --(some sets)--> settled
//	settled --(a split is said to be better than one that a contest led to)--> comparing
//	any --(a rail has changed)--> settling
type mode uint8

const (
	settling  mode = iota // the shares follow the lines: small gains count
	settled               // a gain must be beyond the noise
	sampling              // one set goes over a split of which more is to be known
	comparing             // the baseline and another split are in force in turns
)

func (m mode) String() string {
	return [...]string{"settling", "settled", "sampling", "comparing"}[m]
}

// resting is the mode in which no gain is promised.
func (k *class) resting() mode {
	if k.rest < settlingSets {
		return settling
	}
	return settled
}

// settle goes on with a split that is no trial.
func (k *class) settle(m mode, shares []int) {
	k.mode, k.before, k.contest = m, nil, nil
	k.use(shares)
}

// sample has a split in force for one set.
func (k *class) sample(shares []int) {
	k.mode, k.before = sampling, slices.Clone(k.shares)
	k.use(shares)
}

// compare begins a contest of the split in force, with the set that was just measured.
func (k *class) compare(took float64) {
	k.mode, k.contest = comparing, &contest{away: slices.Clone(k.shares)}
	k.contest.add(false, took)
	k.use(k.home)
}

// challenge begins a contest of home, with the set that was just measured, and a split that is said
// to be better.
func (k *class) challenge(split []int, took float64) {
	k.mode, k.contest = comparing, &contest{away: slices.Clone(split)}
	k.contest.add(true, took)
	k.use(split)
}

// use puts a split in force. It must be one of the class's rounds, and the state that of the mode.
func (k *class) use(shares []int) {
	sum := 0
	for _, s := range shares {
		sum += s
	}
	if sum != k.rounds || (k.mode == sampling) != (k.before != nil) ||
		(k.mode == comparing) != (k.contest != nil) {
		panic(fmt.Sprintf("balance: %v, split %v of %d rounds, before %v, contest %+v",
			k.mode, shares, k.rounds, k.before, k.contest))
	}
	copy(k.shares, shares)
}
