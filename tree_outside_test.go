package polyrail_test

import (
	"fmt"
	"slices"
	"testing"

	. "github.com/polyrail/polyrail"
)

// A process that contributes nothing gets the result of those who do: they are a communicator of their
// own, with a tree, and one of them sends it on (docs/decisions/044).
func TestAResultForAProcessOutsideTheGroup(t *testing.T) {
	const ranks, reader, elements = 4, 3, 50_000
	adapt := func(c *Config) { c.Trees = TreesAlways }
	inGrove(t, ranks, 1, 1, adapt, func(b *bed, all []*Communicator) {
		sums := make([]*Communicator, ranks)
		b.ranks(all, func(i int) (err error) {
			sums[i], err = all[i].Sub(b.t.Context(), []int{0, 1, 2})
			return err
		})
		if sums[reader] != nil {
			t.Fatal("the reader is one of those who contribute")
		}
		untilTree(b, sums[0], true)
		for round := range uint64(8) {
			in := floats(reader, elements, round)
			want := flatSum(in)
			b.ranks(all, func(i int) error {
				if i == reader {
					got := make([]float32, elements)
					s, err := Recv(b.t.Context(), all[i], got, 0, 7)
					if err == nil && (s.Source != 0 || !slices.Equal(got, want)) {
						err = fmt.Errorf("round %d: another sum than that of the ranks, from %d", round, s.Source)
					}
					return err
				}
				if err := AllReduce(b.t.Context(), sums[i], in[i], Sum, WithAlgorithm(Ring)); err != nil || i > 0 {
					return err
				}
				return Send(b.t.Context(), all[i], in[i], reader, 7)
			})
		}
		b.ranks(sums[:reader], func(i int) error { return sums[i].Close(b.t.Context()) })
	})
}
