package polyrail_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	. "github.com/polyrail/polyrail"
	"github.com/polyrail/polyrail/railactors/transport/fault"
	"github.com/polyrail/polyrail/railactors/transport/mem"
	"github.com/polyrail/polyrail/railactors/transport/tcp"
	"github.com/polyrail/polyrail/test/testbed"
)

// measured has rails that take time, so that a probe has something to measure.
func measured(c *Config) {
	c.Balance, c.Probe = BalanceMeasured, true
	for i := range c.Rails {
		c.Rails[i].Transport = fault.Wrap(c.Rails[i].Transport, fault.Options{Rate: 100 << 20})
	}
}

// sum checks a sum of all nodes.
func (b *bed) sum(comms []*Communicator, elements int) {
	b.t.Helper()
	b.each(func(i int) error {
		buf := operand(i, elements)
		if err := AllReduce(b.t.Context(), comms[i], buf, Sum); err != nil {
			return err
		}
		return checkSum(buf, len(comms))
	})
}

func TestACommunicatorFormsWithoutTheRailThatIsDown(t *testing.T) {
	for name, fail := range map[string]func(net *mem.Network, node, rail string){
		"refused": (*mem.Network).Cut, "silent": (*mem.Network).Silence, "no link": (*mem.Network).Unplug,
	} {
		for _, rails := range []int{2, 3} {
			t.Run(fmt.Sprintf("%s, %d rails", name, rails), func(t *testing.T) {
				inBed(t, 3, rails, measured, func(b *bed) {
					fail(b.Rails, "node1", "eth1")
					events := b.Nodes[0].Events(b.t.Context())
					start := time.Now()
					comms := b.form("train")
					if took := time.Since(start); took > 3*time.Second {
						b.t.Errorf("took %v", took)
					}
					b.expectEvent(events, func(e Event) bool {
						return e.Kind == RailDown && e.Node == "node1" && e.Rail == "rail1" && e.Err != nil
					})
					b.sum(comms, 100_000)
					second := b.form("second") // the nodes have met
					b.sum(second, 100_000)

					b.Rails.Heal("node1", "eth1")
					b.expectEvent(events, func(e Event) bool {
						return e.Kind == RailUp && e.Node == "node1" && e.Rail == "rail1"
					})
					<-time.After(time.Second)
					b.sum(b.form("third"), 100_000)
					b.sum(comms, 100_000)
				})
			})
		}
	}
}

// expectEvent waits for an event.
func (b *bed) expectEvent(events <-chan Event, match func(Event) bool) {
	b.t.Helper()
	late := time.After(30 * time.Second)
	for {
		select {
		case e := <-events:
			if match(e) {
				return
			}
		case <-late:
			b.t.Fatalf("no such event; log:\n%s", b.log)
		}
	}
}

// apart asks on three nodes for as long as patience, while no rail connects node1 with node2. Each
// of the two reaches node0.
func (b *bed) apart(patience time.Duration) []error {
	b.t.Helper()
	b.Rails.Cut("node1", "eth0")
	b.Rails.Silence("node2", "eth1")
	errs := make([]error, 3)
	b.each(func(i int) error {
		ctx, cancel := context.WithTimeout(b.t.Context(), patience)
		defer cancel()
		_, errs[i] = b.Nodes[i].Communicator(ctx, "train", 3)
		if errs[i] == nil {
			return fmt.Errorf("formed")
		}
		return nil
	})
	return errs
}

func TestTwoNodesThatNoRailConnectsAreNamedWithTheirRails(t *testing.T) {
	for _, patience := range []time.Duration{
		3 * time.Second,  // the second attempt is under way, with all three
		15 * time.Second, // node2 was turned down, the other two wait for another node
	} {
		t.Run(patience.String(), func(t *testing.T) {
			inBed(t, 3, 2, nil, func(b *bed) {
				for i, err := range b.apart(patience) {
					for _, want := range []string{`"node1"`, `"node2"`, "rail rail0 (", "rail rail1 ("} {
						own := strings.Contains(want, b.Configs[i].Name)
						if !own && !strings.Contains(err.Error(), want) {
							b.t.Errorf("node %d: %q is not in: %v", i, want, err)
						}
					}
				}
			})
		})
	}
}

// A deadline may end before any node knows that two others cannot meet.
func TestWhoCannotKnowTheObstacleYetSaysWhomItWaitsFor(t *testing.T) {
	inBed(t, 3, 2, nil, func(b *bed) {
		want := []string{"waiting for the answers of node1, node2", "waiting for pairs to node2",
			"waiting for pairs to node1"}
		for i, err := range b.apart(time.Second) {
			if !strings.Contains(err.Error(), want[i]) {
				b.t.Errorf("node %d: %q is not in: %v", i, want[i], err)
			}
		}
	})
}

// Real sockets: one rail of one node is cut when the communicator forms, and comes later.
func TestOnLoopbackACommunicatorFormsWithoutTheRailThatIsDown(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	bad := fault.Wrap(tcp.New(tcp.Options{}), fault.Options{})
	bad.Cut()
	b := start(t, testbed.Options{Nodes: 2, Rails: 2, Over: testbed.Loopback, Gossip: testbed.Loopback,
		Adapt: func(c *Config) {
			if c.Name == "node1" {
				c.Rails[1].Transport = bad
			}
		}})
	defer b.close()
	events := b.Nodes[0].Events(ctx)
	comms := b.form("train")
	b.expectEvent(events, func(e Event) bool {
		return e.Kind == RailDown && e.Node == "node1" && e.Rail == "rail1"
	})
	b.sum(comms, 1_000_000)
	if bad.Counters().Refused == 0 {
		t.Error("the fault was not seen")
	}
	bad.Heal()
	b.expectEvent(events, func(e Event) bool {
		return e.Kind == RailUp && e.Node == "node1" && e.Rail == "rail1"
	})
	b.sum(comms, 1_000_000)
	b.each(func(i int) error { return comms[i].Close(ctx) })
}

func TestANodeStartsWithoutTheRailWhoseInterfaceIsDown(t *testing.T) {
	var absent atomic.Bool
	absent.Store(true)
	adapt := func(c *Config) {
		if c.Name == "node1" {
			c.Rails[0].Transport = fault.Absent{Transport: c.Rails[0].Transport, Now: &absent}
		}
	}
	inBed(t, 3, 2, adapt, func(b *bed) {
		if log := b.log.String(); !strings.Contains(log, "rail is absent") ||
			!strings.Contains(log, "rail0") {
			b.t.Errorf("no warning names the rail:\n%s", log)
		}
		first := b.form("first")
		b.sum(first, 100_000)
		events := b.Nodes[0].Events(b.t.Context())
		absent.Store(false)
		b.expectEvent(events, func(e Event) bool {
			return e.Kind == RailUp && e.Node == "node1" && e.Rail == "rail0"
		})
		b.sum(first, 100_000)
		b.sum(b.form("second"), 100_000)
		if s := b.Nodes[1].Rails()[0]; !s.Up || s.Addr == "" || s.BytesSent == 0 {
			b.t.Errorf("status %+v", s)
		}
	})
}

// Ranks that differ in these would wait for each other's probe, or have no place for a frame.
func TestNodesThatAreConfiguredDifferentlyAreNamed(t *testing.T) {
	for setting, differ := range map[string]func(*Config){
		"rail weights [7 1]": func(c *Config) { c.Rails[0].Weight = 7 },
		"balance static":     func(c *Config) { c.Balance = BalanceStatic },
		"order free":         func(c *Config) { c.Order = OrderFree },
		"probe false":        func(c *Config) { c.Probe = false },
		"split bytes 1":      func(c *Config) { c.SplitBytes = 1 },
		"eager bytes 1":      func(c *Config) { c.EagerBytes = 1 },
		"bcube base 3":       func(c *Config) { c.BcubeBase = 3 },
		"protection of rails [integrity integrity]": func(c *Config) { c.Integrity = true },
		"algorithms [{8 tree} {0 ring}]": func(c *Config) {
			c.Algorithms = []AlgorithmRange{{MaxBytes: 8, Algorithm: Tree}, {Algorithm: Ring}}
		},
	} {
		t.Run(setting, func(t *testing.T) {
			adapt := func(c *Config) {
				if c.Balance = BalanceMeasured; c.Name == testbed.NodeName(1) {
					differ(c)
				}
			}
			inBed(t, 3, 2, adapt, func(b *bed) { b.namesSetting(1, setting) })
		})
	}
}

func TestANodeThatHasOtherRailsInPlaintextIsNamed(t *testing.T) {
	adapt, _ := withKeys(t, func(c *Config) {
		if c.Name == testbed.NodeName(2) {
			c.Plaintext = []string{"rail1"}
		}
	})
	inBed(t, 3, 2, adapt, func(b *bed) { b.namesSetting(2, "protection of rails [keys none]") })
}

// namesSetting expects that no communicator forms, since a node has a setting that the others don't have.
func (b *bed) namesSetting(node int, setting string) {
	b.t.Helper()
	want := fmt.Sprintf("node %q: is configured with %s, node %q with", testbed.NodeName(node), setting, "node0")
	for i, err := range b.failures(func(i int) error {
		return b.returned(fmt.Sprint("node ", i), 5*time.Second, func() error {
			_, err := b.Nodes[i].Communicator(b.t.Context(), "train", 3)
			return err
		})
	}) {
		if !errors.Is(err, ErrView) || !strings.Contains(err.Error(), want) {
			b.t.Errorf("node %d: %v", i, err)
		}
	}
}

// As many as a table holds are longer than the text of a setting.
func TestNodesWithManyRangesOfAlgorithmsFormUnlessTheyDiffer(t *testing.T) {
	for last, alike := range map[Algorithm]bool{Ring: true, Tree: false} {
		t.Run(last.String(), func(t *testing.T) {
			adapt := func(c *Config) {
				for i := range 200 {
					c.Algorithms = append(c.Algorithms, AlgorithmRange{MaxBytes: int64(i + 1), Algorithm: RecursiveDoubling})
				}
				c.Algorithms[199].Algorithm = Ring
				if c.Name == testbed.NodeName(1) {
					c.Algorithms[199].Algorithm = last
				}
			}
			inBed(t, 2, 1, adapt, func(b *bed) {
				if alike {
					b.sum(b.form("train"), 1000)
					return
				}
				for i, err := range b.failures(func(i int) error {
					_, err := b.Nodes[i].Communicator(b.t.Context(), "train", 2)
					return err
				}) {
					want := `node "node1": is configured with algorithms [{1 recursive-doubling} {2 `
					if !errors.Is(err, ErrView) || !strings.Contains(err.Error(), want) {
						t.Errorf("node %d: %v", i, err)
					}
				}
			})
		})
	}
}

// The rails are probed after all have agreed: the callers still wait for their communicator then.
func TestARankLostWhileTheRailsAreProbedIsAnErrorOfForming(t *testing.T) {
	inBed(t, 3, 2, measured, func(b *bed) {
		events := []<-chan Event{b.Nodes[0].Events(b.t.Context()), b.Nodes[1].Events(b.t.Context())}
		ended := make(chan []error, 1)
		go func() {
			ended <- b.failures(func(i int) error {
				_, err := b.Nodes[i].Communicator(b.t.Context(), "train", 3)
				return err
			})
		}()
		for _, node := range events {
			b.expectEvent(node, func(e Event) bool { return e.Kind == CommunicatorFormed })
		}
		b.Kill(2)
		for i, err := range (<-ended)[:2] {
			var lost *RankLostError
			if !errors.Is(err, ErrView) || !errors.As(err, &lost) || lost.Node != "node2" {
				t.Errorf("node %d: %v, want ErrView, and node2 lost", i, err)
			}
		}
		if log := b.log.String(); strings.Contains(log, "it doesn't connect all ranks") {
			t.Errorf("a rail is blamed for a lost rank; log:\n%s", log)
		}
	})
}

// Where packets vanish its former process is found to be lost after the rank timeout only.
func TestANodeThatComesBackOnAnotherHostIsWaitedForAsLongAsTheRankTimeout(t *testing.T) {
	inBed(t, 3, 1, func(c *Config) { c.RankTimeout = 10 * time.Second }, func(b *bed) {
		b.form("first")
		b.Rails.Silence("node2", "eth0")
		b.Gossip.Partition([]string{b.Configs[2].Bind})
		over, cancel := context.WithCancel(b.t.Context())
		cancel()
		_ = b.Nodes[2].Close(over) // nobody hears of it
		b.Gossip.Heal()
		b.Configs[2].Rails[0].Transport = b.Rails.Transport("another host")
		b.restart(2)
		b.form("second")
	})
}
