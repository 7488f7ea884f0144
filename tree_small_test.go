package polyrail_test

import (
	"fmt"
	"slices"
	"testing"

	. "github.com/polyrail/polyrail"
	"github.com/polyrail/polyrail/collective/plan"
	"github.com/polyrail/polyrail/collective/schedule"
)

// Small sums and barriers go over a tree, too, where the table says so: with the bits that they have
// without one.
func TestSmallSumsOverATree(t *testing.T) {
	for _, ranks := range []int{2, 3, 5} {
		t.Run(fmt.Sprint(ranks), func(t *testing.T) {
			adapt := func(c *Config) { c.Trees, c.TreeFragment = TreesAlways, 4<<10 }
			inGrove(t, ranks, 1, 1, adapt, func(b *bed, comms []*Communicator) {
				untilTree(b, comms[0], true)
				for seed := range uint64(4) { // the first ones are still of the table before
					smallSums(b, comms, 2, seed)
				}
				before := b.Nodes[ranks].Rails()[0].FramesReceived
				const rounds = 60
				for seed := range uint64(rounds) {
					smallSums(b, comms, []int{1, 2, 100, 1000, 5000, 60_000}[seed%6], seed)
				}
				if got := b.Nodes[ranks].Rails()[0].FramesReceived - before; got < 2*rounds*uint64(ranks) {
					t.Errorf("the aggregation node has received %d frames of %d sums and as many barriers", got, rounds)
				}
			})
		})
	}
}

// smallSums runs an allreduce on every rank, and a barrier, and compares with what the algorithm of
// that size makes without a tree, to the bit.
func smallSums(b *bed, comms []*Communicator, elements int, seed uint64) {
	b.t.Helper()
	n := len(comms)
	in := floats(n, elements, seed)
	want := orderedSum(in)
	b.ranks(comms, func(i int) error {
		buf := slices.Clone(in[i])
		if err := AllReduce(b.t.Context(), comms[i], buf, Sum); err != nil {
			return err
		}
		if !slices.Equal(buf, want) {
			return fmt.Errorf("rank %d: wrong sum of %d elements", i, elements)
		}
		clear(buf) // it is the caller's again, whatever the tree has yet to settle
		return comms[i].Barrier(b.t.Context())
	})
}

// orderedSum is the sum in the order of the algorithm that runs by default.
func orderedSum(in [][]float32) (sum []float32) {
	n, bytes := len(in), 4*len(in[0])
	a := schedule.Choose(KindAllReduce, int64(bytes), n, nil)
	values := make([]float32, n)
	for owner, length := range plan.Even(bytes, schedule.Parts(KindAllReduce, a, n)) {
		order := schedule.Order(schedule.Spec{Kind: KindAllReduce, Algorithm: a, N: n, Base: 2}, owner)
		for range length / 4 {
			for r := range in {
				values[r] = in[r][len(sum)]
			}
			for _, f := range order {
				values[f.Into] += values[f.From]
			}
			sum = append(sum, values[order[n-2].Into])
		}
	}
	return sum
}
