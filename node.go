package polyrail

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"slices"
	"time"

	"github.com/polyrail/polyrail/actors/aggregation"
	"github.com/polyrail/polyrail/actors/balancing"
	"github.com/polyrail/polyrail/actors/engine"
	"github.com/polyrail/polyrail/actors/membership"
	"github.com/polyrail/polyrail/actors/observe"
	"github.com/polyrail/polyrail/cluster"
	"github.com/polyrail/polyrail/collective/balance"
	"github.com/polyrail/polyrail/collective/fault"
	"github.com/polyrail/polyrail/collective/table"
	"github.com/polyrail/polyrail/collective/view"
	"github.com/polyrail/polyrail/railactors"
	"github.com/polyrail/polyrail/railactors/transport/nic"
	"github.com/polyrail/polyrail/railactors/transport/tcp"
)

// Node is a running member of a cluster. Its methods are safe for concurrent use. A nil node has no
// name, rails and members; its calls end with ErrArgument.
type Node struct {
	config Config
	inner  *membership.Node
	shows  *observe.Server // nil: it shows nothing
}

// RailStatus is what a rail of this node is and did.
type RailStatus = railactors.RailStatus

// Member is a node of the cluster as gossip knows it.
type Member = cluster.Member

// Aggregator is a node of the cluster and what it aggregates for others; TreeGroup is its part in
// the tree of a communicator.
type (
	Aggregator = membership.Aggregator
	TreeGroup  = membership.TreeGroup
)

// Start brings a node up: its rails, then gossip. The context bounds the start only; Close ends the
// node. Errors match ErrConfig, ErrRail or ErrTimeout and name the culprit; that of an address that
// is in use is the system's.
func Start(ctx context.Context, cfg Config) (*Node, error) {
	if err := needContext(ctx); err != nil {
		return nil, err
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	cfg, err := cfg.expand()
	if err != nil {
		return nil, err
	}
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	logger := cfg.Logger.With("node", cfg.Name)
	source, err := cfg.source(logger)
	if err != nil {
		return nil, fmt.Errorf("node %q: %w", cfg.Name, err)
	}
	incarnation := uint64(time.Now().UnixNano()) // a process started later has a higher one
	rails := railactors.Config{
		Node: cfg.Name, Incarnation: incarnation, Cluster: cfg.Cluster,
		RankTimeout: cfg.RankTimeout, RailTimeout: cfg.RailTimeout, Memory: cfg.memory(), Logger: logger,
		Keys: source, Integrity: cfg.Integrity,
	}
	for _, r := range cfg.Rails {
		t := r.Transport
		if t == nil {
			t = tcp.New(tcp.Options{Congestion: cfg.Congestion})
		}
		rails.Rails = append(rails.Rails, railactors.RailConfig{Name: r.Name, Transport: t, Device: r.Device, CPUs: r.CPUs,
			Plain: cfg.plain(r.Name)})
	}
	face, err := cfg.listenHTTP(source)
	if err != nil {
		return nil, fmt.Errorf("node %q: http cannot listen on %s: %w", cfg.Name, cfg.HTTP.Addr, err)
	}
	gossip := cluster.DefaultConfig().ForNodes(cfg.Nodes)
	gossip.Node, gossip.Incarnation, gossip.Cluster, gossip.Path = cfg.Name, incarnation, cfg.Cluster, cfg.Rack
	gossip.Bind, gossip.Advertise, gossip.Join, gossip.Logger = cfg.Bind, cfg.Advertise, cfg.Join, logger
	gossip.Store, gossip.Keys = cfg.Rendezvous.store(), cfg.gossipKeys()
	if source != nil {
		gossip.Signer = signer{source}
	}
	inner, err := membership.Start(ctx, membership.Config{
		Engine: engine.Config{
			EagerBytes: cfg.EagerBytes, MaxInFlight: cfg.MaxInFlight, BcubeBase: cfg.BcubeBase,
			WaitSpin: cfg.WaitSpin, PinFrames: cfg.PinFrames,
			MemoryLimit: cfg.MemoryLimit, Measured: cfg.measured(), Free: cfg.Order == OrderFree,
			Trees:   len(cfg.sharp()) > 0 && cfg.Trees == TreesMeasured,
			Metered: face != nil,
		},
		Balancing: balancing.Config{
			Probe: cfg.Probe, Tuning: cfg.TuningFile, SplitBytes: int64(cfg.SplitBytes),
			Algorithms: cfg.ranges(),
		},
		Aggregation: aggregation.Config{Node: cfg.Name, Rails: cfg.Aggregate, MemoryLimit: cfg.AggregateMemory,
			JobBytes: cfg.AggregateQuota, JobGroups: cfg.AggregateGroups},
		SharpRails: cfg.sharp(), TreeFragment: cfg.TreeFragment, TreeRadix: cfg.TreeRadix,
		TreeResults: cfg.TreeResults,
		Node:        cfg.Name, Incarnation: incarnation, Host: cfg.host(logger), Settings: cfg.settings(),
		OperationTimeout: cfg.OperationTimeout, Table: cfg.table,
		Rails: rails, Cluster: gossip, View: cfg.forming(), Logger: logger,
	})
	if err != nil {
		if face != nil {
			err = errors.Join(err, face.Close())
		}
		return nil, fmt.Errorf("node %q: %w", cfg.Name, err)
	}
	n := &Node{config: cfg, inner: inner}
	if face != nil {
		n.shows = face.Serve(inner)
		logger.Info("node shows itself", "http", n.shows.Addr())
	}
	return n, nil
}

// expand turns the rail "auto" into one for every usable interface.
func (c Config) expand() (Config, error) {
	if len(c.Rails) != 1 || c.Rails[0].Device != "auto" || c.Rails[0].Transport != nil {
		return c, nil
	}
	found, err := nic.Auto()
	if err != nil {
		return c, fmt.Errorf("%w: rail %q: %w", fault.ErrConfig, c.Rails[0].Name, err)
	}
	auto := c.Rails[0]
	c.Rails = nil
	for _, d := range found {
		r := auto
		r.Name, r.Device = d.Interface, d.Interface
		c.Rails = append(c.Rails, r)
	}
	return c, nil
}

// table is what a communicator begins with: the configured weights for the rails in their
// order on every rank, and one rail below SplitBytes.
func (c Config) table(rails []string) (*table.Table, error) {
	weights := balance.Equal(len(rails))
	for i, name := range rails {
		for _, r := range c.Rails {
			if r.Name == name && r.Weight > 0 {
				weights[i] = r.Weight
			}
		}
	}
	t, err := balance.Static(weights, int64(c.SplitBytes), c.ranges())
	if err != nil {
		return nil, err
	}
	for i := range t.Entries {
		t.Entries[i].Route = c.Trees.route()
	}
	return t, nil
}

func (c Config) ranges() (ranges []balance.Range) {
	for _, a := range c.Algorithms {
		ranges = append(ranges, balance.Range{MaxBytes: a.MaxBytes, Algorithm: a.Algorithm})
	}
	return ranges
}

// measured: weights that the user has set are kept.
func (c Config) measured() bool {
	weighted := slices.ContainsFunc(c.Rails, func(r Rail) bool { return r.Weight > 0 })
	return c.Balance == BalanceMeasured && !weighted
}

// settings are those that all members of a communicator need alike: ranks that differ would wait for
// each other, or divide an operation otherwise.
func (c Config) settings() []string {
	rails := slices.SortedFunc(slices.Values(c.Rails), func(a, b Rail) int { return cmp.Compare(a.Name, b.Name) })
	weights := make([]uint32, len(rails))
	for i, r := range rails {
		weights[i] = max(r.Weight, 1)
	}
	balance := BalanceStatic
	if c.measured() {
		balance = BalanceMeasured
	}
	return []string{fmt.Sprintf("rail weights %v", weights), fmt.Sprintf("balance %v", balance),
		fmt.Sprintf("order %v", c.Order), fmt.Sprintf("probe %v", c.Probe),
		fmt.Sprintf("split bytes %d", c.SplitBytes), fmt.Sprintf("eager bytes %d", c.EagerBytes),
		fmt.Sprintf("bcube base %d", c.BcubeBase), c.algorithms(),
		fmt.Sprintf("protection of rails %v", c.protection(rails))}
}

// protection is what keeps what goes over each rail from being changed.
func (c Config) protection(rails []Rail) []string {
	all := make([]string, len(rails))
	for i, r := range rails {
		switch {
		case c.TLS != (TLS{}) && !c.plain(r.Name):
			all[i] = "keys"
		case c.Integrity:
			all[i] = "integrity"
		default:
			all[i] = "none"
		}
	}
	return all
}

// forming is how patient nodes are that form a communicator. Where packets vanish, a former process of a
// node stands in the way of the next one for as long as the rank timeout.
func (c Config) forming() view.Timing {
	t := view.DefaultTiming()
	t.CannotReach = max(t.CannotReach, 2*c.RankTimeout)
	return t
}

// algorithms is the setting of that name. A long one ends in a hash of its whole text.
func (c Config) algorithms() string {
	text := fmt.Sprintf("algorithms %v", c.Algorithms)
	if len(text) <= view.MaxSetting {
		return text
	}
	h := fnv.New64a()
	h.Write([]byte(text))
	return fmt.Sprintf("%s… (%016x)", text[:view.MaxSetting/2], h.Sum64())
}

// Close leaves the cluster, closes every connection and waits for what the node started, or for the
// context. Communicators that are still open break. Where a user-defined operator does not return the
// error says so, and the rest ends when it has returned; another Close waits for that.
func (n *Node) Close(ctx context.Context) error {
	inner, err := n.with(ctx)
	if err != nil {
		return err
	}
	err = inner.Close(ctx)
	if n.shows != nil { // last: it tells that the node closes
		err = errors.Join(err, n.shows.Close())
	}
	return err
}

// Name is the node's name in the cluster.
func (n *Node) Name() string {
	if n == nil {
		return ""
	}
	return n.config.Name
}

// GossipAddr is where other nodes can join: ADDR:PORT.
func (n *Node) GossipAddr() string {
	inner, err := n.of()
	if err != nil {
		return ""
	}
	return inner.Gossip().Addr()
}

// Members are the living nodes, this one included, by name.
func (n *Node) Members() []Member {
	inner, err := n.of()
	if err != nil {
		return nil
	}
	m := inner.Gossip().Members()
	slices.SortFunc(m, func(a, b Member) int {
		if a.Node < b.Node {
			return -1
		}
		return 1
	})
	return m
}

// Aggregators asks all living nodes what they aggregate, and returns their answers by node. When
// the context ends first, or the node closes, the error names those that have not answered, and
// what the others said is returned with it.
func (n *Node) Aggregators(ctx context.Context) ([]Aggregator, error) {
	inner, err := n.with(ctx)
	if err != nil {
		return nil, err
	}
	return inner.Aggregators(ctx)
}

// Rails is the state of this node's rails, by name.
func (n *Node) Rails() []RailStatus {
	inner, err := n.of()
	if err != nil {
		return nil
	}
	return inner.Rails()
}

// Event is something that happened to the rails and communicators of a node, as Node.Events tells
// it.
type Event = membership.Event

// EventKind says what happened.
type EventKind = membership.EventKind

// The kinds of events, and which fields of an Event they set.
const (
	RailUp = membership.RailUp // Node, Rail: a connection was made
	// Node, Rail, Err, Unacknowledged, Waiting, Remaining: it was lost, or missing when the nodes
	// met.
	RailDown = membership.RailDown
	// Node, Rail, Unacknowledged, Waiting, Resent, To: what it carried goes over other rails.
	RailMoved          = membership.RailMoved
	RankLost           = membership.RankLost           // Communicator, Rank, Node, Err
	CommunicatorFormed = membership.CommunicatorFormed // Communicator, Rank (this node's)
	CommunicatorBroken = membership.CommunicatorBroken // Communicator, Rank (this node's), Err
	TableChanged       = membership.TableChanged       // Communicator, Rank (this node's), Version
	TreeUp             = membership.TreeUp             // Communicator, Rank (this node's), Rail, Node
	TreeDown           = membership.TreeDown           // the same, and Err, Repaired
)

// Events tells what happens to the node from now on, until the context ends or the node is closed;
// then the channel is closed. The runtime never waits for who reads it. When 256 events wait, the
// next is lost, and counted in Event.Missed of the one that follows. Without a node or a context
// the channel is closed from the start.
func (n *Node) Events(ctx context.Context) <-chan Event {
	inner, err := n.with(ctx)
	if err != nil {
		none := make(chan Event)
		close(none)
		return none
	}
	return inner.Events(ctx)
}

// Communicator waits until size nodes, this one included, have asked for the name, and returns the
// communicator that they form. Ranks are the same on all members: they ascend by node name. A
// context that ends first withdraws the request. Errors match ErrView and name
// the node that stood in the way.
func (n *Node) Communicator(ctx context.Context, name string, size int) (*Communicator, error) {
	node, err := n.with(ctx)
	if err != nil {
		return nil, err
	}
	inner, err := node.Communicator(ctx, name, size)
	if err != nil {
		return nil, err
	}
	return &Communicator{inner, node, n.config.spans()}, nil
}
