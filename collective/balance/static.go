package balance

import (
	"fmt"
	"slices"

	"github.com/polyrail/polyrail/collective/op"
	"github.com/polyrail/polyrail/collective/schedule"
	"github.com/polyrail/polyrail/collective/table"
)

// Range says which algorithm runs operations of up to MaxBytes bytes. Ranges ascend; MaxBytes 0
// is the open end. Sizes that no range holds are left to the fixed rule.
type Range struct {
	MaxBytes  int64
	Algorithm op.Algorithm
}

// Equal are shares that give each rail the same.
func Equal(rails int) []uint32 {
	return slices.Repeat([]uint32{1}, rails)
}

// Single are shares that give everything to the first rail that has weight: of rails
// that were not measured, the first is as good a guess as any, and it is the same on all ranks.
func Single(weights []uint32) []uint32 {
	single := make([]uint32, len(weights))
	if first := slices.IndexFunc(weights, func(w uint32) bool { return w > 0 }); first >= 0 {
		single[first] = 1
	}
	return single
}

// Static is the table that holds until something is measured: operations below splitBytes
// go over one rail (Single), the others are divided by the weights.
func Static(weights []uint32, splitBytes int64, ranges []Range) (*table.Table, error) {
	ends, err := boundaries(splitBytes, ranges)
	if err != nil {
		return nil, err
	}
	t := &table.Table{Version: 1}
	for _, end := range ends {
		e := table.Entry{MaxBytes: end, Weights: slices.Clone(weights), Algorithm: algorithmOf(end, ranges)}
		if end != 0 && end < splitBytes {
			e.Weights = Single(weights)
		}
		t.Entries = append(t.Entries, e)
	}
	if err := t.Validate(len(weights)); err != nil {
		return nil, fmt.Errorf("static table: %w", err)
	}
	return t, nil
}

// boundaries are the upper ends of the table's classes, ascending, the open one (0) last.
func boundaries(splitBytes int64, ranges []Range) ([]int64, error) {
	var ends []int64
	algorithms := schedule.Algorithms(op.KindAllReduce)
	for i, r := range ranges {
		switch {
		case r.Algorithm != op.Auto && !slices.Contains(algorithms, r.Algorithm):
			return nil, fmt.Errorf("algorithm range %d: %v does not run allreduces (%v)",
				i, r.Algorithm, algorithms)
		case r.MaxBytes < 0:
			return nil, fmt.Errorf("algorithm range %d: ends at %d bytes", i, r.MaxBytes)
		case r.MaxBytes == 0 && i < len(ranges)-1:
			return nil, fmt.Errorf("algorithm range %d: is open but not the last", i)
		case r.MaxBytes == 0:
		case i > 0 && r.MaxBytes <= ranges[i-1].MaxBytes:
			return nil, fmt.Errorf("algorithm range %d: ends at %d bytes, which is not above the one before (%d)",
				i, r.MaxBytes, ranges[i-1].MaxBytes)
		default:
			ends = append(ends, r.MaxBytes)
		}
	}
	// A split at 0 or 1 bytes has nothing below it that could be divided.
	if splitBytes > 1 {
		ends = append(ends, splitBytes-1)
	}
	slices.Sort(ends)
	return append(slices.Compact(ends), 0), nil
}

// algorithmOf is the algorithm of the class that ends there.
func algorithmOf(end int64, ranges []Range) op.Algorithm {
	for _, r := range ranges {
		if r.MaxBytes == 0 || (end != 0 && end <= r.MaxBytes) {
			return r.Algorithm
		}
	}
	return op.Auto
}
