package balance

import (
	"testing"
	"time"

	"github.com/polyrail/polyrail/collective/table"
)

// noisy is a host on which rails of 4 : 1 are measured as loopback measures: all of them up and
// down together by 30 %, each by itself now and then up to twice as slow for a window.
func noisy(seed uint64) *world {
	w := randomWorld(seed)
	w.alpha, w.rate, w.ranks = []float64{50e-6, 60e-6}, []float64{1e9, 0.25e9}, 2
	w.noise, w.mood, w.stalls = 0.3, 0.3, 0.1
	w.start(true)
	return w
}

func TestNoOperationTakesTwiceTheBestRailsTimeOnANoisyHost(t *testing.T) {
	worse := 0
	const worlds, sets = 400, 60
	for seed := range uint64(worlds) {
		w := noisy(seed)
		for range sets {
			size := (256 << 10) << w.rng.IntN(5)
			w.set(size)
			if _, single := w.best(size); w.exact(size, w.shares(size)) > 2*single {
				worse++
			}
		}
	}
	if worse > worlds*sets/500 {
		t.Errorf("%d of %d windows would take more than twice the best single rail's time", worse, worlds*sets)
	}
}

func TestNoiseMovesFewTables(t *testing.T) {
	tables, sets, total := 0, 0, 0.0
	for seed := range uint64(200) {
		w := noisy(seed)
		for range 20 {
			w.set(1 << 20)
		}
		before := w.commit
		for range 100 {
			total += w.set(1 << 20)
			sets++
		}
		tables += w.commit - before
	}
	expectQuiet(t, tables, sets, total, 1.08)
}

func TestAChangeIsFollowedOnANoisyHost(t *testing.T) {
	late := 0
	const n = 300
	for seed := range uint64(n) {
		w := noisy(seed)
		for range 30 {
			w.set(4 << 20)
		}
		w.rate[0] /= 8 // from the best rail to the worst one
		w.known = nil
		for range 10 {
			w.set(4 << 20)
		}
		split, _ := w.best(4 << 20)
		if w.exact(4<<20, w.shares(4<<20)) > 1.25*split {
			late++
		}
	}
	if late > n/20 {
		t.Errorf("%d of %d changes by a factor of 8 were not followed within ten windows", late, n)
	}
}

// One disturbed operation of a probe makes everything look noisy at first; a change of sizes that
// were not measured yet, and of ones that were, is to be seen all the same.
func TestAChangeIsFollowedAfterADisturbedProbe(t *testing.T) {
	for _, last := range []int{2 << 20, 4 << 20} {
		w := randomWorld(1)
		w.alpha, w.rate, w.noise, w.ranks = []float64{50e-6, 50e-6}, []float64{40e6, 10e6}, 0.01, 4
		w.start(false)
		for rail := range w.rate {
			for _, bytes := range probedSizes {
				took := seconds(w.once(rail, float64(bytes), 1))
				again := took
				if rail == 1 && bytes == 16<<10 {
					again *= 4
				}
				w.b.Probed(rail, int64(bytes), took, again)
			}
		}
		w.table = &table.Table{Entries: w.b.Decide()}
		for _, size := range []int{1 << 20, 4 << 20} {
			for range 6 {
				w.set(size)
			}
		}
		w.rate[0] /= 3
		w.known = nil
		var ratio float64
		for range 4 {
			ratio = w.set(last)
		}
		if ratio > 1.1 {
			t.Errorf("%d bytes: forty operations after a change %v take %.2f times the best", last, w.shares(last), ratio)
		}
	}
}

// What small operations scatter by is not what large ones do: shares of these must not stay wrong
// for fear of it.
func TestTheNoiseOfSmallOperationsIsNotHeldAgainstLargeOnes(t *testing.T) {
	late := 0
	const n = 200
	for seed := range uint64(n) {
		w := randomWorld(seed)
		w.alpha, w.rate, w.ranks = []float64{50e-6, 50e-6, 50e-6}, []float64{21e6, 10.5e6, 5.2e6}, 4
		w.noise, w.stalls = 0.4, 0.3
		w.start(true)
		for range 12 {
			w.set(64 << 10)
		}
		w.noise, w.stalls = 0.01, 0
		var ratio float64
		for range 4 {
			ratio = w.set(16 << 20)
		}
		if ratio > 1.02 {
			late++
		}
	}
	if late > n/100 {
		t.Errorf("%d of %d: after forty operations of 16 MiB they take more than 1.02 times the best", late, n)
	}
}

// A slow rail beside a quick one gains little. Where the two are slower together, it isn't always
// the same that ends last, and the probe took the quick one for slower than it is, that one does
// better alone: it is found, though the rails' own times hardly say so.
func TestTheBestRailAloneIsFoundThoughOthersWouldHelp(t *testing.T) {
	const size, worlds, sets, last = 64 << 10, 200, 60, 20
	divided := 0
	for seed := range uint64(worlds) {
		w := randomWorld(seed)
		w.ranks, w.noise, w.crowd, w.mood, w.uneven, w.probed = 6, 0.3, 1.15, 0.05, true, 1.1
		w.alpha, w.rate = []float64{50e-6, 50e-6}, []float64{18.75e6, 1.875e6}
		w.start(true)
		for set := range sets {
			w.set(size)
			if set >= sets-last && count(w.shares(size)) > 1 {
				divided++
			}
		}
	}
	if divided > worlds*last/4 {
		t.Errorf("%d of %d sets divide", divided, worlds*last)
	}
}

// A probe's small operations scatter by half on this host, and its large ones by 2 %. Large operations
// leave equal shares as soon as on a quiet host.
func TestLargeOperationsAreAsNoisyAsTheLargestOfTheProbe(t *testing.T) {
	w := randomWorld(1)
	w.alpha, w.rate, w.noise, w.ranks = []float64{50e-6, 50e-6}, []float64{30e6, 20e6}, 0.01, 4
	w.start(false)
	for rail := range w.rate {
		for i, bytes := range probedSizes {
			scatter := time.Duration(3)
			if i == len(probedSizes)-1 {
				scatter = 50
			}
			took := seconds(w.once(rail, float64(bytes), 1))
			w.b.Probed(rail, int64(bytes), took, took+took/scatter, took+took/scatter)
		}
	}
	w.table = &table.Table{Entries: w.b.Decide()}
	const size = 16 << 20
	w.set(size)
	w.set(size)
	if best, _ := w.best(size); w.exact(size, w.shares(size)) > 1.05*best {
		t.Errorf("shares %v after two sets", w.shares(size))
	}
}
