package balance

import (
	"math"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/polyrail/polyrail/collective/op"
	"github.com/polyrail/polyrail/collective/table"
)

// again is a world like w, whose balancer goes on from what w's has learned.
func (w *world) again(t *testing.T, seed uint64) *world {
	t.Helper()
	saved, ok := w.b.Save()
	if !ok || !saved.Covers(len(w.rate)) {
		t.Fatalf("seed %d: nothing to save after windows: %+v", seed, saved)
	}
	if err := saved.Validate(len(w.rate)); err != nil {
		t.Fatalf("seed %d: %v in %+v", seed, err, saved)
	}
	next := randomWorld(seed)
	next.start(false)
	next.b.Learn(saved.Samples)
	next.table = &table.Table{Entries: next.b.Restore(saved.Classes)}
	return next
}

func TestARestoredBalancerBeginsWhereTheOtherOneEnded(t *testing.T) {
	good, kept := 0, 0
	const worlds = 500
	for seed := range uint64(worlds) {
		w := randomWorld(seed)
		w.start(true)
		size := w.randomSize()
		for range 12 {
			w.set(size)
		}
		next := w.again(t, seed)
		split, _ := next.best(size)
		if next.exact(size, next.shares(size)) <= 1.05*split {
			good++
		}
		if w.b.classes[ClassOf(int64(size))].before == nil && slices.Equal(next.shares(size), w.shares(size)) {
			kept++
		}
		for range 3 {
			next.set(size)
		}
		if got := next.exact(size, next.shares(size)); got > 1.4*split {
			t.Errorf("seed %d: %.2f times the best after three windows more", seed, got/split)
		}
	}
	if good < worlds*98/100 || kept < worlds*90/100 {
		t.Errorf("of %d restored balancers %d begin within 5 %% of the best, want 98 %%; %d with the very shares", worlds, good, kept)
	}
}

func TestARestoredBalancerFollowsRailsThatHaveChangedSince(t *testing.T) {
	good := 0
	const worlds = 300
	for seed := range uint64(worlds) {
		w := randomWorld(seed)
		w.start(true)
		size := w.randomSize()
		for range 12 {
			w.set(size)
		}
		next := w.again(t, seed)
		slices.Reverse(next.rate)
		next.known = nil
		var ratio float64
		for range 6 {
			ratio = next.set(size)
		}
		if ratio <= 1.10 {
			good++
		}
	}
	if good < worlds*95/100 {
		t.Errorf("%d of %d restored balancers are within 10 %% of the best six windows after their rails have changed", good, worlds)
	}
}

func TestSizesThatWereNotMeasuredFollowTheSavedModel(t *testing.T) {
	w := randomWorld(7)
	w.noise, w.alpha, w.rate = 0, []float64{1e-4, 1e-4}, []float64{40e6, 10e6}
	w.start(true)
	for range 10 {
		w.set(1 << 20)
	}
	saved, _ := w.b.Save()
	next := randomWorld(7)
	next.noise, next.alpha, next.rate = 0, w.alpha, w.rate
	next.start(false)
	next.b.Learn(saved.Samples)
	next.table = &table.Table{Entries: next.b.Restore(saved.Classes)}
	split, _ := next.best(4 << 20)
	if got := next.exact(4<<20, next.shares(4<<20)); got > 1.05*split {
		t.Errorf("4 MiB takes %.2f times the best with shares %v", got/split, next.shares(4<<20))
	}
}

func TestSharesOfOtherSettingsAreLeftOut(t *testing.T) {
	restore := func(classes ...SavedClass) *Balancer {
		w := randomWorld(3)
		w.alpha, w.rate, w.ranks = []float64{1e-4, 1e-4}, []float64{1e7, 1e7}, 2
		w.start(false)
		w.b.Restore(classes)
		return w.b
	}
	class := SavedClass{Class: 20, Algorithm: op.Ring, Bytes: 1 << 20, Shares: []uint32{1, 7}, Windows: 5, Settled: true}
	if b := restore(class); b.classes[20].shares[0] >= b.classes[20].shares[1] || b.classes[20].mode != settled {
		t.Errorf("a class of these settings is not restored: %+v", b.classes[20])
	}
	other := class
	other.Algorithm = op.RecursiveDoubling
	small := SavedClass{Class: 13, Algorithm: op.RecursiveDoubling, Bytes: 1 << 13, Shares: []uint32{1, 7}, Windows: 5}
	for _, c := range []SavedClass{other, small} {
		b, plain := restore(c), restore()
		if !reflect.DeepEqual(b.classes[c.Class], plain.classes[c.Class]) {
			t.Errorf("%+v became %+v", c, b.classes[c.Class])
		}
	}
}

func TestNothingIsSavedOfAProbeAlone(t *testing.T) {
	w := randomWorld(1)
	w.start(true)
	if saved, ok := w.b.Save(); ok || len(saved.Classes) > 0 {
		t.Errorf("saved %+v", saved)
	}
}

func TestWhatHasFadedIsNotSaved(t *testing.T) {
	w := randomWorld(7)
	w.start(true)
	const size = 1 << 20
	w.set(size)
	class := ClassOf(size)
	m := w.b.rails[0].of(w.b.classes[class].form)
	share := func(bytes float64) point { return point{class: class, bytes: bytes, seconds: 1, weight: 1} }
	m.observe(share(1), settlingSets)
	for range 2000 { // halved more often, a weight is 0
		m.observe(share(1e5), settlingSets)
	}
	w.again(t, 7)
	saved, _ := w.b.Save()
	if slices.ContainsFunc(saved.Samples, func(s Sample) bool { return s.Bytes == 1 }) {
		t.Errorf("it is among the samples: %+v", saved.Samples)
	}
}

func TestSavedFiguresAreChecked(t *testing.T) {
	good := func() Saved {
		return Saved{
			Classes: []SavedClass{{Class: 3, Algorithm: op.Ring, Bytes: 8, Shares: []uint32{1, 0}, Windows: 1},
				{Class: 20, Algorithm: op.Ring, Bytes: 1 << 20, Shares: []uint32{3, 1}, Windows: 1}},
			Samples: []Sample{{Rail: 1, Algorithm: op.Ring, Class: 20, Bytes: 1000, Elapsed: time.Second, Weight: 1}},
		}
	}
	if s := good(); s.Validate(2) != nil {
		t.Fatal(s.Validate(2))
	}
	for what, spoil := range map[string]func(s *Saved){
		"order":       func(s *Saved) { s.Classes[0], s.Classes[1] = s.Classes[1], s.Classes[0] },
		"class":       func(s *Saved) { s.Classes[1].Class = Classes },
		"algorithm":   func(s *Saved) { s.Classes[1].Algorithm = op.Auto },
		"size":        func(s *Saved) { s.Classes[1].Bytes = 1<<20 + 1 },
		"windows":     func(s *Saved) { s.Classes[1].Windows = 0 },
		"no shares":   func(s *Saved) { s.Classes[1].Shares = []uint32{0, 0} },
		"rails":       func(s *Saved) { s.Classes[1].Shares = []uint32{1} },
		"large share": func(s *Saved) { s.Classes[1].Shares[0] = table.MaxWeight + 1 },
		"rail":        func(s *Saved) { s.Samples[0].Rail = 2 },
		"bytes":       func(s *Saved) { s.Samples[0].Bytes = 1<<20 + 1 },
		"no bytes":    func(s *Saved) { s.Samples[0].Bytes = 0 },
		"time":        func(s *Saved) { s.Samples[0].Elapsed = 0 },
		"long":        func(s *Saved) { s.Samples[0].Elapsed = 1 << 62 },
		"weight":      func(s *Saved) { s.Samples[0].Weight = math.NaN() },
		"heavy":       func(s *Saved) { s.Samples[0].Weight = math.Inf(1) },
		"many":        func(s *Saved) { s.Samples = slices.Repeat(s.Samples, MaxSamples+1) },
	} {
		s := good()
		spoil(&s)
		if s.Validate(2) == nil {
			t.Errorf("%s: %+v passes", what, s)
		}
	}
}

// What a rank says of its times is not limited; what is saved is, or nobody could read the file again.
func TestWhatIsSavedIsValidWhateverAPeerSays(t *testing.T) {
	b, _ := exactly([]int{48, 48}, 1, 1)
	const long = 1 << 62
	b.Observe([]Window{{Rail: 0, Class: someClass, Operations: 10, Bytes: 1 << 19, Elapsed: long, Whole: long, Took: long},
		{Rail: 1, Class: someClass, Operations: 10, Bytes: 1 << 19, Elapsed: long, Whole: long, Took: long}})
	saved, ok := b.Save()
	if err := saved.Validate(2); err != nil || !ok {
		t.Errorf("%v, saved: %v", err, ok)
	}
}
