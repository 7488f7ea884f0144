package faults

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/polyrail/polyrail"
	"github.com/polyrail/polyrail/cluster/memnet"
	"github.com/polyrail/polyrail/railactors/supervise"
	"github.com/polyrail/polyrail/railactors/transport"
	"github.com/polyrail/polyrail/railactors/transport/fault"
	"github.com/polyrail/polyrail/railactors/transport/mem"
	"github.com/polyrail/polyrail/railactors/transport/tcp"
)

// bed is a cluster whose networks obey a scenario.
type bed struct {
	gossip *memnet.Network
	memory *mem.Network         // nil on loopback
	rails  [][]*fault.Transport // by node and rail
	nodes  []*polyrail.Node
	panics []*supervise.Panics

	// For the goroutine that takes the steps.
	gone []int // nodes that were killed or stopped
	part []int // nodes that a partition sets apart
}

func nodeName(i int) string      { return fmt.Sprintf("node%d", i) }
func railName(i int) string      { return fmt.Sprintf("rail%d", i) }
func gossipAddr(node int) string { return fmt.Sprintf("10.0.0.%d:7946", node+1) }

// newBed starts the nodes. They are to be closed even after an error.
func newBed(ctx context.Context, s Scenario, o Options) (*bed, error) {
	b := &bed{gossip: memnet.New()}
	frames := slices.ContainsFunc(s.Steps, func(x Step) bool { return x.Do.tampers() })
	if !o.Loopback {
		b.memory = mem.NewNetwork()
	}
	for i := range s.Nodes {
		cfg := polyrail.DefaultConfig()
		cfg.Name, cfg.Bind, cfg.Join = nodeName(i), gossipAddr(i), []string{gossipAddr(0)}
		cfg.Cluster, cfg.GossipNetwork, cfg.Logger = "faults", b.gossip, o.Logger
		b.rails, b.panics = append(b.rails, nil), append(b.panics, new(supervise.Panics))
		cfg.Panics = b.panics[i]
		for r := range s.Rails {
			var inner transport.Transport
			device := railName(r)
			if b.memory != nil {
				inner = b.memory.Transport(cfg.Name)
			} else {
				inner, device = tcp.New(tcp.Options{}), fmt.Sprintf("127.0.%d.1", r+1)
			}
			t := fault.Wrap(inner, fault.Options{Rate: s.Speed, Frames: frames})
			b.rails[i] = append(b.rails[i], t)
			cfg.Rails = append(cfg.Rails, polyrail.Rail{Name: railName(r), Protocol: t.Protocol(), Device: device, Transport: t})
		}
		if o.Adapt != nil {
			o.Adapt(&cfg)
		}
		node, err := polyrail.Start(ctx, cfg)
		if err != nil {
			return b, fmt.Errorf("starting %s: %w", cfg.Name, err)
		}
		b.nodes = append(b.nodes, node)
	}
	return b, nil
}

// form makes a communicator; ranks are the nodes' numbers.
func (b *bed) form(ctx context.Context, name string) ([]*polyrail.Communicator, error) {
	ctx, cancel := context.WithTimeout(ctx, formTimeout)
	defer cancel()
	comms := make([]*polyrail.Communicator, len(b.nodes))
	err := onEach(len(b.nodes), func(i int) (err error) {
		comms[i], err = b.nodes[i].Communicator(ctx, name, len(b.nodes))
		return err
	})
	return comms, err
}

// close heals the networks, since farewells need them, and ends the nodes. Of nodes that were killed or stopped, and of the
// others' farewell to them, nothing is expected.
func (b *bed) close() error {
	for i, rails := range b.rails {
		for r := range rails {
			b.heal(i, r)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	err := onEach(len(b.nodes), func(i int) error { return b.nodes[i].Close(ctx) })
	if len(b.gone) > 0 {
		return nil
	}
	return err
}

func (b *bed) heal(node, rail int) {
	b.rails[node][rail].Heal()
	if b.memory != nil {
		b.memory.Heal(nodeName(node), railName(rail))
	}
}

// apply takes a step, and returns how to count what it has done.
func (b *bed) apply(s Step) (seen func() int64) {
	switch s.Do {
	case Part, Unite:
		b.part = s.Nodes
		b.partition()
		return b.gossip.Parted
	case Kill, Stop:
		b.gone = append(b.gone, s.Nodes[0])
		b.partition()
		b.end(s.Nodes[0], s.Do)
		return func() int64 { return 0 } // the others tell, if they miss it
	}
	if s.Do == Panic {
		b.panics[s.Nodes[0]].Throw(s.Actor)
		return b.panics[s.Nodes[0]].Met
	}
	node, rails := s.Nodes[0], []int{s.Rail}
	if s.Rail == AllRails {
		rails = rails[:0]
		for r := range b.rails[node] {
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
	t := b.rails[node][rail]
	counters := func(of func(fault.Counters) int64) func() int64 {
		before := of(t.Counters())
		return func() int64 { return of(t.Counters()) - before }
	}
	broken := counters(func(c fault.Counters) int64 { return c.Lost + c.Refused })
	held := counters(func(c fault.Counters) int64 { return c.Stalled })
	if b.memory != nil {
		before := b.memory.Held(nodeName(node), railName(rail))
		held = func() int64 { return b.memory.Held(nodeName(node), railName(rail)) - before }
	}
	switch s.Do {
	case Cut:
		t.Cut()
		return broken
	case Reset:
		t.Drop()
		return broken
	case Silence:
		if b.memory != nil {
			b.memory.Silence(nodeName(node), railName(rail))
		} else {
			t.Stall(0)
		}
		return held
	case Unplug:
		links := b.linkDowns(node, rail)
		before := links()
		b.memory.Unplug(nodeName(node), railName(rail))
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
	return func() int64 { return int64(b.nodes[node].Rails()[rail].LinkDowns) }
}

// end kills or stops a node.
func (b *bed) end(node int, how Action) {
	for _, t := range b.rails[node] {
		switch {
		case how == Stop:
			t.Stall(0)
		case b.memory == nil:
			t.Cut() // the same process: nobody refuses connections
		}
	}
	if how == Kill && b.memory != nil {
		b.memory.Kill(nodeName(node))
	}
}

// partition parts gossip: each node that is gone stands alone.
func (b *bed) partition() {
	var groups [][]string
	for _, n := range b.gone {
		groups = append(groups, []string{gossipAddr(n)})
	}
	var apart []string
	for _, n := range b.part {
		if !slices.Contains(b.gone, n) {
			apart = append(apart, gossipAddr(n))
		}
	}
	b.gossip.Partition(append(groups, apart)...)
}

// onEach runs f(0) … f(n-1) at once and joins their errors.
func onEach(n int, f func(i int) error) error {
	errs := make([]error, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { errs[i] = f(i) })
	}
	all.Wait()
	return errors.Join(errs...)
}

// Options are how Run plays a scenario. The zero value is good.
type Options struct {
	// Loopback uses TCP on this host in place of the network in memory. Unplug isn't possible there; Silence and Stop hold
	// what the node itself reads and writes; a killed node breaks its connections and refuses none.
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
