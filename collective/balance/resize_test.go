package balance

import (
	"math"
	"slices"
	"testing"

	"github.com/polyrail/polyrail/collective/op"
	"github.com/polyrail/polyrail/collective/table"
)

// splits are all that a class knows.
func (k *class) splits() (all [][]int) {
	all = append(all, k.shares, k.home, k.before, k.best.shares)
	for i := range k.tried {
		all = append(all, k.tried[i].shares)
	}
	if k.contest != nil {
		all = append(all, k.contest.away)
	}
	return slices.DeleteFunc(all, func(shares []int) bool { return shares == nil })
}

// Operations of 17 to 32 KiB are of fewer or more rounds. A trial's end must not restore shares of
// others.
func TestSharesOfAClassAlwaysSumToItsRounds(t *testing.T) {
	for seed := range uint64(100) {
		w := noisy(seed)
		for range 60 {
			w.set((17 + w.rng.IntN(16)) << 10)
			w.b.classes[15].expectWhole(t)
		}
	}
}

func roundsIn(shares []int) (rounds int) {
	for _, s := range shares {
		rounds += s
	}
	return rounds
}

// A class that another algorithm takes over, or that a file restores, has a size of its own already.
func TestTheBaselineHasTheRoundsOfAClassThatBeginsAnew(t *testing.T) {
	const small = 17 << 10 // fewer rounds than the class's largest size
	g := slowStart()
	g.start(g.setup(true), true)
	for range 200 {
		g.set(small)
		for c := range g.b.classes {
			g.b.classes[c].expectWhole(t)
		}
	}
	if g.tables == 0 {
		t.Fatal("no algorithm was tried")
	}
	saved, ok := g.b.Save()
	if !ok {
		t.Fatal("nothing to restore")
	}
	next := NewBalancer(g.setup(true))
	next.Learn(saved.Samples)
	next.Restore(saved.Classes)
	next.classes[ClassOf(small)].expectWhole(t)
}

// expectWhole fails if a split that the class knows is not of its rounds.
func (k *class) expectWhole(t *testing.T) {
	t.Helper()
	for _, shares := range k.splits() {
		if roundsIn(shares) != k.rounds {
			t.Fatalf("a split %v of %d rounds, in force %v", shares, k.rounds, k.shares)
		}
	}
}

// A class with two sizes in turn ends its contests, and keeps what brief operations took.
func TestASizeKeepsWhatAnotherOneOfItsClassHasLearned(t *testing.T) {
	w := noisy(1)
	const small, large = 20 << 10, 32 << 10
	w.set(large)
	k := &w.b.classes[ClassOf(large)]
	away := slices.Clone(k.home)
	away[0], away[1] = away[0]+8, away[1]-8
	k.mode, k.contest = comparing, &contest{away: away, pairs: 2}
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

// What a peer says of its windows, or a file of a class, may be any number of bytes.
func TestAnySizeFromOutsideCanBeDivided(t *testing.T) {
	setup := Setup{Rails: 2, Start: &table.Table{Entries: []table.Entry{{Weights: Equal(2)}}},
		Algorithm: func(int64) op.Algorithm { return op.Chain }, Owners: func(op.Algorithm) int { return 1 }}
	for _, bytes := range []int64{0, 1, 1 << 40, 1<<63 - 1024, math.MaxInt64} {
		for _, class := range []Class{0, someClass, Classes - 1} {
			set := []Window{{Class: class, Operations: 1, Bytes: bytes},
				{Rail: 1, Class: class, Operations: 1, Bytes: bytes}}
			merged, _, err := NewCollector(1, 2, func(Class) uint32 { return 0 }, 0).Observe(0, set)
			if err != nil {
				t.Fatal(err)
			}
			b := NewBalancer(setup)
			b.Observe(merged)
			if err := (&table.Table{Entries: b.Table()}).Validate(2); err != nil {
				t.Errorf("windows of %d bytes in class %d: %v", bytes, class, err)
			}
		}
		saved := Saved{Classes: []SavedClass{{Class: ClassOf(bytes), Algorithm: op.Chain, Bytes: bytes,
			Shares: Equal(2), Windows: 1}}}
		if saved.Validate(2) != nil {
			continue
		}
		restored := NewBalancer(setup).Restore(saved.Classes)
		if err := (&table.Table{Entries: restored}).Validate(2); err != nil {
			t.Errorf("a file's class of %d bytes: %v", bytes, err)
		}
	}
}
