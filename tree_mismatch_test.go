package polyrail_test

import (
	"errors"
	"strings"
	"testing"

	. "github.com/polyrail/polyrail"
	"github.com/polyrail/polyrail/test/testbed"
)

// Ranks call different operations, and the aggregation node alone sees both. The communicator breaks
// on every rank, with an error that names the two calls and who has found it.
func TestAMismatchThatAnAggregationNodeFindsBreaksTheCommunicator(t *testing.T) {
	const ranks = 3
	always := func(c *Config) { c.Trees = TreesAlways }
	inGrove(t, ranks, 1, 1, always, func(b *bed, comms []*Communicator) {
		untilTree(b, comms[0], true)
		for seed := range uint64(4) { // the first ones are still of the table before
			sums(b, comms, 100_000, seed, true)
		}
		errs := make([]error, ranks)
		b.ranks(comms, func(r int) error {
			op := Sum
			if r == 1 {
				op = Max
			}
			errs[r] = AllReduce(b.t.Context(), comms[r], make([]float32, 100_000), op)
			return nil
		})
		for r, err := range errs {
			for _, want := range []string{`aggregation node "` + testbed.NodeName(ranks) + `" found`, "sum", "max"} {
				if !errors.Is(err, ErrMismatch) || !strings.Contains(err.Error(), want) {
					t.Errorf("rank %d: no %q in %v", r, want, err)
				}
			}
			if !errors.Is(comms[r].Err(), ErrMismatch) {
				t.Errorf("rank %d goes on: %v", r, comms[r].Err())
			}
		}
	})
}
