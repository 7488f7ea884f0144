package balance

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/polyrail/polyrail/collective/table"
)

func TestAMergedSetSaysWhatOperationsTookWithTheWaitingAndWithout(t *testing.T) {
	c := NewCollector(2, 2, alike(1), 0)
	first, second := setOf(1, 50, 40), setOf(1, 60, 50) // the second has waited for 10
	for i := range 2 {
		first[i].Whole, second[i].Whole = 55, 66
	}
	if _, _, err := c.Observe(0, first); err != nil {
		t.Fatal(err)
	}
	merged, complete, err := c.Observe(1, second)
	if err != nil || !complete {
		t.Fatalf("complete %v, error %v", complete, err)
	}
	for _, w := range merged {
		if w.Whole != 66 || w.Took != 56 {
			t.Errorf("rail %d: operations took %d ns, %d without the waiting; want 66 and 56", w.Rail, w.Whole, w.Took)
		}
	}
	second[1].Whole++
	if _, _, err := c.Observe(1, second); err == nil {
		t.Error("windows of operations that took two times are a set")
	}
}

// setOf is what a rank reports of its rails, in order.
func setOf(version uint32, elapsed ...time.Duration) (set []Window) {
	for rail, e := range elapsed {
		set = append(set, Window{Rail: rail, Class: 20, Split: version, Operations: WindowOperations, Bytes: 500, Elapsed: e})
	}
	return set
}

// merge gives a collector the ranks' sets, and returns what it makes of each rail.
func merge(t *testing.T, c *Collector, sets ...[]Window) (elapsed []time.Duration) {
	t.Helper()
	for rank, set := range sets {
		merged, complete, err := c.Observe(rank, set)
		if err != nil || complete != (rank == len(sets)-1) {
			t.Fatalf("rank %d: complete %v, error %v", rank, complete, err)
		}
		for _, w := range merged {
			elapsed = append(elapsed, w.Elapsed)
		}
	}
	return elapsed
}

func TestCollectorTakesOutTheWaitingAndKeepsASlowLink(t *testing.T) {
	for _, c := range []struct {
		name       string
		eagerBytes int64
		sets       [][]Window
		want       []time.Duration
	}{
		{"all alike", 1 << 10, [][]Window{setOf(1, 50, 40), setOf(1, 50, 40)}, []time.Duration{50, 40}},
		{"rank 1 came last", 1 << 10, [][]Window{setOf(1, 80, 70), setOf(1, 50, 40), setOf(1, 60, 50)}, []time.Duration{50, 40}},
		{"rail 1 is slow towards rank 1", 1 << 10, [][]Window{setOf(1, 50, 40), setOf(1, 50, 80)}, []time.Duration{50, 80}},
		{"and rank 0 came last", 1 << 10, [][]Window{setOf(1, 50, 40), setOf(1, 57, 87), setOf(1, 55, 45)}, []time.Duration{50, 80}},
		{"one rail works alone", 1 << 10, [][]Window{setOf(1, 80), setOf(1, 50)}, []time.Duration{50}},
		{"eager, rank 1 came last", 1 << 20, [][]Window{setOf(1, 60, 50), setOf(1, 40, 30)}, []time.Duration{50, 40}},
		{"eager, rail 1 is slow towards rank 2", 1 << 20, [][]Window{setOf(1, 50, 40), setOf(1, 50, 40), setOf(1, 50, 90)}, []time.Duration{50, 90}},
		{"eager, one rail works alone", 1 << 20, [][]Window{setOf(1, 60), setOf(1, 40)}, []time.Duration{50}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := merge(t, NewCollector(len(c.sets), 2, alike(1), c.eagerBytes), c.sets...); !slices.Equal(got, c.want) {
				t.Errorf("the rails took %v, want %v", got, c.want)
			}
		})
	}
}

// TestARailsBytesAreOfTheRankWhereItEndedLast: senders bind frames late, so a rail may carry other
// parts of what ranks receive.
func TestARailsBytesAreOfTheRankWhereItEndedLast(t *testing.T) {
	c := NewCollector(2, 2, alike(1), 0)
	moved := setOf(1, 60, 50)
	moved[0].Bytes, moved[1].Bytes = 600, 400
	if _, _, err := c.Observe(0, setOf(1, 50, 50)); err != nil {
		t.Fatal(err)
	}
	merged, complete, err := c.Observe(1, moved)
	if err != nil || !complete {
		t.Fatalf("complete %v, error %v", complete, err)
	}
	if merged[0].Bytes != 600 || merged[1].Bytes != 500 {
		t.Errorf("the rails carried %d and %d bytes, want 600 and 500", merged[0].Bytes, merged[1].Bytes)
	}
}

func TestCollectorTakesTheFirstSetOfARankThatIsAhead(t *testing.T) {
	c := NewCollector(2, 2, alike(1), 0)
	for _, e := range []time.Duration{5, 1} {
		if _, complete, err := c.Observe(1, setOf(1, e, e)); complete || err != nil {
			t.Fatal(complete, err)
		}
	}
	if merged, complete, _ := c.Observe(0, setOf(1, 5, 5)); !complete || merged[0].Elapsed != 5 {
		t.Errorf("merged %+v, complete %v", merged, complete)
	}
}

func TestCollectorUsesEachSetOfARootThatMeasuresAlone(t *testing.T) {
	c := NewCollector(3, 2, alike(1), 0).Some()
	for i := range 4 {
		set := []Window{{Rail: 0, Class: 20, Split: 1, Operations: 9, Bytes: 1, Elapsed: time.Duration(i + 1)}}
		merged, complete, err := c.Observe(0, set)
		if err != nil || complete != (i > 0) {
			t.Fatalf("set %d: complete %v, %v", i, complete, err)
		}
		if complete && merged[0].Elapsed != time.Duration(i) {
			t.Errorf("set %d ends a round of the one that took %v", i, merged[0].Elapsed)
		}
	}
}

func TestCollectorDropsWindowsOfAnotherTable(t *testing.T) {
	c := NewCollector(2, 2, alike(4), 64<<10)
	for _, version := range []uint32{3, 5} {
		if _, complete, err := c.Observe(1, setOf(version, 9)); complete || err != nil {
			t.Fatal(complete, err)
		}
	}
	if _, complete, _ := c.Observe(0, setOf(4, 1)); complete {
		t.Fatal("a window of another table counted")
	}
	c.Switch(alike(5))
	if _, complete, _ := c.Observe(1, setOf(5, 2)); complete {
		t.Fatal("a window from before the switch counted")
	}
	if merged, complete, _ := c.Observe(0, setOf(5, 1)); !complete || merged[0].Elapsed != 1 {
		t.Fatalf("merged %+v, complete %v", merged, complete)
	}
}

// A commit touches the classes that it divides in another way, and no others.
func TestATableThatChangesOneClassKeepsTheOthers(t *testing.T) {
	entries := func(version, second uint32) *table.Table {
		return &table.Table{Version: version, Entries: []table.Entry{
			{MaxBytes: 1 << 10, Weights: []uint32{1, 0}}, {MaxBytes: 3 << 10, Weights: []uint32{1, 1}},
			{Weights: []uint32{second, 1}}}}
	}
	first, second := entries(1, 2), entries(2, 3)
	changed := func(c Class) bool { return SplitOf(first, 0, c) != SplitOf(second, 0, c) }
	if changed(10) || changed(11) || !changed(12) || !changed(13) {
		t.Fatalf("classes from 1 to 8 KiB changed: %v, %v, %v, %v", changed(10), changed(11), changed(12), changed(13))
	}
	timer := NewTimer(0)
	full := func(of *table.Table, c Class) (full bool) {
		_, full = timer.Add(of.Version, SplitOf(of, 0, c), c, []RailTime{{0, 1000, time.Second}})
		return full
	}
	for range WindowOperations - 1 {
		if full(first, 11) || full(first, 12) {
			t.Fatal("full after fewer than ten")
		}
	}
	if !full(second, 11) || full(second, 12) {
		t.Error("want class 11 to go on, and class 12 to begin anew")
	}
	c := NewCollector(2, 2, SplitsOf(first, 0), 0)
	set := func(class Class, of *table.Table) []Window {
		s := setOf(SplitOf(of, 0, class), 1)
		for i := range s {
			s[i].Class = class
		}
		return s
	}
	for _, class := range []Class{11, 12} {
		if _, complete, err := c.Observe(0, set(class, first)); complete || err != nil {
			t.Fatal(complete, err)
		}
	}
	c.Switch(SplitsOf(second, 0))
	if _, complete, _ := c.Observe(1, set(11, second)); !complete {
		t.Error("class 11 has lost a rank's windows")
	}
	if _, complete, _ := c.Observe(1, set(12, second)); complete {
		t.Error("class 12 counts windows of the old table")
	}
}

func TestCollectorDropsWhatAFailoverDisturbed(t *testing.T) {
	c := NewCollector(2, 1, alike(1), 0)
	if _, complete, err := c.Observe(0, setOf(1, 1000)); complete || err != nil {
		t.Fatal(complete, err)
	}
	c.Disturbed()
	for rank := range 2 { // may hold the operation that was hit
		if _, complete, err := c.Observe(rank, setOf(1, 1000)); complete || err != nil {
			t.Fatal(complete, err)
		}
	}
	if got := merge(t, c, setOf(1, 3), setOf(1, 3)); !slices.Equal(got, []time.Duration{3}) {
		t.Errorf("after the failover the rail took %v", got)
	}
}

func TestCollectorRefusesWhatNoRankSends(t *testing.T) {
	c := NewCollector(2, 2, alike(1), 64<<10)
	refuse := func(rank int, change func(set []Window), word string) {
		t.Helper()
		set := setOf(1, 1, 1)
		change(set)
		if _, _, err := c.Observe(rank, set); err == nil || !strings.Contains(err.Error(), word) {
			t.Errorf("error is %v, want one with %q", err, word)
		}
	}
	refuse(2, func([]Window) {}, "rank 2 of 2")
	refuse(-1, func([]Window) {}, "rank -1")
	refuse(1, func(s []Window) { s[1].Rail = 2 }, "rail 2")
	refuse(1, func(s []Window) { s[0].Rail = -1 }, "rail -1")
	refuse(1, func(s []Window) { s[1].Rail = 0 }, "rail 0 after the one of rail 0")
	refuse(1, func(s []Window) { s[0].Class = Classes }, "class 41")
	refuse(1, func(s []Window) { s[1].Class = 9 }, "classes 20 and 9")
	refuse(1, func(s []Window) { s[1].Split = 9 }, "splits 1 and 9")
	refuse(1, func(s []Window) { s[0].Operations = 0 }, "0 operations")
	refuse(1, func(s []Window) { s[0].Elapsed = -1 }, "-1ns")
	refuse(1, func(s []Window) { s[0].Bytes = -1 }, "-1 bytes")
	for _, set := range [][]Window{nil, setOf(1, 1, 1, 1)} {
		if _, _, err := c.Observe(1, set); err == nil || !strings.Contains(err.Error(), "2 rails") {
			t.Errorf("a set of %d windows: %v", len(set), err)
		}
	}
	if len(c.columns) != 0 {
		t.Error("a refused set was kept")
	}
}
