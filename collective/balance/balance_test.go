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
	}{{0, 1}, {1, 1}, {2, 2}, {3, 4}, {4, 4}, {5, 8}, {1024, 1024}, {1025, 2048}, {1 << 40, 1 << 40}, {1<<40 + 1, 1 << 40}, {1<<63 - 1, 1 << 40}} {
		if got := ClassOf(c.bytes); got.MaxBytes() != c.max || !got.Valid() {
			t.Errorf("ClassOf(%d) is %v, want ≤ %d B", c.bytes, got, c.max)
		}
	}
	if Class(Classes).Valid() {
		t.Error("a class past the last one is valid")
	}
	rapid.Check(t, func(t *rapid.T) {
		bytes := rapid.Int64Range(2, 1<<40).Draw(t, "bytes")
		if c := ClassOf(bytes); bytes > c.MaxBytes() || bytes <= (c-1).MaxBytes() {
			t.Fatalf("%d bytes are in class %v", bytes, c)
		}
	})
}

// alike are splits of all classes at once.
func alike(split uint32) func(Class) uint32 { return func(Class) uint32 { return split } }

// warm is a timer under whose table operations of that class have run for a while.
func warm(table uint32, class Class) *Timer {
	timer := NewTimer(0)
	timer.Add(table, table, class, []RailTime{{0, 1, transient - 1}})
	return timer
}

// fillSet adds operations of one rail until a set is full, and returns its window.
func fillSet(t *testing.T, timer *Timer, rail int, version uint32, elapsed func(i int) time.Duration) Window {
	t.Helper()
	for i := 0; ; i++ {
		set, full := timer.Add(version, version, 10, []RailTime{{Rail: rail, Bytes: 1000, Elapsed: elapsed(i)}})
		if full != (i == WindowOperations-1) {
			t.Fatalf("operation %d: set full: %v", i+1, full)
		}
		if full {
			if len(set) != 1 {
				t.Fatalf("one rail filled the windows %+v", set)
			}
			return set[0]
		}
	}
}

func TestTimerGivesTheMeanOfTenOperationsWithoutTheSlowest(t *testing.T) {
	timer := warm(3, 10)
	w := fillSet(t, timer, 1, 3, func(i int) time.Duration { return time.Duration(i+1) * time.Millisecond })
	want := Window{Rail: 1, Class: 10, Split: 3, Operations: 9, Bytes: 1000, Elapsed: 5 * time.Millisecond, Whole: 5 * time.Millisecond}
	if w != want {
		t.Errorf("window is %+v, want %+v", w, want)
	}
	if err := validateSet([]Window{w}, 2); err != nil {
		t.Error(err)
	}
}

func TestTheWindowsOfASetAreOfTheSameOperations(t *testing.T) {
	timer := warm(1, 7)
	for i := range WindowOperations {
		elapsed := []time.Duration{time.Millisecond, time.Microsecond}
		if i == 4 { // the slowest operation counts for neither rail
			elapsed = []time.Duration{2 * time.Millisecond, time.Second}
		}
		set, full := timer.Add(1, 1, 7, []RailTime{{0, 300, elapsed[0]}, {1, 100, elapsed[1]}})
		if full != (i == WindowOperations-1) {
			t.Fatalf("operation %d: full %v", i, full)
		}
		want := []Window{{0, 7, 1, 9, 300, time.Millisecond, time.Millisecond, 0, 0},
			{1, 7, 1, 9, 100, time.Microsecond, time.Millisecond, 0, 0}}
		if full && !slices.Equal(set, want) {
			t.Errorf("set is %+v, want %+v", set, want)
		}
	}
}

func TestARailThatOnlyLargerOperationsUseHasItsOwnMean(t *testing.T) {
	timer := NewTimer(0)
	for i := range WindowOperations {
		samples := []RailTime{{0, 100, time.Second}}
		if i%2 == 0 {
			samples = append(samples, RailTime{1, 10, 2 * time.Second})
		}
		if set, full := timer.Add(1, 1, 7, samples); full {
			const whole = 13 * time.Second / 9 // four of two seconds, five of one
			want := []Window{{0, 7, 1, 9, 100, time.Second, whole, 0, 0},
				{1, 7, 1, 4, 10, 2 * time.Second, whole, 0, 0}}
			if !slices.Equal(set, want) {
				t.Errorf("set is %+v, want %+v", set, want)
			}
		}
	}
}

func TestTimerKeepsClassesApart(t *testing.T) {
	timer := NewTimer(0)
	for range WindowOperations - 1 {
		for class := range Class(4) {
			if _, full := timer.Add(1, 1, class, []RailTime{{0, 1, time.Second}}); full {
				t.Fatalf("class %v: full after fewer than ten", class)
			}
		}
	}
	if set, full := timer.Add(1, 1, 2, []RailTime{{0, 1, time.Second}}); !full || set[0].Class != 2 {
		t.Errorf("the tenth gave %+v, %v", set, full)
	}
}

func TestTimerNeverMixesTables(t *testing.T) {
	timer := NewTimer(0)
	for range WindowOperations - 1 {
		timer.Add(1, 1, 10, []RailTime{{0, 1000, time.Hour}})
	}
	w := fillSet(t, timer, 0, 2, func(int) time.Duration { return time.Second })
	if w.Elapsed != time.Second || w.Split != 2 {
		t.Errorf("window under table 2 is %+v", w)
	}
	for range 2 * WindowOperations {
		if _, full := timer.Add(1, 1, 10, []RailTime{{0, 1000, time.Hour}}); full {
			t.Fatal("operations under an old table filled a window")
		}
	}
}

func TestTimerDropsWhatAFailoverDisturbed(t *testing.T) {
	timer := NewTimer(0)
	for range WindowOperations - 1 {
		timer.Add(1, 1, 10, []RailTime{{0, 1000, time.Hour}})
	}
	timer.Drop()
	if w := fillSet(t, timer, 0, 1, func(int) time.Duration { return time.Second }); w.Elapsed != time.Second {
		t.Errorf("the window still holds what was dropped: %+v", w)
	}
}

func TestShortOperationsFillLongerWindows(t *testing.T) {
	timer := warm(1, 3)
	for i := 1; ; i++ {
		if set, full := timer.Add(1, 1, 3, []RailTime{{0, 8, 10 * time.Microsecond}}); full {
			if w := set[0]; w.Operations != i-1 || i < 100 || i > 102 || w.Elapsed != 10*time.Microsecond {
				t.Errorf("the window of operation %d is %+v", i, w)
			}
			return
		}
	}
}

// What a shaper has saved up for a rail would make its first operations under a table look quick.
func TestTheFirstOperationsUnderATableDoNotCount(t *testing.T) {
	timer := NewTimer(0)
	for table := range uint32(3) {
		for n := 1; ; n++ {
			elapsed := time.Millisecond
			if time.Duration(n)*elapsed < transient {
				elapsed /= 2
			}
			set, full := timer.Add(table+1, table+1, 16, []RailTime{{0, 1000, elapsed}})
			if !full {
				continue
			}
			if w := set[0]; w.Elapsed != time.Millisecond || w.Operations != WindowOperations-1 {
				t.Errorf("table %d: the window after %d operations is %+v", table+1, n, w)
			}
			break
		}
	}
}

func TestWindowsGrowWhileTheTableStays(t *testing.T) {
	timer, before := NewTimer(0), uint32(0)
	next := func(table uint32) (operations int) {
		if table != before { // the first ones are passed over
			timer.Add(table, table, 3, []RailTime{{0, 8, transient - 1}})
			before = table
		}
		for {
			set, full := timer.Add(table, table, 3, []RailTime{{0, 8, 100 * time.Microsecond}})
			if operations++; full {
				if w := set[0]; w.Operations != operations-1 || w.Split != table {
					t.Errorf("the window after %d operations is %+v", operations, w)
				}
				return operations
			}
		}
	}
	for _, c := range []struct {
		table uint32
		want  int
	}{{1, 11}, {1, 21}, {1, 41}, {1, 81}, {1, 161}, {1, 161}, {2, 11}, {2, 21}} {
		if got := next(c.table); got != c.want {
			t.Errorf("table %d: a window of %d operations, want %d", c.table, got, c.want)
		}
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
		{Equal(1), []Range{{MaxBytes: 5, Algorithm: op.Chain}}, "range 0: chain does not run"},
	} {
		if _, err := Static(c.weights, 1000, c.ranges); err == nil || !strings.Contains(err.Error(), c.word) {
			t.Errorf("error is %v, want one with %q", err, c.word)
		}
	}
}

// What is larger than the last class's size is in it, and so are tables that divide it.
func TestTheLastClassIsOpen(t *testing.T) {
	split := func(huge uint32) uint32 {
		tab := &table.Table{Entries: []table.Entry{{MaxBytes: 2 << 40, Weights: []uint32{1, 1}}, {Weights: []uint32{1, huge}}}}
		return SplitOf(tab, table.AllReduces, ClassOf(1<<40))
	}
	if split(1) == split(2) {
		t.Error("two tables divide operations of 4 TiB in two ways, and it doesn't show")
	}
}
