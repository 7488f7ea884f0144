package faults

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/polyrail/polyrail"
	"github.com/polyrail/polyrail/railactors/transport"
	"github.com/polyrail/polyrail/railactors/transport/fault"
	"github.com/polyrail/polyrail/test/testbed"
)

// bed is a cluster whose networks obey a scenario.
type bed struct {
	*testbed.Cluster
	faults [][]*fault.Transport // by node and rail

	// For the goroutine that takes the steps.
	gone []int // nodes that were killed or stopped
	part []int // nodes that a partition sets apart
}

func newBed(ctx context.Context, s Scenario, o Options) (*bed, error) {
	b := &bed{faults: make([][]*fault.Transport, s.Nodes)}
	frames := slices.ContainsFunc(s.Steps, func(x Step) bool { return x.Do.tampers() })
	options := testbed.Options{Nodes: s.Nodes, Rails: s.Rails, Balance: polyrail.BalanceMeasured, Logger: o.Logger, Adapt: o.Adapt,
		Wrap: func(node, _ int, inner transport.Transport) transport.Transport {
			t := fault.Wrap(inner, fault.Options{Rate: s.Speed, Frames: frames})
			b.faults[node] = append(b.faults[node], t)
			return t
		}}
	if o.Loopback {
		options.Over = testbed.Loopback
	}
	var err error
	b.Cluster, err = testbed.Start(ctx, options)
	return b, err
}

// form makes a communicator; ranks are the nodes' numbers.
func (b *bed) form(ctx context.Context, name string) ([]*polyrail.Communicator, error) {
	ctx, cancel := context.WithTimeout(ctx, formTimeout)
	defer cancel()
	return b.Form(ctx, name)
}

// close heals the networks, since farewells need them, and ends the nodes. Of nodes that were
// killed or stopped, and of the others' farewell to them, nothing is expected.
func (b *bed) close() error {
	for i, rails := range b.faults {
		for r := range rails {
			b.heal(i, r)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	if err := b.Close(ctx); len(b.gone) == 0 {
		return err
	}
	return nil
}

func (b *bed) heal(node, rail int) {
	b.faults[node][rail].Heal()
	if b.Rails != nil {
		b.Rails.Heal(testbed.NodeName(node), testbed.Device(rail))
	}
}

// apply takes a step, and returns how to count what it has done.
func (b *bed) apply(s Step) (seen func() int64) {
	switch s.Do {
	case Part, Unite:
		b.part = s.Nodes
		b.partition()
		return b.Gossip.Parted
	case Kill, Stop:
		b.gone = append(b.gone, s.Nodes[0])
		b.partition()
		b.end(s.Nodes[0], s.Do)
		return func() int64 { return 0 } // the others tell, if they miss it
	}
	if s.Do == Panic {
		b.Panics[s.Nodes[0]].Throw(s.Actor)
		return b.Panics[s.Nodes[0]].Met
	}
	node, rails := s.Nodes[0], []int{s.Rail}
	if s.Rail == AllRails {
		rails = rails[:0]
		for r := range b.faults[node] {
			rails = append(rails, r)
		}
	}
	var counts []func() int64
	for _, r := range rails {
		counts = append(counts, b.onRail(s, node, r))
	}
	return func() (sum int64) {
		for _, c := range counts {
			sum += c()
		}
		return sum
	}
}

// onRail does what is done to one rail of a node.
func (b *bed) onRail(s Step, node, rail int) (seen func() int64) {
	t := b.faults[node][rail]
	counters := func(of func(fault.Counters) int64) func() int64 {
		before := of(t.Counters())
		return func() int64 { return of(t.Counters()) - before }
	}
	broken := counters(func(c fault.Counters) int64 { return c.Lost + c.Refused })
	held := counters(func(c fault.Counters) int64 { return c.Stalled })
	if b.Rails != nil {
		before := b.Rails.Held(testbed.NodeName(node), testbed.Device(rail))
		held = func() int64 { return b.Rails.Held(testbed.NodeName(node), testbed.Device(rail)) - before }
	}
	switch s.Do {
	case Cut:
		t.Cut()
		return broken
	case Reset:
		t.Drop()
		return broken
	case Silence:
		if b.Rails != nil {
			b.Rails.Silence(testbed.NodeName(node), testbed.Device(rail))
		} else {
			t.Stall(0)
		}
		return held
	case Unplug:
		links := b.linkDowns(node, rail)
		before := links()
		b.Rails.Unplug(testbed.NodeName(node), testbed.Device(rail))
		return func() int64 { return links() - before }
	case Heal:
		if !slices.Contains(b.gone, node) { // no rail's repair makes a stopped process go on
			b.heal(node, rail)
		}
	case Delay:
		t.SetDelay(s.Duration)
		return counters(func(c fault.Counters) int64 { return c.DelayedBytes })
	case Rate:
		t.SetRate(s.Bytes)
		return counters(func(c fault.Counters) int64 { return c.Throttled })
	case Duplicate, Corrupt, Replay, Stale:
		t.Tamper(map[Action]fault.Tampering{Duplicate: fault.Duplicate, Corrupt: fault.Corrupt, Replay: fault.Replay, Stale: fault.Stale}[s.Do])
		return counters(func(c fault.Counters) int64 { return c.Tampered })
	}
	return func() int64 { return 0 }
}

func (b *bed) linkDowns(node, rail int) func() int64 {
	return func() int64 { return int64(b.Nodes[node].Rails()[rail].LinkDowns) }
}

// end kills or stops a node. All its rails are held before the first is cut: a node that is killed
// on loopback runs on, and would tell on one rail what it thinks of the cut of another.
func (b *bed) end(node int, how Action) {
	if how == Kill && b.Rails != nil {
		b.Rails.Kill(testbed.NodeName(node))
		return
	}
	for _, t := range b.faults[node] {
		t.Stall(0)
	}
	if how == Stop {
		return
	}
	for _, t := range b.faults[node] {
		t.Cut() // the same process: nobody refuses connections
	}
}

// partition parts gossip: each node that is gone stands alone.
func (b *bed) partition() {
	var groups [][]string
	for _, n := range b.gone {
		groups = append(groups, []string{testbed.GossipAddr(n)})
	}
	var apart []string
	for _, n := range b.part {
		if !slices.Contains(b.gone, n) {
			apart = append(apart, testbed.GossipAddr(n))
		}
	}
	b.Gossip.Partition(append(groups, apart)...)
}

// Options are how Run plays a scenario. The zero value is good.
type Options struct {
	// Loopback uses TCP on this host in place of the network in memory. Unplug isn't possible
	// there; Silence and Stop hold what the node itself reads and writes; a killed node breaks its
	// connections and refuses none.
	Loopback bool
	Adapt    func(*polyrail.Config) // changes each node's configuration before it starts; nil: nothing
	Report   func(Event)            // hears what happens, one event at a time; nil: nobody
	Logger   *slog.Logger           // of the nodes; nil: they log nothing
}

const (
	formTimeout  = 30 * time.Second
	closeTimeout = 20 * time.Second
	hangTimeout  = 2 * time.Minute // of one operation, which then counts as hung
)
