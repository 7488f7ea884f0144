package polyrail_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	. "github.com/polyrail/polyrail"
	"github.com/polyrail/polyrail/collective/fault"
	"github.com/polyrail/polyrail/collective/table"
	"github.com/polyrail/polyrail/collective/view"
	"github.com/polyrail/polyrail/railactors/transport/mem"
)

// largestTable has as many classes as a table may have, with the longest numbers.
func largestTable(rails int) []TableEntry {
	entries := make([]TableEntry, table.MaxEntries)
	for i := range entries {
		entries[i].MaxBytes = 1<<62 + int64(i)
		for range rails {
			entries[i].Weights = append(entries[i].Weights, table.MaxWeight)
		}
	}
	entries[len(entries)-1].MaxBytes = 0
	return entries
}

// The second table takes the committed one along.
func TestTheLargestTableIsAgreedOn(t *testing.T) {
	inBed(t, 2, 16, nil, func(b *bed) {
		comms := b.form("train")
		for i := range 3 {
			ctx, cancel := context.WithTimeout(b.t.Context(), 10*time.Second)
			entries := largestTable(16)
			entries[0].Weights[0] = uint32(i)
			if err := comms[0].SetTable(ctx, Table{Entries: entries}); err != nil {
				t.Fatalf("table %d: %v", i, err)
			}
			cancel()
			b.each(func(i int) error { return comms[i].Barrier(b.t.Context()) })
		}
	})
}

func TestMoreRailsThanThereMayBeAreAConfigurationError(t *testing.T) {
	cfg := DefaultConfig()
	for i := range view.MaxRails + 1 {
		cfg.Rails = append(cfg.Rails, Rail{Name: fmt.Sprintf("rail%d", i),
			Transport: mem.NewNetwork().Transport("a"), Device: "eth0"})
	}
	err := cfg.Validate()
	if !errors.Is(err, fault.ErrConfig) || !strings.Contains(err.Error(), "33 rails: a node has at most 32") {
		t.Errorf("%v", err)
	}
	cfg.Rails = cfg.Rails[:view.MaxRails]
	if err := cfg.Validate(); err != nil {
		t.Error(err)
	}
}
