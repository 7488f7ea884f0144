package balance

import (
	"math"
	"slices"
	"testing"

	"github.com/polyrail/polyrail/collective/op"
	"pgregory.net/rapid"
)

// settlesWithin counts the cases that are within 5 % of the best after so many sets of windows.
func settlesWithin(t *testing.T, cases uint64, sets int, probe bool) (good int) {
	t.Helper()
	for seed := range cases {
		w := randomWorld(seed)
		w.start(probe)
		size := w.randomSize()
		var ratio float64
		for range sets {
			ratio = w.set(size)
		}
		if ratio <= 1.05 {
			good++
		}
		if probe && w.worst > 2 {
			t.Errorf("seed %d: an operation of %d bytes took %.2f times the best single rail's time", seed, size, w.worst)
		}
	}
	return good
}

func cases() uint64 {
	if testing.Short() {
		return 1000
	}
	return 10_000
}

func TestBalancerSettlesWithinThreeWindows(t *testing.T) {
	n := cases()
	if good := settlesWithin(t, n, 3, true); good < int(n)*99/100 {
		t.Errorf("%d of %d cases are within 5 %% of the best after three windows, want 99 %%", good, n)
	}
}

func TestBalancerSettlesWithoutAProbe(t *testing.T) {
	n := cases() / 4
	if good := settlesWithin(t, n, 4, false); good < int(n)*98/100 {
		t.Errorf("%d of %d cases are within 5 %% of the best after four windows, want 98 %%", good, n)
	}
}

func TestBalancerKeepsQuietAndHurtsNobodyOnceSettled(t *testing.T) {
	tables, sets, tried, total := 0, 0, 0, 0.0
	for seed := range uint64(200) {
		w := randomWorld(seed)
		w.start(true)
		size := w.randomSize()
		for range 10 {
			w.set(size)
		}
		before := w.commit
		for range 100 {
			ratio := w.set(size)
			sets, total = sets+1, total+ratio
			split, single := w.best(size)
			if took := ratio * split; took > 1.1*single {
				if tried++; took > 2*single { // a rail that was only probed is tried once
					t.Errorf("seed %d: settled at %.2f times the best single rail (shares %v)", seed, took/single, w.shares(size))
				}
			}
		}
		tables += w.commit - before
	}
	if tried > sets/100 {
		t.Errorf("%d of %d windows, trials included, took 1.1 times the best single rail's time", tried, sets)
	}
	expectQuiet(t, tables, sets, total, 1.02)
}

func TestBalancerFollowsARailThatChanges(t *testing.T) {
	late := 0
	const n = 500
	for seed := range uint64(n) {
		w := randomWorld(seed)
		w.start(true)
		size := 4 << 20
		for range 10 {
			w.set(size)
		}
		rail := int(seed) % len(w.rate)
		for _, factor := range []float64{0.25, 4} {
			w.rate[rail] *= factor
			w.known = nil
			var ratio float64
			for range 3 { // thirty operations
				ratio = w.set(size)
			}
			if ratio > 1.10 {
				late++
			}
			for range 10 {
				w.set(size)
			}
		}
	}
	if late > 2*n/50 {
		t.Errorf("%d of %d changes by a factor of 4 were not followed within three windows", late, 2*n)
	}
}

func TestBalancerReturnsToOneRailWhenTogetherTheyAreSlower(t *testing.T) {
	all, slow := 0, 0
	for seed := range uint64(200) {
		w := randomWorld(seed)
		w.crowd = 5 // as when the processor, not the network, is what they share
		w.start(true)
		size := 1 << 20
		for range 6 {
			w.set(size)
		}
		hurt, sets := 0, 60
		for range sets {
			shares := w.shares(size)
			if _, single := w.best(size); w.exact(size, shares) > 1.3*single {
				hurt++
			}
			w.set(size)
		}
		all, slow = all+sets, slow+hurt
		if hurt > sets/4 {
			t.Errorf("seed %d: %d of %d windows of %v were slower than one rail alone", seed, hurt, sets, w.shares(size))
		}
	}
	if slow > all/20 { // one-round trials
		t.Errorf("%d of %d windows were slower than one rail alone", slow, all)
	}
}

func TestSmallOperationsUseTheRailOfLeastLatency(t *testing.T) {
	w := randomWorld(1)
	w.alpha, w.rate, w.noise = []float64{200e-6, 20e-6, 100e-6}, []float64{1e9, 1e8, 1e9}, 0
	w.start(true)
	for _, bytes := range []int{8, 1 << 10} {
		if got := w.shares(bytes); got[1] != w.rounds(bytes) {
			t.Errorf("%d bytes: %v, want all of it on the second rail", bytes, got)
		}
	}
	if big := w.shares(16 << 20); count(big) < 2 {
		t.Errorf("16 MiB go over one rail: %v", big)
	}
}

func TestTheBalancerKnowsWhatIsInForce(t *testing.T) {
	for seed := range uint64(300) {
		w := randomWorld(seed)
		w.start(seed%2 == 0)
		for range 40 {
			size := (64 << 10) << w.rng.IntN(8)
			w.set(size)
			if k := &w.b.classes[ClassOf(int64(size))]; !slices.Equal(k.shares, w.shares(size)) {
				t.Fatalf("seed %d: operations of %d bytes are divided by %v, the balancer goes by %v", seed, size, w.shares(size), k.shares)
			}
		}
	}
}

func TestOneSizeTeachesItsNeighbours(t *testing.T) {
	w := randomWorld(3)
	w.alpha, w.rate, w.ranks = []float64{50e-6, 50e-6}, []float64{1e9, 0.25e9}, 4
	w.start(false)
	for w.b.classes[ClassOf(4<<20)].mode == settling {
		w.set(4 << 20)
	}
	for _, size := range []int{1 << 20, 2 << 20, 8 << 20, 16 << 20} {
		split, _ := w.best(size)
		if ratio := w.exact(size, w.shares(size)) / split; ratio > 1.08 {
			t.Errorf("%d bytes, never measured: %v take %.2f times the best", size, w.shares(size), ratio)
		}
	}
}

func TestARailThatBecomesUsefulIsFoundByATrial(t *testing.T) {
	w := randomWorld(3)
	w.noise, w.ranks = 0.03, 4
	w.alpha, w.rate = []float64{50e-6, 1200e-6}, []float64{1e9, 1e9}
	w.start(true)
	const size = 1 << 20
	for range 5 {
		w.set(size)
	}
	if got := w.shares(size); got[1] != 0 {
		t.Fatalf("a rail whose startup is above the whole operation's time carries %v", got)
	}
	w.alpha[1] = 50e-6
	for range samplePause + 20 {
		w.set(size)
	}
	if got := w.shares(size); got[1] == 0 {
		t.Errorf("a rail as good as the other one stays out: %v", got)
	}
}

func TestALongOperationOnOneRailTriesTheWholeSplit(t *testing.T) {
	for _, c := range []struct {
		name   string
		time   float64 // quotient of the operation's time and someTime
		beyond float64 // logarithm of how much longer rails together are said to take
		want   []int
	}{
		{"long", 1, math.Log(1.2), []int{88, 8}},
		{"brief", 0.4, math.Log(1.2), []int{95, 1}},
		{"the split is said to cost much", 1, math.Log(1.6), []int{95, 1}},
	} {
		b, k := exactly([]int{96, 0}, 1, 10)
		for _, m := range b.rails {
			m.of(k.form).scale(c.time)
		}
		k.beyond, k.samples = c.beyond, pace{}
		if b.step(someClass, 0, false); k.mode != sampling || !slices.Equal(k.shares, c.want) {
			t.Errorf("%s: %v of %v, want a sample of %v", c.name, k.mode, k.shares, c.want)
		}
	}
}

func TestARailThatAProbeHasMisjudgedComesIn(t *testing.T) {
	const size = 1 << 20
	w := randomWorld(3)
	w.noise, w.ranks = 0.03, 2
	w.alpha, w.rate = []float64{1600e-6, 100e-6}, []float64{0.15e9, 1.3e9} // while it was probed
	w.start(true)
	if got := w.shares(size); got[0] != 0 {
		t.Fatalf("the misjudged rail carries %v", got)
	}
	w.alpha, w.rate = []float64{100e-6, 100e-6}, []float64{1.3e9, 1.3e9}
	w.known = nil
	for range samplePause + 15 {
		w.set(size)
	}
	split, _ := w.best(size)
	if ratio := w.exact(size, w.shares(size)) / split; ratio > 1.15 {
		t.Errorf("%v take %.2f times the best", w.shares(size), ratio)
	}
}

// TestRailsThatStartSlowlyAreTriedAlone: as measured over loopback at 16 KiB, where a probe met a
// busy moment and promised four times the time alone, for ever.
func TestRailsThatStartSlowlyAreTriedAlone(t *testing.T) {
	const size = 16 << 10
	w := randomWorld(3)
	w.noise, w.ranks, w.crowd = 0.03, 2, 1.5
	w.alpha, w.rate = []float64{12e-6, 12e-6}, []float64{0.2e9, 0.2e9} // while it was probed
	w.start(true)
	w.rate = []float64{3e9, 3e9}
	w.known = nil
	for range settlingSets {
		w.set(size)
	}
	if got := w.shares(size); got[0] == 0 || got[1] == 0 {
		t.Fatalf("begins on one rail: %v", got)
	}
	for range samplePause + 5 {
		w.set(size)
	}
	if got := w.shares(size); got[0] > 0 && got[1] > 0 {
		_, single := w.best(size)
		t.Errorf("%v take %.2f times what one rail does alone", got, w.exact(size, got)/single)
	}
}

// Of what a probe's few small operations took a part is chance: it decides nothing between rails
// that differ little.
func TestSmallOperationsGoWithTheLargeOnesWhereRailsAreAboutAsQuick(t *testing.T) {
	for _, c := range []struct {
		startup float64 // of the rail with the higher rate, in times of the other's
		rail    int
	}{{1.1, 0}, {1.5, 1}} {
		w := randomWorld(2)
		w.alpha, w.rate, w.noise = []float64{c.startup * 20e-6, 20e-6}, []float64{1e9, 0.25e9}, 0
		w.start(true)
		if got := w.shares(8); got[c.rail] != w.rounds(8) {
			t.Errorf("8 bytes, the quicker rail starts %v times as slowly: %v, want all of it on rail %d", c.startup, got, c.rail)
		}
	}
}

// TestSmallOperationsLeaveARailThatAProbeHasPreferred: of operations that are never divided nothing
// else would show the better rail.
func TestSmallOperationsLeaveARailThatAProbeHasPreferred(t *testing.T) {
	const size = 8
	w := randomWorld(3)
	w.noise, w.ranks = 0.03, 2
	w.alpha, w.rate = []float64{80e-6, 40e-6}, []float64{30e6, 3e6} // while it was probed
	w.start(true)
	if got := w.shares(size); got[0] != 0 {
		t.Fatalf("the rail that was slower by the probe carries %v", got)
	}
	w.alpha[0] = 15e-6
	w.known = nil
	for range samplePause + 5 {
		w.set(size)
	}
	if got := w.shares(size); got[1] != 0 {
		t.Errorf("operations stay on the slower rail: %v", got)
	}
}

// A busy moment may take small operations to a rail that is no quicker for them. They come back.
func TestSmallOperationsStayWithTheLargeOnes(t *testing.T) {
	const seeds, sets, size = 100, 200, 8
	away := 0
	for seed := range uint64(seeds) {
		w := randomWorld(seed)
		w.alpha, w.rate = []float64{100e-6, 100e-6}, []float64{30e6, 8e6}
		w.noise, w.mood = 0.1, 0.25
		w.start(true)
		for range sets {
			w.set(size)
			if w.shares(size)[0] == 0 {
				away++
			}
		}
	}
	if away > seeds*sets/7 {
		t.Errorf("%d of %d windows were over the other rail", away, seeds*sets)
	}
}

// TestABarrierGoesOverTheRailOfTheSumsBesideIt, whatever a busy moment has made of the rails.
func TestABarrierGoesOverTheRailOfTheSumsBesideIt(t *testing.T) {
	const size, barrier = 8, 0
	for seed := range uint64(300) {
		w := randomWorld(seed)
		w.noise, w.mood = 0.1, 0.3
		w.start(true)
		for n := range 60 {
			w.set(size)
			if got, want := most(w.shares(barrier)), most(w.shares(size)); got != want {
				t.Fatalf("seed %d, after %d sets: a barrier goes over rail %d, sums of %d bytes over rail %d", seed, n+1, got, size, want)
			}
		}
	}
}

// TestABarrierGoesOverARailThatTheSumsBesideItAreOn, where these can be divided.
func TestABarrierGoesOverARailThatTheSumsBesideItAreOn(t *testing.T) {
	const barrier = 0
	for seed := range uint64(300) {
		for _, size := range []int{8 << 10, 64 << 10, 1 << 20} {
			w := randomWorld(seed)
			w.noise, w.mood = 0.1, 0.3
			w.start(true)
			for n := range 40 {
				w.set(size)
				if k, got := &w.b.classes[ClassOf(int64(size))], most(w.shares(barrier)); !k.leads(got) {
					t.Fatalf("seed %d, after %d sets: a barrier goes over rail %d, sums of %d bytes have shares %v", seed, n+1, got, size, k.shares)
				}
			}
		}
	}
}

func TestFillIsTheBestDivision(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rails := rapid.IntRange(1, 3).Draw(t, "rails")
		rounds := rapid.IntRange(1, 12).Draw(t, "rounds")
		startup, perRound := make([]float64, rails), make([]float64, rails)
		for i := range startup {
			startup[i] = float64(rapid.IntRange(0, 50).Draw(t, "startup"))
			perRound[i] = float64(rapid.IntRange(1, 20).Draw(t, "perRound"))
		}
		shares := make([]int, rails)
		got := fill(rounds, startup, perRound, shares)
		best := -1.0
		var all func(rail, left int, s []int)
		all = func(rail, left int, s []int) {
			if rail == rails-1 {
				if took := slowest(startup, perRound, append(s, left)); best < 0 || took < best {
					best = took
				}
				return
			}
			for r := range left + 1 {
				all(rail+1, left-r, append(s[:rail:rail], r))
			}
		}
		all(0, rounds, nil)
		sum := 0
		for _, s := range shares {
			sum += s
		}
		if got != best || sum != rounds || got != slowest(startup, perRound, shares) {
			t.Fatalf("%v of %d rounds take %v, the best is %v", shares, rounds, got, best)
		}
	})
}

func TestBalancerTableIsAlwaysValid(t *testing.T) {
	w := randomWorld(7)
	w.start(true)
	w.b.setup.Ranges = []Range{{MaxBytes: 5000, Algorithm: op.Bcube}, {MaxBytes: 1 << 20, Algorithm: op.Ring}}
	for range 50 {
		w.set(w.randomSize())
	}
	w.table.Entries = w.b.Table()
	if err := w.table.Validate(len(w.rate)); err != nil {
		t.Fatal(err)
	}
	for bytes, want := range map[int64]op.Algorithm{8: op.Bcube, 5000: op.Bcube, 5001: op.Ring, 1 << 20: op.Ring, 1<<20 + 1: op.Auto} {
		if got := w.table.Lookup(bytes).Algorithm; got != want {
			t.Errorf("%d bytes run %v, want %v", bytes, got, want)
		}
	}
}

func TestTheSwitchingSizeIsWithinAFactorOfTwoOfTheBest(t *testing.T) {
	far, slow, worlds := 0, 0, int(cases()/20)
	for seed := range uint64(worlds) {
		w := randomWorld(seed)
		w.start(true)
		found, best := 0, 0
		for size := 32 << 10; size <= 64<<20; size *= 2 {
			for range 6 {
				w.set(size)
			}
			split, single := w.best(size)
			hot := count(w.shares(size)) > 1
			if hot && found == 0 {
				found = size
			}
			if split*gainToSplit < single && best == 0 {
				best = size
			}
			if !hot && best == 0 && w.exact(size, w.shares(size)) > 1.05*single {
				slow++
			}
		}
		if found > 2*best || best > 2*found {
			far++
		}
	}
	if far > worlds/50 || slow > worlds/50 {
		t.Errorf("of %d switching sizes %d are more than a factor of two off, and %d times an operation below is 5 %% slower than on the best rail", worlds, far, slow)
	}
}
