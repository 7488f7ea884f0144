package balance

import (
	"slices"
	"testing"
)

// splits are all that a class knows.
func (k *class) splits() (all [][]int) {
	all = append(all, k.shares, k.home, k.before, k.refused, k.best.shares)
	for i := range k.tried {
		all = append(all, k.tried[i].shares)
	}
	if k.contest != nil {
		all = append(all, k.contest.away)
	}
	return slices.DeleteFunc(all, func(shares []int) bool { return shares == nil })
}

// Operations of 17 to 32 KiB are of fewer or more rounds. A trial's end must not restore shares of others.
func TestSharesOfAClassAlwaysSumToItsRounds(t *testing.T) {
	for seed := range uint64(100) {
		w := noisy(seed)
		for n := range 60 {
			w.set((17 + w.rng.IntN(16)) << 10)
			k := &w.b.classes[15]
			for _, shares := range k.splits() {
				if roundsIn(shares) != k.rounds {
					t.Fatalf("seed %d, set %d: %v of %d rounds, in force %v", seed, n, shares, k.rounds, k.shares)
				}
			}
		}
	}
}

func roundsIn(shares []int) (rounds int) {
	for _, s := range shares {
		rounds += s
	}
	return rounds
}

// A class with two sizes in turn ends its contests, and keeps what brief operations took.
func TestASizeKeepsWhatAnotherOneOfItsClassHasLearned(t *testing.T) {
	w := noisy(1)
	const small, large = 20 << 10, 32 << 10
	w.set(large)
	k := &w.b.classes[ClassOf(large)]
	away := slices.Clone(k.home)
	away[0], away[1] = away[0]+8, away[1]-8
	k.contest = &contest{away: away, pairs: 2}
	k.tried = []division{{shares: slices.Clone(away), took: -10, sets: 3}}
	k.burns = make([]burn, len(w.rate))
	k.best = champion{shares: slices.Clone(away), took: -10}
	before := k.rounds
	w.b.resize(k, small)
	if k.rounds == before {
		t.Fatalf("both sizes have %d rounds", before)
	}
	if k.contest == nil || k.contest.pairs != 2 || len(k.tried) != 1 || k.burns == nil || k.best.shares == nil {
		t.Errorf("another size made the class forget: %+v", k)
	}
}
