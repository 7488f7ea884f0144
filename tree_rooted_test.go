package polyrail_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	. "github.com/polyrail/polyrail"
)

// Reduces and broadcasts go over trees of one and of two levels, where the configuration says so: to
// one, and to all.
func TestReducesAndBroadcastsOverATree(t *testing.T) {
	for _, levels := range []int{1, 2} {
		t.Run(fmt.Sprint(levels), func(t *testing.T) {
			const ranks = 4
			nodes, radix := 1, 0
			if levels == 2 {
				nodes, radix = 3, 2
			}
			adapt := func(c *Config) { c.Trees, c.TreeRadix, c.TreeFragment = TreesAlways, radix, 16<<10 }
			inGrove(t, ranks, nodes, 1, adapt, func(b *bed, comms []*Communicator) {
				untilTree(b, comms[0], true)
				for range 4 { // the first ones are still of the table before
					smallSums(b, comms, 2, 0)
				}
				sent := func() (bytes uint64) {
					for _, n := range b.Nodes[:ranks] {
						bytes += n.Rails()[0].BytesSent
					}
					return bytes
				}
				var all uint64
				before := sent()
				for i := range 4 * ranks {
					elements := []int{1, 300, 30_000, 200_000}[i%4]
					rooted(b, comms, elements, i/4, uint64(i))
					all += uint64(8 * elements)
				}
				// Of a reduce all ranks send their operand, of a broadcast the root does. A chain's
				// links carry 2(n-1) times the size.
				if got := float64(sent()-before) / float64(all); got < ranks+1 || got > ranks+1.1 {
					t.Errorf("the ranks have sent %.2f times the operations' size", got)
				}
			})
		})
	}
}

// rooted runs a reduce to one rank and a broadcast from it, and checks what they give.
func rooted(b *bed, comms []*Communicator, elements, root int, seed uint64) {
	b.t.Helper()
	n := len(comms)
	operand := func(rank int) []int64 {
		random := rand.New(rand.NewPCG(seed, uint64(rank)))
		v := make([]int64, elements)
		for i := range v {
			v[i] = random.Int64()
		}
		return v
	}
	sum := make([]int64, elements)
	for r := range n {
		for i, x := range operand(r) {
			sum[i] += x
		}
	}
	b.ranks(comms, func(r int) error {
		src := operand(r)
		var dst []int64
		if r == root {
			if dst = src; seed%2 == 0 {
				dst = make([]int64, elements)
			}
		}
		if err := Reduce(b.t.Context(), comms[r], dst, src, Sum, root); err != nil {
			return err
		}
		if r == root && !slices.Equal(dst, sum) {
			return fmt.Errorf("rank %d: wrong reduce of %d elements", r, elements)
		}
		buf := make([]int64, elements)
		if r == root {
			copy(buf, sum)
		}
		if err := Broadcast(b.t.Context(), comms[r], buf, root); err != nil {
			return err
		}
		if !slices.Equal(buf, sum) {
			return fmt.Errorf("rank %d: wrong broadcast of %d elements", r, elements)
		}
		clear(buf)
		return nil
	})
}

// A node that dies in the middle of reduces and broadcasts costs none of them.
func TestReducesAndBroadcastsOutliveTheirTree(t *testing.T) {
	for seed := range uint64(*treeFailures) {
		random := rand.New(rand.NewPCG(seed, 0))
		adapt, _ := limitedRails(25e6)
		tune := func(c *Config) { adapt(c); c.Trees = TreesAlways }
		inGrove(t, 3, 2, 1, tune, func(b *bed, comms []*Communicator) {
			untilTree(b, comms[0], true)
			rooted(b, comms, 100, 0, 0)
			table := comms[0].Table()
			at := b.serving(table.Tree(0))
			hit := make(chan struct{})
			time.AfterFunc(time.Duration(random.IntN(120_000))*time.Microsecond, func() {
				b.Kill(at)
				close(hit)
			})
			for i := range 12 {
				rooted(b, comms, 1+random.IntN(1<<(4+random.IntN(13))), random.IntN(3), uint64(i))
			}
			<-hit
		})
	}
}
