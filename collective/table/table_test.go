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
