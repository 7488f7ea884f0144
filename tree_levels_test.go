package polyrail_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/polyrail/polyrail"
	"github.com/polyrail/polyrail/collective/op"
	"github.com/polyrail/polyrail/test/testbed"
)

// wholeSums runs an allreduce of integers on every rank, and compares with what it has to be.
func wholeSums(b *bed, comms []*Communicator, elements int, seed int64, o Op) {
	b.t.Helper()
	want := make([]int64, elements)
	for i := range want {
		for r := range comms {
			want[i] += (seed + int64(i)) * int64(r+1) << 20
		}
		if o.Code() == op.CodeAvg {
			want[i] /= int64(len(comms))
		}
	}
	b.ranks(comms, func(r int) error {
		buf := make([]int64, elements)
		for i := range buf {
			buf[i] = (seed + int64(i)) * int64(r+1) << 20
		}
		err := AllReduce(b.t.Context(), comms[r], buf, o, WithAlgorithm(Ring))
		if err == nil && !slices.Equal(buf, want) {
			err = fmt.Errorf("rank %d: wrong %v of %d integers", r, o, elements)
		}
		return err
	})
}

// A tree of several levels makes exact sums, and those whose order is free. The others keep theirs:
// they take the rail without the tree.
func TestSumsOverATreeOfLevels(t *testing.T) {
	for _, c := range []struct {
		ranks, nodes, radix int
		order               OrderMode
	}{{4, 3, 2, OrderFixed}, {8, 7, 2, OrderFixed}, {5, 3, 3, OrderFree}} {
		t.Run(fmt.Sprint(c), func(t *testing.T) {
			adapt := func(cfg *Config) {
				cfg.TreeRadix, cfg.Order, cfg.Balance = c.radix, c.order, BalanceMeasured
			}
			inGrove(t, c.ranks, c.nodes, 1, adapt, func(b *bed, comms []*Communicator) {
				received := func() (all []uint64) {
					for _, n := range b.Nodes[c.ranks:] {
						all = append(all, n.Rails()[0].BytesReceived)
					}
					return all
				}
				untilTree(b, comms[0], true)
				for i := range int64(4) { // the first ones are still of the table before
					wholeSums(b, comms, 60_000, i, Sum)
				}
				before := received()
				for i := range int64(6) {
					wholeSums(b, comms, 60_000+int(i)*1234, i, []Op{Sum, Avg}[i%2])
				}
				after := received()
				for i := range after {
					if after[i]-before[i] < 6*60_000*8*2 { // of two children at least
						t.Errorf("node %d of the tree has received %d bytes", i, after[i]-before[i])
					}
				}
				if c.order == OrderFree {
					return
				}
				for i := range uint64(4) {
					sums(b, comms, 120_000, i, true)
				}
				for i, n := range received() {
					if n-after[i] > 100_000 {
						t.Errorf("node %d of the tree has received %d bytes of sums that depend on the order",
							i, n-after[i])
					}
				}
			})
		})
	}
}

func TestNodesTellWhatTheyAggregate(t *testing.T) {
	const ranks = 4
	adapt := func(c *Config) { c.TreeRadix, c.Rack, c.AggregateGroups = 2, "row", 3 }
	inGrove(t, ranks, 3, 1, adapt, func(b *bed, comms []*Communicator) {
		untilTree(b, comms[0], true)
		for i := range int64(4) {
			wholeSums(b, comms, 60_000, i, Sum)
		}
		all, err := b.Nodes[1].Aggregators(b.t.Context())
		if err != nil || len(all) != ranks+3 {
			t.Fatalf("%d answers, %v", len(all), err)
		}
		roots, children := 0, 0
		for i, a := range all {
			if a.Node != testbed.NodeName(i) || a.Rack != "row" {
				t.Errorf("%+v", a)
			}
			if i < ranks {
				if len(a.Rails) > 0 || len(a.Groups) > 0 {
					t.Errorf("a rank aggregates: %+v", a)
				}
				continue
			}
			if len(a.Groups) != 1 || len(a.Rails) != 1 || a.JobGroups != 3 {
				t.Fatalf("%+v", a)
			}
			g := a.Groups[0]
			if g.Parent == "" {
				roots++
			}
			if g.Communicator != "train" || g.Fragments == 0 || g.Bytes < 480_000 || g.ReservedBytes == 0 {
				t.Errorf("%+v", g)
			}
			children += len(g.Children)
		}
		if roots != 1 || children != ranks+2 {
			t.Errorf("%d roots, %d children: %+v", roots, children, all)
		}
		b.Gossip.Partition([]string{"10.0.0.7:7946"})
		ctx, cancel := context.WithTimeout(b.t.Context(), 150*time.Millisecond) // less than till the next question
		defer cancel()
		some, err := b.Nodes[1].Aggregators(ctx)
		if err == nil || !strings.Contains(err.Error(), "no answer of node6:") || len(some) != ranks+2 {
			t.Errorf("%d answers and %v, though node6 says nothing", len(some), err)
		}
	})
}

// Trees follow the racks that nodes say they stand in: what crosses the spine is what each rack's
// node has made of its ranks' operands.
func TestATreeFollowsTheRacks(t *testing.T) {
	const ranks = 4
	racks := []string{"row/a", "row/a", "row/b", "row/b", "row", "row/a", "row/b"} // ranks, then nodes
	adapt := func(c *Config) {
		for i, rack := range racks {
			if c.Name == testbed.NodeName(i) {
				c.Rack = rack
			}
		}
	}
	inGrove(t, ranks, 3, 1, adapt, func(b *bed, comms []*Communicator) {
		untilTree(b, comms[0], true)
		for i := range int64(4) {
			wholeSums(b, comms, 60_000, i, Sum)
		}
		before := b.Nodes[ranks].Rails()[0].BytesReceived
		for i := range int64(4) {
			wholeSums(b, comms, 60_000, i, Sum)
		}
		if got := b.Nodes[ranks].Rails()[0].BytesReceived - before; got < 4*2*480_000 || got > 4*2*480_000*11/10 {
			t.Errorf("the node of the spine has received %d bytes, want those of two children", got)
		}
	})
}
