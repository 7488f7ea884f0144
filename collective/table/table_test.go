package table

import (
	"slices"
	"strings"
	"testing"

	"github.com/polyrail/polyrail/collective/op"
)

func entry(maxBytes int64, weights ...uint32) Entry {
	return Entry{MaxBytes: maxBytes, Weights: weights}
}

func TestLookupFindsTheFirstClassThatHoldsTheSize(t *testing.T) {
	tab := &Table{Entries: []Entry{entry(10, 1), entry(20, 2), entry(0, 3)}}
	for bytes, want := range map[int64]uint32{0: 1, 10: 1, 11: 2, 20: 2, 21: 3, 1 << 40: 3} {
		if got := tab.Lookup(bytes).Weights[0]; got != want {
			t.Errorf("%d bytes: entry %d, want %d", bytes, got, want)
		}
	}
}

// A caller gets such a table from a communicator that is nil: it must not end the process.
func TestATableThatIsNotValidHasEmptyEntries(t *testing.T) {
	for _, table := range []Table{{}, {Entries: []Entry{{MaxBytes: 8}}}, {Entries: []Entry{{Family: Rooted}}}} {
		for f := range Families {
			if e := table.LookupIn(f, 9); len(e.Weights) != 0 || table.Tree(-1) != 0 {
				t.Errorf("%v: %+v", f, e)
			}
		}
	}
}

func TestValidateListsEveryFault(t *testing.T) {
	tab := &Table{Entries: []Entry{
		entry(10, 1, 1),
		entry(10, 1, 1),
		entry(20, 1),
		entry(30, 0, 0),
		entry(40, 1, MaxWeight+1),
		{MaxBytes: 50, Weights: []uint32{1, 1}, Algorithm: 77},
		{MaxBytes: 55, Weights: []uint32{1, 1}, Algorithm: op.Chain},
		entry(60, 1, 1),
	}}
	err := tab.Validate(2)
	for _, want := range []string{
		"entry 1: class ends at 10 bytes", "entry 2: 1 weights for 2 rails", "entry 3: no rail has weight",
		"entry 4: rail 1: weight", "entry 5: algorithm(77)", "entry 6: chain",
		"entry 7: the last class ends at 60",
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is missing in: %v", want, err)
		}
	}
	if err != nil && strings.Contains(err.Error(), "entry 0") {
		t.Errorf("entry 0 has no fault: %v", err)
	}
}

func TestValidateRefusesWhatIsNoTable(t *testing.T) {
	good := &Table{Entries: []Entry{{Weights: []uint32{1}, Algorithm: op.Ring}}}
	if err := good.Validate(1); err != nil {
		t.Error(err)
	}
	for _, c := range []struct {
		table *Table
		rails int
	}{
		{&Table{}, 1},
		{&Table{Entries: slices.Repeat(good.Entries, MaxEntries+1)}, 1},
		{good, 0},
		{&Table{Entries: []Entry{entry(0, slices.Repeat([]uint32{1}, MaxRails+1)...)}}, MaxRails + 1},
		{&Table{Entries: []Entry{entry(-5, 1), entry(0, 1)}}, 1},
	} {
		if c.table.Validate(c.rails) == nil {
			t.Errorf("table of %d entries for %d rails is valid", len(c.table.Entries), c.rails)
		}
	}
}

func TestCloneSharesNoMemory(t *testing.T) {
	a := &Table{Version: 3, Entries: []Entry{entry(0, 1, 2)}}
	b := a.Clone()
	b.Entries[0].Weights[0] = 9
	b.Entries[0].MaxBytes = 9
	if a.Entries[0].Weights[0] != 1 || a.Entries[0].MaxBytes != 0 || b.Version != 3 {
		t.Errorf("the original became %+v", a)
	}
}

// families are a table of two families, with trees on one of two rails.
func families() *Table {
	in := func(f Family, maxBytes int64, weight uint32) Entry {
		return Entry{Family: f, MaxBytes: maxBytes, Weights: []uint32{weight, 1}}
	}
	return &Table{Version: 1, Trees: []uint64{0, 7}, Entries: []Entry{
		in(AllReduces, 10, 1), in(AllReduces, 20, 2), in(AllReduces, 0, 3),
		in(Pipelines, 15, 4), in(Pipelines, 0, 5)}}
}

func TestAFamilyWithoutEntriesUsesThoseOfAllReduces(t *testing.T) {
	tab := families()
	if err := tab.Validate(2); err != nil {
		t.Fatal(err)
	}
	for f := range Families {
		if FamilyOf(f.Kind()) != f {
			t.Errorf("%v stands for %v, and is one of %v", f.Kind(), f, FamilyOf(f.Kind()))
		}
		want := map[int64]uint32{0: 1, 10: 1, 11: 2, 20: 2, 21: 3, 1 << 40: 3}
		if f == Pipelines {
			want = map[int64]uint32{0: 4, 15: 4, 16: 5, 1 << 40: 5}
		}
		for bytes, weight := range want {
			if got := tab.LookupIn(f, bytes).Weights[0]; got != weight {
				t.Errorf("%v of %d bytes: entry %d, want %d", f, bytes, got, weight)
			}
		}
	}
}

func TestValidateRefusesFamiliesAndTreesThatNobodyCanLookUp(t *testing.T) {
	for what, spoil := range map[string]func(*Table){
		"family(5) is unknown":                func(t *Table) { t.Entries[4].Family = Families },
		"route(4) is unknown":                 func(t *Table) { t.Entries[4].Route = routeEnd },
		"the table begins with":               func(t *Table) { t.Entries = t.Entries[3:] },
		"reduce, scans after gather, scatter": func(t *Table) { t.Entries[3].Family = Rooted },
		"entry 2: the last class ends":        func(t *Table) { t.Entries[2].MaxBytes = 30 },
		"entry 3: class ends at 0 byte":       func(t *Table) { t.Entries[3].MaxBytes = 0 },
		"trees of 1 rails":                    func(t *Table) { t.Trees = t.Trees[:1] },
		"257 entries":                         func(t *Table) { t.Entries = manyEntries(MaxEntries + 1) },
	} {
		tab := families()
		spoil(tab)
		if err := tab.Validate(2); err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("%q is missing in: %v", what, err)
		}
	}
	most := &Table{Entries: manyEntries(MaxEntries)}
	if err := most.Validate(2); err != nil {
		t.Errorf("at the limit: %v", err)
	}
}

func manyEntries(n int) (entries []Entry) {
	for i := range n - 1 {
		entries = append(entries, entry(int64(i+1), 1, 1))
	}
	return append(entries, entry(0, 1, 1))
}

// A digest of a range changes with what operations of these sizes run under, and with nothing else.
func TestDigestTellsWhatARangeRunsUnder(t *testing.T) {
	for _, c := range []struct {
		what   string
		differ bool
		change func(*Table)
	}{
		{"nothing", false, func(t *Table) {}},
		{"its version", false, func(t *Table) { t.Version++ }},
		{"a smaller class", false, func(t *Table) { t.Entries[0].Weights[0]++ }},
		{"a larger class", false, func(t *Table) { t.Entries[2].Weights[0]++ }},
		{"another family", false, func(t *Table) { t.Entries[3].Weights[0]++ }},
		{"a limit that stays outside", false, func(t *Table) { t.Entries[1].MaxBytes = 19 }},
		{"weights", true, func(t *Table) { t.Entries[1].Weights[1]++ }},
		{"the algorithm", true, func(t *Table) { t.Entries[1].Algorithm = op.Ring }},
		{"the route", true, func(t *Table) { t.Entries[1].Route = Flat }},
		{"a tree", true, func(t *Table) { t.Trees[1]++ }},
		{"the class above begins in it", true, func(t *Table) { t.Entries[1].MaxBytes = 17 }},
	} {
		before, after := families(), families()
		before.Entries[1].MaxBytes, after.Entries[1].MaxBytes = 18, 18
		c.change(after)
		differ := before.Digest(AllReduces, 10, 18) != after.Digest(AllReduces, 10, 18)
		if differ != c.differ {
			t.Errorf("%s: digests differ: %v", c.what, differ)
		}
	}
	tab := families()
	apart := families()
	apart.Entries[1].MaxBytes = 12
	if tab.Digest(AllReduces, 10, 30) == apart.Digest(AllReduces, 10, 30) {
		t.Error("where one class ends and the next begins is not told")
	}
}

func TestOneLaneHasEverythingAndTheOriginalStays(t *testing.T) {
	tab := families()
	one := tab.OneLane()
	for i, e := range one.Entries {
		if !slices.Equal(e.Weights, []uint32{1, 0}) || e.MaxBytes != tab.Entries[i].MaxBytes {
			t.Errorf("entry %d: %+v", i, e)
		}
	}
	if !slices.Equal(tab.Entries[4].Weights, []uint32{5, 1}) {
		t.Errorf("the original became %+v", tab.Entries[4])
	}
}
