package balance

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/polyrail/polyrail/collective/op"
	"github.com/polyrail/polyrail/collective/table"
	"pgregory.net/rapid"
)

func TestClassesAreUpperPowersOfTwo(t *testing.T) {
	for _, c := range []struct {
		bytes int64
		max   int64
	}{{0, 1}, {1, 1}, {2, 2}, {3, 4}, {4, 4}, {5, 8}, {1024, 1024}, {1025, 2048}, {1 << 62, 1 << 62}, {1<<63 - 1, 1 << 62}} {
		if got := ClassOf(c.bytes); got.MaxBytes() != c.max || !got.Valid() {
			t.Errorf("ClassOf(%d) is %v, want ≤ %d B", c.bytes, got, c.max)
		}
	}
	if Class(Classes).Valid() {
		t.Error("a class past the last one is valid")
	}
	rapid.Check(t, func(t *rapid.T) {
		bytes := rapid.Int64Range(2, 1<<62).Draw(t, "bytes")
		if c := ClassOf(bytes); bytes > c.MaxBytes() || bytes <= (c-1).MaxBytes() {
			t.Fatalf("%d bytes are in class %v", bytes, c)
		}
	})
}

// fillWindow adds operations until a window is full, and returns it.
func fillWindow(t *testing.T, timer *Timer, rail int, version uint32, elapsed func(i int) time.Duration) Window {
	t.Helper()
	for i := 0; ; i++ {
		w, full := timer.Add(rail, 10, version, 1000, elapsed(i))
		if full != (i == WindowOperations-1) {
			t.Fatalf("operation %d: window full: %v", i+1, full)
		}
		if full {
			return w
		}
	}
}

func TestTimerGivesTheMeanOfTenOperationsWithoutTheSlowest(t *testing.T) {
	timer := NewTimer(2)
	w := fillWindow(t, timer, 1, 3, func(i int) time.Duration { return time.Duration(i+1) * time.Millisecond })
	want := Window{Rail: 1, Class: 10, Table: 3, Operations: 10, Bytes: 1000, Elapsed: 5 * time.Millisecond}
	if w != want {
		t.Errorf("window is %+v, want %+v", w, want)
	}
	if err := w.Validate(2); err != nil {
		t.Error(err)
	}
}

func TestTimerKeepsRailsAndClassesApart(t *testing.T) {
	timer := NewTimer(2)
	for range WindowOperations - 1 {
		for rail := range 2 {
			for class := range Class(4) {
				if _, full := timer.Add(rail, class, 1, 1, time.Second); full {
					t.Fatalf("rail %d, class %v: full after fewer than ten", rail, class)
				}
			}
		}
	}
	if w, full := timer.Add(1, 2, 1, 1, time.Second); !full || w.Rail != 1 || w.Class != 2 {
		t.Errorf("the tenth gave %+v, %v", w, full)
	}
}

func TestTimerNeverMixesTables(t *testing.T) {
	timer := NewTimer(1)
	for range WindowOperations - 1 {
		timer.Add(0, 0, 1, 0, time.Hour)
	}
	w := fillWindow(t, timer, 0, 2, func(int) time.Duration { return time.Second })
	if w.Elapsed != time.Second || w.Table != 2 {
		t.Errorf("window under table 2 is %+v", w)
	}
	for range 2 * WindowOperations {
		if _, full := timer.Add(0, 0, 1, 0, time.Hour); full {
			t.Fatal("operations under an old table filled a window")
		}
	}
}

func TestTimerDropsWhatAFailoverDisturbed(t *testing.T) {
	timer := NewTimer(2)
	timer.Add(0, 10, 1, 1000, time.Hour)
	timer.Add(1, 10, 1, 1000, time.Second)
	timer.Drop(0)
	if w := fillWindow(t, timer, 0, 1, func(int) time.Duration { return time.Second }); w.Elapsed != time.Second {
		t.Errorf("the window still holds what was dropped: %+v", w)
	}
	for range WindowOperations - 2 {
		timer.Add(1, 10, 1, 1000, time.Second)
	}
	if _, full := timer.Add(1, 10, 1, 1000, time.Second); !full {
		t.Error("dropping rail 0 touched rail 1")
	}
}

func window(version uint32, elapsed time.Duration) Window {
	return Window{Rail: 1, Class: 20, Table: version, Operations: WindowOperations, Bytes: 500, Elapsed: elapsed}
}

func TestShortOperationsFillLongerWindows(t *testing.T) {
	timer := NewTimer(1)
	for i := 1; ; i++ {
		if w, full := timer.Add(0, 3, 1, 8, 10*time.Microsecond); full {
			if w.Operations != i || i < 100 || i > 102 || w.Elapsed != 10*time.Microsecond {
				t.Errorf("the window of operation %d is %+v", i, w)
			}
			return
		}
	}
}

func TestCollectorLeavesOutTheWaitingForLateRanks(t *testing.T) {
	for _, c := range []struct {
		eagerBytes  int64
		first, next time.Duration
	}{{1 << 10, 5, 1}, {1 << 20, 7, 3}} {
		col := NewCollector(3, 2, 1, c.eagerBytes)
		for _, r := range []struct {
			rank     int
			elapsed  time.Duration
			complete bool
			want     time.Duration
		}{{0, 5, false, 0}, {2, 9, false, 0}, {2, 2, false, 0}, {1, 7, true, c.first}, {1, 3, false, 0}, {2, 1, false, 0}, {0, 5, true, c.next}} {
			merged, complete, err := col.Observe(r.rank, window(1, r.elapsed))
			if err != nil || complete != r.complete || merged.Elapsed != r.want {
				t.Fatalf("eager to %d, rank %d: complete %v, merged %v, error %v", c.eagerBytes, r.rank, complete, merged.Elapsed, err)
			}
		}
	}
}

func TestCollectorDropsWindowsOfAnotherTable(t *testing.T) {
	c := NewCollector(2, 2, 4, 64<<10)
	for _, version := range []uint32{3, 5} {
		if _, complete, err := c.Observe(1, window(version, 9)); complete || err != nil {
			t.Fatal(complete, err)
		}
	}
	if _, complete, _ := c.Observe(0, window(4, 1)); complete {
		t.Fatal("a window of another table counted")
	}
	c.Switch(5)
	if _, complete, _ := c.Observe(1, window(5, 2)); complete {
		t.Fatal("a window from before the switch counted")
	}
	if merged, complete, _ := c.Observe(0, window(5, 1)); !complete || merged.Elapsed != 1 {
		t.Fatalf("merged %+v, complete %v", merged, complete)
	}
}

func TestCollectorRefusesWhatNoRankSends(t *testing.T) {
	c := NewCollector(2, 2, 1, 64<<10)
	refuse := func(rank int, change func(*Window), word string) {
		t.Helper()
		w := window(1, 1)
		change(&w)
		if _, _, err := c.Observe(rank, w); err == nil || !strings.Contains(err.Error(), word) {
			t.Errorf("error is %v, want one with %q", err, word)
		}
	}
	refuse(2, func(*Window) {}, "rank 2 of 2")
	refuse(-1, func(*Window) {}, "rank -1")
	refuse(1, func(w *Window) { w.Rail = 2 }, "rail 2")
	refuse(1, func(w *Window) { w.Rail = -1 }, "rail -1")
	refuse(1, func(w *Window) { w.Class = Classes }, "class 63")
	refuse(1, func(w *Window) { w.Operations = 9 }, "9 operations")
	refuse(1, func(w *Window) { w.Elapsed = -1 }, "-1ns")
	refuse(1, func(w *Window) { w.Bytes = -1 }, "-1 bytes")
	if len(c.cells) != 0 {
		t.Error("a refused window was kept")
	}
}

func TestStaticTableSplitsFromTheConfiguredSizeOn(t *testing.T) {
	tab, err := Static([]uint32{0, 3, 1}, 16<<10, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		bytes   int64
		weights []uint32
	}{{0, []uint32{0, 1, 0}}, {16<<10 - 1, []uint32{0, 1, 0}}, {16 << 10, []uint32{0, 3, 1}}, {1 << 40, []uint32{0, 3, 1}}} {
		if got := tab.Lookup(c.bytes); !slices.Equal(got.Weights, c.weights) || got.Algorithm != op.Auto {
			t.Errorf("%d bytes: %+v, want weights %v", c.bytes, got, c.weights)
		}
	}
}

func TestStaticTableCombinesSplitAndAlgorithms(t *testing.T) {
	tab, err := Static(Equal(2), 1000, []Range{{MaxBytes: 100, Algorithm: op.RecursiveDoubling}, {MaxBytes: 5000, Algorithm: op.Bcube}})
	if err != nil {
		t.Fatal(err)
	}
	one, both := []uint32{1, 0}, []uint32{1, 1}
	want := []table.Entry{
		{MaxBytes: 100, Weights: one, Algorithm: op.RecursiveDoubling},
		{MaxBytes: 999, Weights: one, Algorithm: op.Bcube},
		{MaxBytes: 5000, Weights: both, Algorithm: op.Bcube},
		{MaxBytes: 0, Weights: both, Algorithm: op.Auto},
	}
	if !slices.EqualFunc(tab.Entries, want, func(a, b table.Entry) bool {
		return a.MaxBytes == b.MaxBytes && a.Algorithm == b.Algorithm && slices.Equal(a.Weights, b.Weights)
	}) {
		t.Errorf("table is %+v", tab.Entries)
	}
}

func TestStaticTableAnswersEverySizeByTheRules(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		weights := rapid.SliceOfN(rapid.Uint32Range(0, 5), 1, 4).Draw(t, "weights")
		weights[rapid.IntRange(0, len(weights)-1).Draw(t, "positive")] = 1
		split := rapid.Int64Range(-1, 300).Draw(t, "split")
		var ranges []Range
		for _, end := range rapid.SliceOfNDistinct(rapid.Int64Range(1, 300), 0, 4, rapid.ID[int64]).Draw(t, "ends") {
			ranges = append(ranges, Range{MaxBytes: end, Algorithm: op.Algorithm(1 + end%3)})
		}
		slices.SortFunc(ranges, func(a, b Range) int { return int(a.MaxBytes - b.MaxBytes) })
		if rapid.Bool().Draw(t, "open") {
			ranges = append(ranges, Range{Algorithm: op.Ring})
		}
		tab, err := Static(weights, split, ranges)
		if err != nil {
			t.Fatal(err)
		}
		for bytes := range int64(310) {
			e := tab.Lookup(bytes)
			want := weights
			if split > 1 && bytes < split {
				want = Single(weights)
			}
			algorithm := op.Auto
			for _, r := range slices.Backward(ranges) {
				if r.MaxBytes == 0 || bytes <= r.MaxBytes {
					algorithm = r.Algorithm
				}
			}
			if !slices.Equal(e.Weights, want) || e.Algorithm != algorithm {
				t.Fatalf("%d bytes: %+v, want %v, %v", bytes, e, want, algorithm)
			}
		}
	})
}

func TestStaticTableNamesAFaultyRange(t *testing.T) {
	for _, c := range []struct {
		weights []uint32
		ranges  []Range
		word    string
	}{
		{Equal(1), []Range{{MaxBytes: -1, Algorithm: op.Ring}}, "range 0"},
		{Equal(1), []Range{{Algorithm: op.Ring}, {MaxBytes: 5, Algorithm: op.Ring}}, "range 0: is open"},
		{Equal(1), []Range{{MaxBytes: 5, Algorithm: op.Ring}, {MaxBytes: 5, Algorithm: op.Ring}}, "range 1"},
		{[]uint32{0, 0}, nil, "no rail has weight"},
		{Equal(1), []Range{{MaxBytes: 5, Algorithm: 99}}, "algorithm(99)"},
	} {
		if _, err := Static(c.weights, 1000, c.ranges); err == nil || !strings.Contains(err.Error(), c.word) {
			t.Errorf("error is %v, want one with %q", err, c.word)
		}
	}
}
