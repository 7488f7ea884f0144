package polyrail_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	. "github.com/polyrail/polyrail"
	"github.com/polyrail/polyrail/collective/op"
	"github.com/polyrail/polyrail/railactors/transport/fault"
	"github.com/polyrail/polyrail/test/seeds"
	"github.com/polyrail/polyrail/test/testbed"
)

// inGrove runs f on ranks whose first rail may have trees, and on nodes beyond them that aggregate
// on it. f has the ranks' communicators.
func inGrove(t *testing.T, ranks, nodes, rails int, adapt func(*Config), f func(b *bed, comms []*Communicator)) {
	t.Helper()
	all := func(c *Config) {
		if adapt != nil {
			adapt(c)
		}
		c.Rails[0].Protocol = "sharp"
		for i := ranks; i < ranks+nodes; i++ {
			if c.Name == testbed.NodeName(i) {
				c.Aggregate = []string{c.Rails[0].Name}
			}
		}
	}
	inBed(t, ranks+nodes, rails, all, func(b *bed) {
		// A tree is laid over the nodes that rank 0 knows of when it asks.
		b.each(func(i int) error {
			for len(b.Nodes[i].Members()) < ranks+nodes {
				<-time.After(time.Millisecond)
			}
			return nil
		})
		comms := make([]*Communicator, ranks+nodes)
		b.each(func(i int) (err error) {
			if i < ranks {
				comms[i], err = b.Nodes[i].Communicator(b.t.Context(), "train", ranks)
			}
			return err
		})
		f(b, comms[:ranks])
	})
}

// untilTree waits until the table in force at a rank has a tree on one of two rails, or has none.
func untilTree(b *bed, c *Communicator, want bool) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), time.Minute)
	defer cancel()
	events := b.Nodes[c.Rank()].Events(ctx)
	has := func() bool {
		table := c.Table()
		return table.Tree(0) != 0 || table.Tree(1) != 0
	}
	for has() != want {
		if _, ok := <-events; !ok {
			b.t.Fatalf("a tree: still %v\n%s", !want, b.log)
		}
	}
}

// sums runs an allreduce on every rank and compares with what it has to be, to the bit.
func sums(b *bed, comms []*Communicator, elements int, seed uint64, inPlace bool) {
	b.t.Helper()
	in, out := floats(len(comms), elements, seed), make([][]float32, len(comms))
	want := flatSum(in)
	b.ranks(comms, func(i int) error {
		out[i] = make([]float32, elements)
		src := in[i]
		if inPlace {
			copy(out[i], in[i])
			src = out[i]
		}
		if err := comms[i].Run(b.t.Context(), Operation{Kind: KindAllReduce, DType: op.F32, Op: Sum,
			Dst: op.Bytes(out[i]), Src: op.Bytes(src)}); err != nil {
			return err
		}
		if !slices.Equal(out[i], want) {
			return fmt.Errorf("rank %d: wrong sum of %d elements", i, elements)
		}
		return nil
	})
}

// floats are random operands by rank.
func floats(ranks, elements int, seed uint64) [][]float32 {
	in := make([][]float32, ranks)
	for r := range in {
		random := rand.New(rand.NewPCG(seed, uint64(r)))
		in[r] = make([]float32, elements)
		for i := range in[r] {
			in[r][i] = float32(random.NormFloat64())
		}
	}
	return in
}

// ranks runs something on every rank at once. Unlike each it goes on without the nodes that are no
// ranks: they may die meanwhile.
func (b *bed) ranks(comms []*Communicator, run func(rank int) error) {
	b.t.Helper()
	errs := make([]error, len(comms))
	var running sync.WaitGroup
	for r := range comms {
		running.Go(func() { errs[r] = run(r) })
	}
	running.Wait()
	if err := errors.Join(errs...); err != nil {
		b.t.Fatalf("%v\nlog:\n%s", err, b.log)
	}
}

// flatSum is the sum in the order of a ring: owner o's block begins with rank o+1.
func flatSum(in [][]float32) []float32 {
	n, elements := len(in), len(in[0])
	sum := make([]float32, elements)
	block := ((4*elements+n-1)/n + 63) / 64 * 16 // elements, of whole cache lines
	for i := range sum {
		owner := i / block
		v := in[(owner+1)%n][i]
		for k := 2; k <= n; k++ {
			v += in[(owner+k)%n][i]
		}
		sum[i] = v
	}
	return sum
}

func TestSumsOverATree(t *testing.T) {
	for ranks, fragment := range map[int]int{2: 256 << 10, 3: 256, 4: 64 << 10, 6: 4 << 10} {
		t.Run(fmt.Sprint(ranks), func(t *testing.T) {
			adapt := func(c *Config) { c.TreeFragment = fragment }
			inGrove(t, ranks, 1, 1, adapt, func(b *bed, comms []*Communicator) {
				sums(b, comms, 100_000, 1, true)
				untilTree(b, comms[0], true)
				for seed := uint64(2); seed < 10; seed++ {
					sums(b, comms, 100_000+int(seed)*12345, seed, seed%2 == 0)
				}
				rails := b.Nodes[ranks].Rails()
				if rails[0].BytesReceived < 8*400_000*uint64(ranks) {
					t.Errorf("the aggregation node has received %d bytes", rails[0].BytesReceived)
				}
			})
		})
	}
}

// An aggregation node is killed in mid-operation: no operation fails, all sums are right, and the
// tree is back when a node aggregates again.
func TestAnAggregationNodeDies(t *testing.T) {
	count := uint64(8)
	if brief() || underKeys {
		count = 3
	}
	for seed := range count {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 0))
			ranks := 2 + random.IntN(4)
			rails := 1 + random.IntN(2)
			adapt, _ := limitedRails([]int64{25e6, 12e6}[:rails]...)
			inGrove(t, ranks, 1, rails, adapt, func(b *bed, comms []*Communicator) {
				node := b.Nodes[ranks]
				untilTree(b, comms[0], true)
				dead := make(chan struct{})
				// An operation takes some 30 ms.
				time.AfterFunc(time.Duration(1+random.IntN(100))*time.Millisecond, func() {
					b.Kill(ranks)
					close(dead)
				})
				for i := range uint64(6) {
					sums(b, comms, 170_000+random.IntN(30_000), i, random.IntN(3) > 0)
				}
				<-dead
				untilTree(b, comms[0], false)
				sums(b, comms, 170_000, 7, true)
				b.restart(ranks)
				untilTree(b, comms[0], true)
				for i := range uint64(4) { // the first ones are still of the table before
					sums(b, comms, 170_000, 8+i, true)
				}
				if s, err := b.Nodes[0].Status(b.t.Context()); err != nil || len(s.Communicators) != 1 || len(s.Communicators[0].Trees) != 1 {
					t.Errorf("with one tree after another was lost: %+v, %v", s.Communicators, err)
				}
				if b.Nodes[ranks] == node || b.Nodes[ranks].Rails()[0].BytesReceived == 0 {
					t.Error("the node that came back aggregates nothing")
				}
			})
		})
	}
}

// What is repaired over several rails is announced to nobody, and so not taken back either.
func TestARepairAnnouncesNothing(t *testing.T) {
	const ranks, rails = 4, 3
	adapt, _ := limitedRails(20e6, 20e6, 20e6)
	inGrove(t, ranks, 1, rails, adapt, func(b *bed, comms []*Communicator) {
		untilTree(b, comms[0], true)
		for i := range uint64(3) { // the first ones are still of the table before
			sums(b, comms, 500_000, i, true)
		}
		killed := make(chan struct{})
		events := b.Nodes[0].Events(b.t.Context())
		time.AfterFunc(15*time.Millisecond, func() {
			b.Kill(ranks)
			close(killed)
		})
		sums(b, comms, 2_000_000, 3, true)
		<-killed
		for e := range events {
			if e.Kind == TreeDown {
				if e.Repaired != 1 {
					t.Errorf("%d operations were repaired", e.Repaired)
				}
				break
			}
		}
		for rank, c := range comms {
			if n := c.Announced(rails); n != 0 {
				t.Errorf("rank %d expects %d bytes", rank, n)
			}
		}
		b.restart(ranks)
	})
}

// A tree whose node one rank can't reach over the rail is none, and all hear which rank that is. It is
// there once that rank can.
func TestATreeNeedsItsRailToEveryRank(t *testing.T) {
	adapt, rail := shapedRails(fault.Options{Rate: 25e6, Delay: 50 * time.Microsecond}, func(*Config) {})
	inGrove(t, 3, 1, 2, adapt, func(b *bed, comms []*Communicator) {
		untilTree(b, comms[0], true)
		events := b.Nodes[2].Events(b.t.Context())
		rail(1, 0).Cut()
		sums(b, comms, 100_000, 1, true)
		untilTree(b, comms[0], false)
		for e := range events {
			if e.Kind != TreeDown {
				continue
			}
			if !strings.HasPrefix(e.Err.Error(), `rank 1 (node "node1"): rail "rail0" to node "node3" is down`) {
				t.Errorf("rank 2 hears %q", e.Err)
			}
			break
		}
		for range 25 {
			<-time.After(200 * time.Millisecond)
			sums(b, comms, 100_000, 2, true)
			if table := comms[0].Table(); table.Tree(0) != 0 {
				t.Fatalf("a tree that rank 1 can't reach\n%s", b.log)
			}
		}
		rail(1, 0).Heal()
		untilTree(b, comms[0], true)
		for i := range uint64(4) {
			sums(b, comms, 100_000, 3+i, true)
		}
	})
}

// What can happen to trees happens: their nodes die and come back, stand still, and lose their
// rail, as ranks do theirs. No operation fails, every sum is right to the bit, and repairs were
// seen.
func TestTreesUnderFaults(t *testing.T) {
	count, first := seeds.Count(12, 4), uint64(1)
	if one, ok := seeds.One(); ok {
		first, count = one, 1
	}
	repaired, lost := 0, 0
	for seed := first; seed < first+count; seed++ {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			r, l := treesUnderFaults(t, seed)
			repaired, lost = repaired+r, lost+l
		})
	}
	t.Logf("%d trees lost, %d operations repaired", lost, repaired)
	if count > 4 && (lost < int(count) || repaired < int(count)/2) {
		t.Errorf("%d trees lost, %d operations repaired, in %d runs", lost, repaired, count)
	}
}

func treesUnderFaults(t *testing.T, seed uint64) (repaired, lost int) {
	random := rand.New(rand.NewPCG(seed, 0))
	ranks, nodes, rails := 2+random.IntN(4), 1+random.IntN(2), 1+random.IntN(2)
	balance, fragment := BalanceMode(random.IntN(2)), 1<<10<<random.IntN(9)
	radix, mode := 0, TreeMode(random.IntN(2))
	if random.IntN(2) > 0 { // two levels
		ranks, nodes, radix = 3+random.IntN(3), 3+random.IntN(2), 2
	}
	results := TreeResults(seed % 3)
	adapt, rail := shapedRails(fault.Options{Rate: 25e6, Delay: 50 * time.Microsecond, CastLoss: 0.05, CastSeed: seed},
		func(c *Config) {
			c.Balance, c.TreeFragment, c.TreeRadix, c.Trees, c.TreeResults = balance, fragment, radix, mode, results
		})
	inGrove(t, ranks, nodes, rails, adapt, func(b *bed, comms []*Communicator) {
		ctx, cancel := context.WithCancel(b.t.Context())
		counted := make(chan struct{})
		events := b.Nodes[0].Events(ctx)
		go func() {
			defer close(counted)
			for e := range events {
				if e.Kind == TreeDown {
					lost++
					repaired += e.Repaired
				}
			}
		}()
		untilTree(b, comms[0], true)
		down := make([]bool, ranks+nodes)
		for round := range uint64(4) {
			pause := time.Duration(1+random.IntN(60_000)) * time.Microsecond
			at := ranks + random.IntN(nodes)
			what := random.IntN(5)
			who := random.IntN(ranks)
			length := time.Duration(1+random.IntN(600)) * time.Millisecond
			happened := make(chan struct{})
			time.AfterFunc(pause, func() {
				defer close(happened)
				switch {
				case what == 0 && !down[at]:
					b.Kill(at)
					down[at] = true
				case what == 1:
					rail(at, 0).Drop()
				case what == 2:
					for r := range rails {
						rail(at, r).Stall(length)
					}
				case what == 3 && rails > 1:
					rail(who, 0).Cut()
					time.AfterFunc(length, rail(who, 0).Heal)
				case what == 4:
					rail(at, 0).Cut()
					time.AfterFunc(length, rail(at, 0).Heal)
				}
			})
			for i := range uint64(4) {
				elements := 70_000 + random.IntN(130_000)
				if radix > 0 {
					wholeSums(b, comms, elements/2, int64(10*round+i), Sum)
				} else {
					sums(b, comms, elements, 10*round+i, random.IntN(3) > 0)
				}
				for range random.IntN(4) {
					smallSums(b, comms, 1+random.IntN(1<<random.IntN(16)), 10*round+i)
				}
			}
			<-happened
			for i := ranks; i < ranks+nodes; i++ {
				if down[i] && random.IntN(2) > 0 {
					b.restart(i)
					down[i] = false
				}
			}
		}
		cancel()
		<-counted
		for i := range down {
			for r := range rails {
				rail(i, r).Heal()
			}
			if down[i] {
				b.restart(i)
			}
		}
	})
	return repaired, lost
}

// A tree's rail carries an operation's bytes once, a ring's 2(n-1)/n of them: rails of the same
// rate, of which one has a tree, are divided accordingly, without anything configured.
func TestATreeAndARailCarryAPartEach(t *testing.T) {
	if brief() {
		t.Skip("long under the race detector")
	}
	const ranks, size, rate = 4, 4 << 20, 50e6
	adapt, rails := limitedRails(rate, rate)
	inGrove(t, ranks, 1, 2, adapt, func(b *bed, comms []*Communicator) {
		for rail := range 2 { // the aggregation node stands where a switch does
			rails(rail)[ranks].SetRate(0)
		}
		untilTree(b, comms[0], true)
		run := func(operations int) time.Duration {
			start := time.Now()
			b.each(func(i int) error {
				if i >= ranks {
					return nil
				}
				buf := make([]float32, size/4)
				for range operations {
					if err := AllReduce(b.t.Context(), comms[i], buf, Sum); err != nil {
						return err
					}
				}
				return nil
			})
			return time.Since(start) / time.Duration(operations)
		}
		run(60)
		each := run(10)
		ring := 2 * (ranks - 1) / float64(ranks)
		if ideal := size / (rate + rate/ring); each.Seconds() > 1.08*ideal {
			t.Errorf("%v each, %.3f times the bound; the table is %+v", each, each.Seconds()/ideal, comms[0].Table())
		}
	})
}
