package membership

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/polyrail/polyrail/actors/aggregation"
	"github.com/polyrail/polyrail/actors/balancing"
	"github.com/polyrail/polyrail/actors/communicator"
	"github.com/polyrail/polyrail/actors/engine"
	"github.com/polyrail/polyrail/cluster"
	"github.com/polyrail/polyrail/collective/fault"
	"github.com/polyrail/polyrail/collective/table"
	"github.com/polyrail/polyrail/collective/view"
	"github.com/polyrail/polyrail/messages"
	"github.com/polyrail/polyrail/railactors"
	"github.com/polyrail/polyrail/railactors/dispatch"
	"github.com/polyrail/polyrail/railactors/supervise"
)

// Node is a running node: its actors, rails and gossip.
type Node struct {
	*node
	gossip *cluster.Gossip // nil until it runs
	done   chan struct{}   // closed when Close has ended
	err    error           // what it ended with
}

// node is what every part of the package shares. It implements railactors.Inbound.
type node struct {
	config    Config
	hooks     Hooks
	log       *slog.Logger
	system    *actor.ActorSystem
	warm      *dispatch.Warm // for the node and communicator actors
	fabric    *railactors.Fabric
	shared    *communicator.Node
	serves    *aggregation.Server // what this node aggregates for others
	cast      atomic.Pointer[cluster.Gossip]
	queries   queries
	first     *table.Table // what a communicator begins with
	pid       *actor.PID   // of the node actor
	stopLog   func()
	events    events
	onlookers onlookers
	started   time.Time
	mail      atomic.Int64  // rendezvous messages in the node actor's mailbox
	dropped   atomic.Uint64 // those in excess of maxMail

	closing chan struct{} // closed when Close begins

	mu     sync.Mutex
	closed bool
	doomed dooms
	parted partings
	groups atomic.Pointer[map[uint64]*member] // by wire id; replaced, never changed
}

// attempts of all nodes of this process to connect take turns.
var attempts = railactors.NewAttempts()

// Start brings a node up: rails first, then gossip. The context bounds the start only.
func Start(ctx context.Context, cfg Config) (*Node, error) {
	n := &node{config: cfg, started: time.Now(), hooks: hooksOf(ctx), log: cfg.Logger, warm: dispatch.NewWarm(8), closing: make(chan struct{})}
	n.groups.Store(&map[uint64]*member{})
	n.system = newSystem(cfg.Logger)
	n.shared = n.share()
	if n.hooks.Panics != nil {
		n.hooks.Panics.Bind(n.system)
	}
	n.stopLog = supervise.LogEvents(n.system, cfg.Logger)
	node := &Node{node: n, done: make(chan struct{})}
	fail := func(err error) (*Node, error) {
		return nil, errors.Join(err, node.Close(ctx))
	}
	var err error
	cfg.Rails.Watch, cfg.Rails.Knocked = n.watchPair, n.shared.Engine.Look
	cfg.Rails.Attempts = cmp.Or(n.hooks.Attempts, attempts)
	if n.fabric, err = railactors.Start(n.system, cfg.Rails, n); err != nil {
		return fail(err)
	}
	var names []string
	for _, r := range n.fabric.Rails() {
		n.log.Info("rail", "name", r.Name, "protocol", r.Protocol, "device", r.Chosen, "address", r.Addr)
		names = append(names, r.Name)
	}
	rails := n.addresses()
	n.connect(len(names))
	if n.first, err = cfg.Table(names); err != nil {
		return fail(err)
	}
	core, err := view.New(cfg.Node, cfg.Incarnation, rails, n.host(), cfg.View)
	if err != nil {
		return fail(err)
	}
	forming := &nodeActor{node: n, core: core, rails: rails, calls: make(map[uint64]*communicatorCall),
		shrinks: make(map[string]*communicatorCall), forming: make(map[uint64]*forming)}
	n.pid = n.system.Root.SpawnPrefix(actor.PropsFromProducer(func() actor.Actor { return forming },
		actor.WithDispatcher(n.warm)), "node")
	cfg.Cluster.Network, cfg.Cluster.Reached = n.hooks.Gossip, n.reached()
	node.gossip, err = cluster.Start(ctx, cfg.Cluster, &gossipHandler{n})
	if err != nil {
		return fail(err)
	}
	n.cast.Store(node.gossip)
	n.tell(n.pid, gossipStarted{node.gossip})
	go node.watchGossip()
	return node, nil
}

// share makes what the communicators use of the node.
func (n *node) share() *communicator.Node {
	c := &n.config
	e := engine.New(c.Engine)
	e.Closed = n.ended
	return &communicator.Node{Name: c.Node, OperationTimeout: c.OperationTimeout, Engine: e, System: n.system,
		Warm: n.warm, Inline: dispatch.Synchronized(), Log: n.log, Registry: n}
}

// connect completes it with the rails, once they are up.
func (n *node) connect(rails int) {
	n.shared.Engine.Rails, n.shared.Engine.Revoke = rails, n.fabric.Revoke
	n.shared.Engine.Listening, n.shared.Engine.Board = n.fabric.Listening, n.fabric.Board()
	n.shared.Fabric = n.fabric
	n.shared.SharpRails = make([]string, rails)
	n.shared.TreeFragment, n.shared.TreeRadix = n.config.TreeFragment, n.config.TreeRadix
	n.shared.TreeResults = n.config.TreeResults
	n.shared.Cast, n.shared.Paths = n.broadcast, n.paths
	for _, name := range n.config.SharpRails {
		n.shared.SharpRails[n.fabric.RailIndex(name)] = name
	}
	n.serves = aggregation.New(n.config.Aggregation, n.fabric, n.system, n.log,
		func(to string, m *messages.Rendezvous) { n.broadcast(to, m) })
	n.shared.Balancing = balancing.NewNode(n.config.Balancing, n.shared.Engine, n.system, n.fabric, n.log)
}

// watchGossip reports that the cluster turned this node down after it had started (another
// living node has its name, or speaks another version). It ends with the gossip.
func (n *Node) watchGossip() {
	select {
	case <-n.gossip.Failed():
		n.log.Error("left the cluster", "error", n.gossip.Err())
		n.tell(n.pid, gossipFailed{n.gossip.Err()})
	case <-n.closing:
	}
}

// Close leaves the cluster and ends everything that the node started. Communicators that
// are still open break, and calls that wait end.
func (n *Node) Close(ctx context.Context) error {
	if n.shut() {
		end := func() { n.err = n.end(ctx); close(n.done) }
		if held := n.hush(ctx); held != nil {
			go end() // ends when the user's operators have returned: readers run them
			return held
		}
		end()
		return n.err
	}
	if engine.Came(ctx, n.done) {
		return n.err
	}
	return fmt.Errorf("%w: by another call, which has not ended: %w", n.closedError(), context.Cause(ctx))
}

// shut keeps new communicators out, and ends every call that waits for the node actor. It
// reports whether this is the first time.
func (n *node) shut() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return false
	}
	n.closed = true
	close(n.closing)
	return true
}

func (n *node) closedError() error { return fmt.Errorf("node %q: %w", n.config.Node, fault.ErrClosed) }

// ended is why the node can't be used any more, or nil.
func (n *node) ended() error {
	select {
	case <-n.closing:
		return n.closedError()
	default:
		return nil
	}
}

// hush breaks all communicators, and waits until nothing refers to their callers' memory. The error
// names those where something does for longer than the context.
func (n *Node) hush(ctx context.Context) error {
	groups := *n.groups.Load()
	for _, m := range groups { // all of them first: others wait in each
		m.group.Fail(n.closedError(), 0)
	}
	var late []*member
	for _, m := range groups {
		if !m.group.Hushed(ctx) {
			late = append(late, m)
		}
	}
	grace, cancel := engine.Grace(ctx)
	defer cancel()
	var errs []error
	for _, m := range late {
		if !m.group.Hushed(grace) {
			errs = append(errs, m.group.HoldsMemory(context.Cause(ctx)))
		}
	}
	return errors.Join(errs...)
}

// end ends everything that the node started.
func (n *Node) end(ctx context.Context) error {
	var errs []error
	for _, m := range *n.groups.Load() {
		m.group.Balance.KeepTuning()
		n.Unregister(m.group)
		if pid := m.pid.Load(); pid != nil {
			n.shared.Stop(pid)
		}
	}
	if n.serves != nil {
		n.serves.Close()
	}
	if n.gossip != nil {
		n.leaveCluster(ctx)
		errs = append(errs, n.gossip.Close())
	}
	if n.fabric != nil {
		errs = append(errs, n.fabric.Close(ctx))
		n.shared.Engine.EndBoards()
	}
	if n.pid != nil {
		n.shared.Stop(n.pid)
	}
	n.stopLog()
	if n.hooks.Panics != nil {
		n.hooks.Panics.Bind(nil)
	}
	n.system.Shutdown()
	n.warm.Close()
	n.shared.Engine.Pool.Close()
	n.events.close()
	return errors.Join(errs...)
}

// leaveTimeout bounds the farewell to the cluster, which takes a few of gossip's intervals.
const leaveTimeout = time.Second

func (n *Node) leaveCluster(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, leaveTimeout)
	defer cancel()
	if err := n.gossip.Leave(ctx); err != nil {
		n.log.Info("left the cluster without everybody's notice", "error", err)
	}
}

// Rails is the state of this node's rails.
func (n *Node) Rails() []railactors.RailStatus { return n.fabric.Rails() }

// SharedMemory is the state of the rail within this node's host, if there is one.
func (n *Node) SharedMemory() (railactors.RailStatus, bool) { return n.fabric.MemoryStatus() }

// Gossip is this node's view of the cluster.
func (n *Node) Gossip() *cluster.Gossip { return n.gossip }

// tell sends a message from outside any actor.
func (n *node) tell(pid *actor.PID, message any) { n.system.Root.Send(pid, message) }
