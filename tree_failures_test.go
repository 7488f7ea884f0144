package polyrail_test

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/polyrail/polyrail"
	"github.com/polyrail/polyrail/railactors/transport/fault"
)

var treeFailures = flag.Int("tree-failures", 2, "how often an aggregation node fails in each way")

// A tree whose node fails in mid-operation is made anew by another node within 2 s, and the operation
// that was hit ends soon: what is found at once is repaired at once, a silent node within some 0.2 s.
// No operation fails, large or small, and none has a wrong element.
func TestATreeIsMadeAnewSoon(t *testing.T) {
	for _, way := range failures {
		for _, levels := range []int{1, 2} {
			t.Run(fmt.Sprintf("%s,levels=%d", way.name, levels), func(t *testing.T) {
				var longest time.Duration
				for round := range *treeFailures {
					longest = max(longest, failingNode(t, way, levels, uint64(round)))
				}
				t.Logf("the operation that was hit took %v at most", longest)
			})
		}
	}
}

// failure is a way in which an aggregation node fails.
type failure struct {
	name string
	hit  func(b *bed, node int, rail *fault.Transport)
}

var failures = []failure{
	{"killed", func(b *bed, node int, _ *fault.Transport) { b.Kill(node) }},
	{"cut", func(_ *bed, _ int, rail *fault.Transport) { rail.Cut() }},
	{"stands still", func(_ *bed, _ int, rail *fault.Transport) { rail.Stall(10 * time.Second) }},
	// What an operator does to have it serve no more.
	{"asked to stop", func(b *bed, node int, _ *fault.Transport) {
		if err := b.Nodes[node].Close(b.t.Context()); err != nil {
			b.t.Error(err)
		}
	}},
}

// failingNode has a tree's node fail once, at a random moment, and returns how long the operation took
// that it hit.
func failingNode(t *testing.T, way failure, levels int, seed uint64) (took time.Duration) {
	const ranks, elements, rate = 4, 250_000, 25e6
	random := rand.New(rand.NewPCG(seed, uint64(levels)))
	nodes, radix := 2, 0
	if levels == 2 {
		nodes, radix = 4, 2 // three of them make a tree
	}
	adapt, rails := limitedRails(rate)
	tune := func(c *Config) { adapt(c); c.TreeRadix, c.Trees = radix, TreesAlways }
	inGrove(t, ranks, nodes, 1, tune, func(b *bed, comms []*Communicator) {
		for i := ranks; i < ranks+nodes; i++ { // they stand where switches do
			rails(0)[i].SetRate(0)
		}
		operation := func(seed int64) {
			wholeSums(b, comms, elements, seed, Sum)
			for range 4 {
				smallSums(b, comms, 1+random.IntN(2000), uint64(seed))
			}
		}
		untilTree(b, comms[0], true)
		for i := range int64(3) {
			operation(i)
		}
		before := comms[0].Table()
		group := before.Tree(0)
		at := b.serving(group)
		hit := make(chan struct{})
		// An operation takes 80 ms, and the small ones after it one.
		time.AfterFunc(time.Duration(random.IntN(82_000))*time.Microsecond, func() {
			way.hit(b, at, rails(0)[at])
			close(hit)
		})
		start := time.Now()
		operation(4)
		took = time.Since(start)
		// Flat it takes 1.5 times as long.
		limit := 400*time.Millisecond + time.Duration(2.5*8*elements/rate*float64(time.Second))
		if took > limit {
			t.Errorf("seed %d: the operation took %v, at most %v are allowed\n%s", seed, took, limit, b.log)
		}
		for {
			table := comms[0].Table()
			if now := table.Tree(0); now != 0 && now != group {
				break
			}
			operation(5)
			if time.Since(start) > 2*time.Second {
				t.Fatalf("seed %d: no tree for %v\n%s", seed, time.Since(start), b.log)
			}
		}
		operation(6)
		<-hit // a killed node takes a while to end
	})
	return took
}

// A node that stands still when all ranks have its responses, but not its word that all have them, is
// noticed as soon as one that owes responses.
func TestANodeThatSettlesNothingIsNoticed(t *testing.T) {
	const ranks, elements = 3, 100_000
	adapt, rail := shapedRails(fault.Options{Delay: 20 * time.Millisecond}, func(*Config) {})
	inGrove(t, ranks, 1, 1, adapt, func(b *bed, comms []*Communicator) {
		untilTree(b, comms[0], true)
		took := func() time.Duration {
			start := time.Now()
			wholeSums(b, comms, elements, 1, Sum)
			return time.Since(start)
		}
		for range 4 { // the first ones are still of the table before
			took()
		}
		usual := took() // twice to the node and back
		time.AfterFunc(usual*7/10, func() { rail(ranks, 0).Stall(10 * time.Second) })
		if hit := took(); hit < usual+150*time.Millisecond || hit > usual+700*time.Millisecond {
			t.Errorf("the operation took %v, %v before\n%s", hit, usual, b.log)
		}
		rail(ranks, 0).Heal()
	})
}

// A table is the caller's again when SetTable has returned. That of the next tree is made of its
// entries, much later.
func TestATreeThatFailsIsTakenOutOfTheTableThatWasSet(t *testing.T) {
	inGrove(t, 2, 1, 2, nil, func(b *bed, comms []*Communicator) {
		untilTree(b, comms[0], true)
		table := comms[0].Table()
		if err := comms[0].SetTable(b.t.Context(), table); err != nil {
			t.Fatal(err)
		}
		for _, e := range table.Entries {
			clear(e.Weights)
		}
		b.Kill(2)
		untilTree(b, comms[0], false)
		sums(b, comms, 100_000, 1, true)
	})
}

// Rank 0 gives a tree up while gossip takes its node for dead: no message of gossip's reaches that. The
// node keeps nothing of it: its quota holds one group of the job, and another tree is made.
func TestANodeThatGossipLostKeepsNoGroup(t *testing.T) {
	const ranks, node = 3, 3
	adapt, rail := shapedRails(fault.Options{Delay: 50 * time.Microsecond}, func(c *Config) {
		c.Trees, c.AggregateGroups = TreesAlways, 1
	})
	inGrove(t, ranks, 1, 1, adapt, func(b *bed, comms []*Communicator) {
		operations := func() {
			for i := range uint64(8) {
				smallSums(b, comms, 100, i)
			}
		}
		untilTree(b, comms[0], true)
		operations()
		b.Gossip.Partition([]string{b.Configs[node].Bind})
		for len(b.Nodes[0].Members()) > ranks {
			<-time.After(10 * time.Millisecond)
		}
		rail(node, 0).Stall(600 * time.Millisecond)
		operations()
		untilTree(b, comms[0], false)
		<-time.After(time.Second)
		b.Gossip.Heal()
		untilTree(b, comms[0], true)
		operations()
	})
}

// A communicator closes while gossip takes its tree's node for dead. Ranks stay connected to the node
// for another communicator, and still it keeps nothing of the one that closed.
func TestANodeThatGossipLostKeepsNoGroupOfWhatCloses(t *testing.T) {
	for levels, nodes := range []int{1, 3} {
		t.Run(fmt.Sprint(levels+1, " levels"), func(t *testing.T) {
			const ranks = 4
			adapt := func(c *Config) { c.TreeRadix = 4 - 2*levels }
			inGrove(t, ranks, nodes, 1, adapt, func(b *bed, comms []*Communicator) {
				brief := make([]*Communicator, ranks)
				b.each(func(i int) (err error) {
					if i < ranks {
						brief[i], err = comms[i].Dup(b.t.Context())
					}
					return err
				})
				untilTree(b, comms[0], true)
				untilTree(b, brief[0], true)
				served := func() (all []string) {
					nodes, err := b.Nodes[0].Aggregators(b.t.Context())
					if err != nil {
						b.t.Fatal(err)
					}
					for _, n := range nodes {
						for _, g := range n.Groups {
							all = append(all, g.Communicator)
						}
					}
					return all
				}
				if got := served(); !slices.Contains(got, brief[0].Name()) {
					b.t.Fatalf("the nodes serve %q", got)
				}
				var all []string
				for node := range nodes {
					all = append(all, b.Configs[ranks+node].Bind)
				}
				b.Gossip.Partition(all)
				for len(b.Nodes[0].Members()) > ranks {
					<-time.After(10 * time.Millisecond)
				}
				b.each(func(i int) error {
					if i < ranks {
						return brief[i].Close(b.t.Context())
					}
					return nil
				})
				b.Gossip.Heal()
				for len(b.Nodes[0].Members()) < ranks+nodes {
					<-time.After(10 * time.Millisecond)
				}
				for _, name := range served() {
					if name != comms[0].Name() {
						b.t.Errorf("a group of %q is served, which has closed", name)
					}
				}
				sums(b, comms, 100_000, 1, true)
			})
		})
	}
}

// A rank that doesn't call is named by all that do, though these hear of the aggregation node alone.
func TestARankThatCallsNothingOverATreeIsNamed(t *testing.T) {
	const ranks, late = 5, 2
	always := func(c *Config) { c.Trees = TreesAlways }
	for rails, elements := range map[int]int{1: 10, 2: 100_000} {
		inGrove(t, ranks, 1, rails, always, func(b *bed, comms []*Communicator) {
			untilTree(b, comms[0], true)
			for seed := range uint64(4) { // the first ones are still of the table before
				smallSums(b, comms, elements, seed)
			}
			ctx, cancel := context.WithTimeout(b.t.Context(), 10*time.Second)
			defer cancel()
			b.ranks(comms, func(r int) error {
				if r == late {
					return nil
				}
				err := AllReduce(ctx, comms[r], make([]float32, elements), Sum)
				if want := `nothing has come from rank 2 (node "node2")`; err == nil || !strings.HasSuffix(err.Error(), want) {
					return fmt.Errorf("rank %d: no %q in %v", r, want, err)
				}
				return nil
			})
		})
	}
}
