package balance

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/polyrail/polyrail/collective/op"
	"github.com/polyrail/polyrail/collective/table"
)

// Each test here fails when the constant that it is about is halved or doubled; of a gain, what is
// above 1.

// The class of these tests: 96 rounds, two rails.
const (
	someClass = Class(20)
	someTime  = 20e-3 // seconds, of a whole operation on the first rail
)

// exactly is a balancer that knows of rails without startup and without noise. Slower says how many
// times as long as the first rail each takes alone. The class has settled on those shares.
func exactly(shares []int, slower ...float64) (*Balancer, *class) {
	b := NewBalancer(Setup{Rails: len(slower), SplitBytes: 8 << 10, Start: &table.Table{Entries: []table.Entry{{Weights: Equal(len(slower))}}},
		Algorithm: func(int64) op.Algorithm { return op.Ring }, Owners: func(op.Algorithm) int { return 4 }})
	k := &b.classes[someClass]
	k.shares, k.mode, k.sets, k.rest = shares, settled, 10, 10
	for _, s := range []*spread{&k.own, &k.common, &k.whole} {
		s.variance = 1e-12
	}
	for rail, x := range slower {
		b.knows(rail, someClass, true, 1, x*someTime)
		b.knows(rail, someClass, false, 1, x*someTime)
	}
	return b, k
}

// knows adds a measurement of a part of a class's operations.
func (b *Balancer) knows(rail int, c Class, alone bool, part, seconds float64) {
	m := b.rails[rail].of(b.classes[c].form)
	m.points = append(m.points, point{class: c, alone: alone, bytes: part * float64(c.MaxBytes()), seconds: seconds, weight: 1})
}

// between fails unless a limit is above the first value, and not above the second one.
func between(t *testing.T, name string, low, high float64, above func(value float64) bool) {
	t.Helper()
	if above(low) || !above(high) {
		t.Errorf("%s is not between %v and %v: %v, %v", name, low, high, above(low), above(high))
	}
}

// moves reports whether a balancer whose class has 48 rounds on each of two rails wants others that
// promise such a gain.
func moves(gain float64, change func(k *class)) bool {
	b, k := exactly([]int{48, 48}, 1, gain*49/48)
	if change != nil {
		change(k)
	}
	return b.better(someClass) != nil
}

func TestATableMustGain(t *testing.T) {
	between(t, "gainToChange", 1.012, 1.02, func(gain float64) bool { return moves(gain, nil) })
}

func TestSeveralRailsMustGain(t *testing.T) {
	between(t, "gainToSplit", 2, 4, func(rounds float64) bool { // that a second rail takes off the first one
		b, _ := exactly([]int{96, 0}, 1, (96-rounds)/rounds)
		return b.better(someClass) != nil
	})
}

func TestAnotherSingleRailMustGain(t *testing.T) {
	between(t, "gainToMove", 1.2, 1.3, func(gain float64) bool {
		b, _ := exactly([]int{96, 0}, 1, 1.5)
		const small = Class(10)
		k := &b.classes[small]
		k.shares, k.mode, k.sets = []int{k.rounds, 0}, settled, 10
		k.own.variance, k.common.variance = 1e-12, 1e-12
		b.knows(0, small, true, 1, 1e-4)
		b.knows(1, small, true, 1, 1e-4/gain)
		return b.better(small) != nil
	})
}

func TestTheBaselineMayCostALittleAtFirst(t *testing.T) {
	between(t, "clearly", 1.3, 1.45, func(over float64) bool { // the best split
		b, k := exactly([]int{48, 48}, 1, 2*over-1)
		k.sets = 0
		shares, _, _ := b.best(someClass)
		return !slices.Equal(shares, k.home)
	})
}

func TestAClassRetreatsFromWhatIsMuchWorse(t *testing.T) {
	between(t, "greatly", 1.4, 1.7, func(over float64) bool {
		_, k := exactly([]int{60, 36}, 1, 1)
		k.burns, k.best = make([]burn, 2), champion{shares: []int{48, 48}, took: -10}
		return k.retreat(-10+math.Log(over)) != nil
	})
}

func TestARailThatWasOnlyProbedMayTakeLonger(t *testing.T) {
	between(t, "greatlyFar", 1/1.95, 1/1.7, func(sooner float64) bool {
		b, k := exactly([]int{96, 0}, 1, 1)
		m := b.rails[1].of(k.form)
		m.points = nil
		for _, rounds := range []float64{1, 96} {
			m.points = append(m.points, point{class: someClass, alone: true, bytes: rounds * k.bytes / 96, seconds: someTime / sooner * (1 + rounds/200), weight: 0.9})
		}
		return b.candidate(someClass) >= 0
	})
}

func TestARailWithNearlyAllIsWorthATryAlone(t *testing.T) {
	between(t, "littleHelp", 78, 82, func(rounds float64) bool {
		k := class{rounds: 96, shares: []int{int(rounds), 96 - int(rounds)}}
		return k.littleHelp()
	})
}

func TestWhatNoiseExplainsMovesNoShares(t *testing.T) {
	noisy := func(m mode) func(k *class) {
		return func(k *class) { k.mode, k.own.variance = m, 0.1*0.1 }
	}
	// A half of a deviation of 0.1 and the gain of a table are 1.067; two deviations are 1.24.
	between(t, "doubtWhileSettling", 1.05, 1.09, func(gain float64) bool { return moveFar(gain, noisy(settling)) })
	between(t, "likely", 1.18, 1.3, func(gain float64) bool { return moveFar(gain, noisy(settled)) })
	// Two of a quiet network's are 1.056.
	between(t, "priorDeviation", 1.045, 1.075, func(gain float64) bool {
		return moveFar(gain, func(k *class) { k.own.variance = 0 })
	})
}

// moveFar is moves for gains of more than a round.
func moveFar(gain float64, change func(k *class)) bool {
	b, k := exactly([]int{48, 48}, 1, 2*gain-1)
	change(k)
	return b.better(someClass) != nil
}

func TestAShareGrowsStepByStepWhereThereIsNoise(t *testing.T) {
	b, k := exactly([]int{80, 16, 0}, 1, 1, 1)
	k.own.variance = 0.2 * 0.2
	want := []int{32, 32 + 16, 16}
	b.bound(k, want)
	if k.shares[1]*mostGrowth != want[1] || want[1] != 32 || want[2] != 96/8 {
		t.Errorf("shares %v become %v: the second may double, the third have an eighth", k.shares, want)
	}
}

func TestNoiseIsLearnedInEightSets(t *testing.T) {
	s := spread{variance: 1e-12, seen: 100}
	for range 8 {
		s.learn(0.2)
	}
	if d := s.deviation(); d < 0.15 || d > 0.175 { // 1 - (7/8)⁸ of the variance
		t.Errorf("the deviation is %v after eight residuals of 0.2", d)
	}
}

func TestNoiseIsNoChange(t *testing.T) {
	s := spread{variance: 0.2 * 0.2}
	between(t, "certain", 2.5*0.2, 3.5*0.2, func(residual float64) bool { return residual >= s.limit(clearly) })
}

func TestAMeanOfNoiseFollowsAllTheSame(t *testing.T) {
	noise := spread{variance: 1}
	m := model{points: []point{{class: someClass, bytes: 1e6, seconds: 1, weight: 100}}}
	for range 32 {
		m.observe(point{class: someClass, bytes: 1e6, seconds: 2, weight: 1}, noise.memory())
	}
	if got := m.points[0].seconds; got < 1.55 || got > 1.75 { // 1 + 1 - (31/32)³²
		t.Errorf("after 32 sets that took 2 s in place of 1 the mean is %v", got)
	}
}

// Rates that drift are no noise: what is expected lags behind them, to the same side for a while.
func TestALagIsNoNoise(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	noisy, behind := spread{variance: 0.01}, spread{variance: 0.01}
	lag := 0.0
	for range 200 {
		noisy.learn(0.1 * rng.NormFloat64())
		lag = 0.95*lag + 0.03*rng.NormFloat64() // of the same deviation
		behind.learn(lag)
	}
	if n, b := noisy.memory(), behind.memory(); n < 16 || b > settlingSets {
		t.Errorf("the mean is of %.0f sets where there is noise, of %.0f where it lags", n, b)
	}
}

// A quicker one does: no rail is quicker than it can be. A slower one is taken with the probe's.
func TestWhatIsMeasuredTakesTheProbesPlace(t *testing.T) {
	b, k := exactly([]int{48, 48}, 1, 1)
	m := b.rails[0].of(k.form)
	m.points = nil
	b.Probed(0, someClass.MaxBytes(), 30*time.Millisecond)
	if m.measured(someClass) {
		t.Error("a probe passes for a measurement")
	}
	set := func(took float64) float64 {
		m.observe(point{class: someClass, alone: true, bytes: float64(someClass.MaxBytes()), seconds: took, weight: 1}, settlingSets)
		return m.points[0].seconds
	}
	if got := set(40e-3); got < 34e-3 || got > 36e-3 || !m.measured(someClass) {
		t.Errorf("a probe of 30 ms and a set of 40 ms are %v s", got)
	}
	m.points = nil
	b.Probed(0, someClass.MaxBytes(), 30*time.Millisecond)
	if got := set(20e-3); got != 20e-3 {
		t.Errorf("a probe of 30 ms and a set of 20 ms are %v s", got)
	}
}

func TestAModelKeepsTheLastTwoSharesOfAClass(t *testing.T) {
	var m model
	for i := range 3 {
		m.observe(point{class: someClass, bytes: 1e6 * float64(1+i), seconds: 1, weight: 1}, settlingSets)
	}
	if len(m.points) != 2 || m.points[0].bytes != 3e6 || m.points[1].bytes != 2e6 || m.points[1].weight != 0.5 {
		t.Errorf("points %+v, want the last one, and the one before with half its weight", m.points)
	}
}

func TestPartsOfAboutTheSameSizeAreOnePoint(t *testing.T) {
	between(t, "nearby", 1.1, 1.25, func(times float64) bool {
		m := model{points: []point{{class: someClass, bytes: 1e6, seconds: 1, weight: 1}}}
		return m.same(someClass, false, 1e6*times) < 0
	})
}

func TestANeighbourCountsForAThird(t *testing.T) {
	m := model{points: []point{{class: someClass, bytes: 1e6, seconds: 1, weight: 1}}}
	if got := m.evidence(someClass+1, false); got < 0.2 || got > 0.5 {
		t.Errorf("a measurement counts for %v in the next class", got)
	}
}

// Where the points are 16 % apart, two thirds of the slope that they show are believed.
func TestPointsCloseToEachOtherTellLittleOfTheStartup(t *testing.T) {
	m := model{points: []point{{someClass, false, 1e6, 1, 1}, {someClass, false, 1.16e6, 1.08, 1}}}
	noise := spread{}
	if l := m.fit(someClass, false, noise.lean()); l.startup < 0.28 || l.startup > 0.37 { // of 0.5
		t.Errorf("the startup is %v", l.startup)
	}
}

func TestAPenaltyIsForBriefOperations(t *testing.T) {
	between(t, "brief", 8e-3, 15e-3, func(took float64) bool {
		_, k := exactly([]int{48, 48}, 1, 1)
		k.burns, k.best = make([]burn, 2), champion{shares: []int{48, 48}, took: math.Log(took / k.bytes)}
		k.learnBurns([]Window{{Class: someClass, Elapsed: seconds(took)}}, k.best.took)
		return k.burns == nil
	})
}

func TestASplitIsRememberedForAWhile(t *testing.T) {
	between(t, "remembered", 50, 80, func(sets float64) bool {
		k := class{shares: []int{80, 16}}
		k.remember(-10)
		k.shares = []int{48, 48}
		for range int(sets) {
			k.remember(-10)
		}
		return k.recall([]int{80, 16}) == nil
	})
}

func TestTheBestSplitIsForgottenWhenItIsLongAgo(t *testing.T) {
	between(t, "rested", 12, 20, func(sets float64) bool {
		k := class{rounds: 96, bytes: 1e6, shares: []int{80, 16}}
		set := func(took float64) {
			k.learnBurns([]Window{{Bytes: 5e5, Elapsed: 1e6}, {Rail: 1, Bytes: 5e5, Elapsed: 1e6}}, took)
		}
		set(-10)
		k.shares = []int{48, 48}
		for range int(sets) {
			set(-10 + math.Log(1.02)) // no better, and no reason for a penalty
		}
		return slices.Equal(k.best.shares, k.shares)
	})
}

func TestRailsThatStartSlowly(t *testing.T) {
	between(t, "leastStartup", 0.25, 0.4, func(part float64) bool { // of the operation
		b, k := exactly([]int{48, 48}, 1, 1)
		for i := range b.rails {
			m := b.rails[i].of(k.form)
			m.points = slices.DeleteFunc(m.points, func(p point) bool { return p.alone })
		}
		now := b.predict(someClass, k.shares)
		b.knows(0, 10, true, 1, part*now)
		return b.startsSlowly(someClass, now)
	})
}

func TestSmallOperationsBeginWhereOneMiBIsQuickest(t *testing.T) {
	b, _ := exactly([]int{32, 32, 32}, 1, 1, 1)
	for rail, best := range []Class{10, 20, 39} {
		b.rails[rail].of(b.classes[best].form).points = nil
		for _, c := range []Class{10, 20, 39} {
			took := float64(c.MaxBytes()) / 50e6
			if c == best {
				took /= 2
			}
			b.knows(rail, c, true, 1, took)
		}
	}
	if got := b.main(); got != 1 {
		t.Errorf("small operations begin on rail %d", got)
	}
}

func TestPausesDoubleUpToALimit(t *testing.T) {
	for _, c := range []struct {
		first int
		want  []int
	}{{samplePause, []int{8, 16, 32, 64, 128, 256, 512, 512}}, {rested, []int{16, 32, 64, 128, 256, 512, 512}},
		{penaltyPause, []int{32, 64, 128, 256, 512, 512}}} {
		var p pace
		for _, want := range c.want {
			p.double(c.first)
			sets := 0
			for ; !p.due(); sets++ {
				p.tick()
			}
			if sets != want {
				t.Errorf("first pause %d: one of %d sets, want %d", c.first, sets, want)
			}
		}
	}
}

func TestSamplesBeginAnewWhenARailHasChanged(t *testing.T) {
	b, _ := exactly([]int{48, 48}, 1, 1)
	for _, c := range []struct {
		class Class
		first int
	}{{someClass, samplePause}, {ClassOf(8), 1}} {
		k := &b.classes[c.class]
		k.samples = pace{100, 128}
		b.step(c.class, 0, true)
		if k.samples.pause > 2*c.first { // one may have been taken at once
			t.Errorf("operations of %d bytes go on at %+v, the first pause is %d", c.class.MaxBytes(), k.samples, c.first)
		}
	}
}

func TestAMeasurementTeachesSixClasses(t *testing.T) {
	b, _ := exactly([]int{72, 24}, 1, 3)
	for c := range b.classes {
		if Class(c) != someClass {
			b.classes[c].sets = 0
		}
	}
	b.teach(someClass)
	between(t, "reach", -7, -6, func(away float64) bool {
		near := &b.classes[int(someClass)+int(away)]
		return !slices.Equal(near.shares, near.home)
	})
}

func TestAContestHasFourPairs(t *testing.T) {
	k := class{rounds: 96, home: []int{48, 48}, shares: []int{80, 16}, mode: settled}
	k.whole.variance = 0.02 * 0.02
	k.compare(-10)
	sets := 1
	for ; k.mode == comparing; sets++ {
		k.contend(-10)
	}
	if sets != 2*4 || !k.atHome() {
		t.Errorf("after %d sets %v are in force", sets, k.shares)
	}
}

func TestFiguresFromOutsideAreLimited(t *testing.T) {
	between(t, "maxOperations", 1<<20, 1<<20+1, func(operations float64) bool {
		set := []Window{{Class: someClass, Operations: int(operations), Bytes: 1, Elapsed: 1, Whole: 1}}
		return validateSet(set, 1) != nil
	})
	between(t, "MaxSamples", 1<<12, 1<<12+1, func(samples float64) bool {
		one := Sample{Algorithm: op.Ring, Class: someClass, Bytes: 1, Elapsed: 1, Weight: 1}
		s := Saved{Samples: slices.Repeat([]Sample{one}, int(samples))}
		return s.Validate(1) != nil
	})
	between(t, "maxSampleElapsed", 20, 30, func(hours float64) bool {
		s := Sample{Algorithm: op.Ring, Class: someClass, Bytes: 1, Elapsed: time.Duration(hours * float64(time.Hour)), Weight: 1}
		return s.validate(1) != nil
	})
}

func TestSharesAreOfAThousandRoundsAtMost(t *testing.T) {
	b, _ := exactly([]int{48, 48}, 1, 1)
	k := &b.classes[Classes-1]
	if k.rounds > 1024 || k.rounds < 1000 {
		t.Errorf("an operation of 1 TiB has %d rounds", k.rounds)
	}
}

// A rail took 1 s for 1 MB beside others, and 0.55 s for 250 kB alone: a startup of 0.4 s, if both
// were taken alike. Where nothing else tells, two thirds of it are believed, and the rail still takes
// 1 s for 1 MB.
func TestWhatARailTookAloneTellsOfItsStartupBesideOthers(t *testing.T) {
	m := model{points: []point{{someClass, false, 1e6, 1, 1}, {someClass, true, 0.25e6, 0.55, 4}}}
	noise := spread{}
	l := m.fit(someClass, false, noise.lean())
	if l.startup < 0.25 || l.startup > 0.31 || math.Abs(l.at(1e6)-1) > 0.01 {
		t.Errorf("the startup is %v, 1 MB takes %v", l.startup, l.at(1e6))
	}
}

func TestAChangeIsOfSizesThatAreNotMuchLarger(t *testing.T) {
	between(t, "farOff", 3, 6, func(times float64) bool {
		m := model{points: []point{{someClass, false, 1e6, 1, 1}, {someClass + 2, false, times * 1e6, times, 1}}}
		m.rescale(point{someClass, false, 1e6, 2, 1}, 1, 2, 0.003)
		return m.points[1].seconds == times
	})
}
