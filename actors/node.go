package actors

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/polyrail/polyrail/actors/tuning"
	"github.com/polyrail/polyrail/cluster"
	"github.com/polyrail/polyrail/collective/fault"
	"github.com/polyrail/polyrail/collective/table"
	"github.com/polyrail/polyrail/collective/view"
	"github.com/polyrail/polyrail/messages/wire"
	"github.com/polyrail/polyrail/railactors"
	"github.com/polyrail/polyrail/railactors/dispatch"
	"github.com/polyrail/polyrail/railactors/memory"
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
	config  Config
	log     *slog.Logger
	system  *actor.ActorSystem
	warm    *dispatch.Warm   // for the node and communicator actors
	inline  actor.Dispatcher // for those on the path of an operation
	fabric  *railactors.Fabric
	rails   int
	first   *table.Table // what a communicator begins with
	probes  probes
	tuning  *tuning.Store // nil: nothing is kept
	pool    *memory.Pool
	copies  *copies
	pid     *actor.PID // of the node actor
	stopLog func()
	events  events

	operations sync.Pool

	closing chan struct{} // closed when Close begins

	mu     sync.Mutex
	closed bool
	doomed dooms
	groups atomic.Pointer[map[uint64]*member] // by wire id; replaced, never changed
}

// member is a registered group and the actor above it.
type member struct {
	group *group
	pid   atomic.Pointer[actor.PID] // nil until the communicator actor runs
	early []controlMessage          // control messages before that; under node.mu
}

// maxEarlyControl bounds the control messages kept for a communicator that is being formed.
const maxEarlyControl = 1024

// Start brings a node up: rails first, then gossip. The context bounds the start only.
func Start(ctx context.Context, cfg Config) (*Node, error) {
	n := &node{config: cfg, log: cfg.Logger, warm: dispatch.NewWarm(8), inline: dispatch.Synchronized(),
		pool: memory.NewPool(cfg.MemoryLimit), closing: make(chan struct{})}
	n.copies = &copies{n.pool}
	n.operations.New = func() any { return new(operation) }
	n.groups.Store(&map[uint64]*member{})
	n.system = actor.NewActorSystem(actor.WithLoggerFactory(func(*actor.ActorSystem) *slog.Logger { return quietLogger(cfg.Logger) }))
	if cfg.Panics != nil {
		cfg.Panics.Bind(n.system)
	}
	n.stopLog = supervise.LogEvents(n.system, cfg.Logger)
	node := &Node{node: n, done: make(chan struct{})}
	fail := func(err error) (*Node, error) {
		return nil, errors.Join(err, node.Close(ctx))
	}
	var err error
	cfg.Rails.Watch = n.watchPair
	if n.fabric, err = railactors.Start(n.system, cfg.Rails, n); err != nil {
		return fail(err)
	}
	var names []string
	for _, r := range n.fabric.Rails() {
		n.log.Info("rail", "name", r.Name, "protocol", r.Protocol, "device", r.Chosen, "address", r.Addr)
		names = append(names, r.Name)
	}
	rails := n.addresses()
	n.rails = len(names)
	n.openTuning()
	if n.first, err = cfg.Table(names); err != nil {
		return fail(err)
	}
	core, err := view.New(cfg.Node, cfg.Incarnation, rails, cfg.View)
	if err != nil {
		return fail(err)
	}
	forming := &nodeActor{node: n, core: core, rails: rails, calls: make(map[uint64]*communicatorCall),
		shrinks: make(map[string]*communicatorCall), forming: make(map[uint64]*forming)}
	n.pid = n.system.Root.SpawnPrefix(actor.PropsFromProducer(func() actor.Actor { return forming },
		actor.WithDispatcher(n.warm), n.strategy(nil).Props()), "node")
	node.gossip, err = cluster.Start(ctx, cfg.Cluster, &gossipHandler{n})
	if err != nil {
		return fail(err)
	}
	n.tell(n.pid, gossipStarted{node.gossip})
	go node.watchGossip()
	return node, nil
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

// quietLogger keeps protoactor's own chatter below warnings out of the user's log.
func quietLogger(l *slog.Logger) *slog.Logger { return slog.New(&atLeast{l.Handler(), slog.LevelWarn}) }

type atLeast struct {
	slog.Handler
	level slog.Level
}

func (h *atLeast) Enabled(ctx context.Context, l slog.Level) bool {
	return l >= h.level && h.Handler.Enabled(ctx, l)
}

// Close leaves the cluster and ends everything that the node started. Communicators that
// are still open break, and calls that wait end.
func (n *Node) Close(ctx context.Context) error {
	if n.shut() {
		n.err = n.close(ctx)
		close(n.done)
		return n.err
	}
	select {
	case <-n.done:
		return n.err
	case <-ctx.Done():
		return fmt.Errorf("%w: by another call, which has not ended: %w", n.closedError(), context.Cause(ctx))
	}
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

func (n *Node) close(ctx context.Context) error {
	var errs []error
	groups := *n.groups.Load()
	for _, m := range groups { // all of them first: others wait in each
		n.breakGroup(m.group, n.closedError(), 0, true)
	}
	for _, m := range groups {
		select {
		case <-m.group.quiet():
		case <-ctx.Done():
			errs = append(errs, fmt.Errorf("communicator %q: operations still hold memory: %w", m.group.name, context.Cause(ctx)))
		}
		m.group.keepTuning()
		n.unregister(m.group)
		if pid := m.pid.Load(); pid != nil {
			n.stop(pid)
		}
	}
	if n.gossip != nil {
		n.leaveCluster(ctx)
		errs = append(errs, n.gossip.Close())
	}
	if n.fabric != nil {
		errs = append(errs, n.fabric.Close(ctx))
	}
	if n.pid != nil {
		n.stop(n.pid)
	}
	n.stopLog()
	if n.config.Panics != nil {
		n.config.Panics.Bind(nil)
	}
	n.system.Shutdown()
	n.warm.Close()
	n.pool.Close()
	n.events.close()
	return errors.Join(errs...)
}

// leaveTimeout bounds the farewell to the cluster: when all nodes go at once nobody is left to pass it on.
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

// Gossip is this node's view of the cluster.
func (n *Node) Gossip() *cluster.Gossip { return n.gossip }

// tell sends a message from outside any actor.
func (n *node) tell(pid *actor.PID, message any) { n.system.Root.Send(pid, message) }

// unknown logs a message that an actor has no case for.
func (n *node) unknown(ctx actor.Context) {
	supervise.MayExplode(ctx)
	n.log.Error("unknown message", "actor", ctx.Self().GetId(), "type", fmt.Sprintf("%T", ctx.Message()))
}

// strategy supervises one level of the tree: a child that panics breaks its communicator, since the message
// it was at is lost, and is restarted for the communicators and calls after it.
func (n *node) strategy(g *group) *supervise.Strategy {
	cfg := supervise.DefaultConfig()
	cfg.Report = func(d supervise.Decision) {
		n.log.Error("actor failed", "decision", d.String())
		if g != nil {
			n.breakGroup(g, fmt.Errorf("%w: %v", fault.ErrInternal, d.Reason), 0, true)
		}
	}
	return supervise.New(cfg)
}

// recycle pools an operation that nothing refers to.
func (n *node) recycle(o *operation) {
	o.mu.Lock()
	o.release()
	o.mu.Unlock()
	n.operations.Put(o)
}

// unregister forgets a group, and lets go of its peers.
func (n *node) unregister(g *group) {
	known := false
	n.replace(func(groups map[uint64]*member) {
		if m := groups[g.id]; m != nil && m.group == g {
			known = true
			delete(groups, g.id)
		}
	})
	if !known {
		return
	}
	g.transfers.fail(fault.ErrClosed) // what waits for receives that will not be made
	for _, p := range g.peers {
		if p != nil {
			n.fabric.Disconnect(p)
		}
	}
}

func (n *node) replace(change func(map[uint64]*member)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.replaceLocked(change)
}

func (n *node) replaceLocked(change func(map[uint64]*member)) {
	old := *n.groups.Load()
	groups := make(map[uint64]*member, len(old)+1)
	for id, m := range old {
		groups[id] = m
	}
	change(groups)
	n.groups.Store(&groups)
}

// open starts the communicator actor of a registered group.
func (n *node) open(g *group) *Communicator {
	started := make(chan *Communicator, 1)
	pid := n.system.Root.SpawnPrefix(actor.PropsFromProducer(func() actor.Actor {
		return &communicator{group: g, first: g.first, started: started}
	}, actor.WithDispatcher(n.warm), n.strategy(g).Props()), "communicator")
	c := <-started
	n.mu.Lock()
	m := (*n.groups.Load())[g.id]
	var early []controlMessage
	if m != nil {
		early, m.early = m.early, nil
		m.pid.Store(pid)
	}
	n.mu.Unlock()
	if m == nil { // the node has closed meanwhile, and stops only what it knew
		n.system.Root.Stop(pid)
	}
	for i := range early {
		n.tell(pid, &early[i])
	}
	for _, p := range g.peers { // one that was lost before there was an actor to hear of it
		if p != nil && p.Lost() != nil {
			n.PeerLost(p, p.Lost())
		}
	}
	return c
}

// stop ends an actor and what it supervises.
func (n *node) stop(pid *actor.PID) {
	if err := n.system.Root.StopFuture(pid).Wait(); err != nil {
		n.log.Warn("actor did not stop", "actor", pid.GetId(), "error", err)
	}
}

// Land implements railactors.Inbound.
func (n *node) Land(from *railactors.Peer, h *wire.Header) (railactors.Landing, error) {
	if m := (*n.groups.Load())[h.Comm]; m != nil {
		return m.group.land(from, h)
	}
	if m := (*n.groups.Load())[transferID(h.Comm)]; m != nil {
		return m.group.transfers.land(from, h)
	}
	return railactors.Landing{}, nil
}

// Granted implements railactors.Inbound.
func (n *node) Granted(from *railactors.Peer, h *wire.Header) error {
	if m := (*n.groups.Load())[h.Comm]; m != nil {
		return m.group.granted(from, h)
	}
	if m := (*n.groups.Load())[transferID(h.Comm)]; m != nil {
		return m.group.transfers.answered(from, h)
	}
	return nil
}

// Wanted implements railactors.Inbound.
func (n *node) Wanted(from *railactors.Peer, h *wire.Header) error {
	if m := (*n.groups.Load())[h.Comm]; m != nil {
		return m.group.wanted(from, h)
	}
	from.GrantEager(h.Comm, h.Seq)
	return nil
}

// disturb: frames to and from a node went over other rails than planned, or do so no longer. What is being
// measured in its communicators does not count.
func (n *node) disturb(node string) {
	for _, m := range *n.groups.Load() {
		if !m.group.formed.Load() || !slices.Contains(m.group.nodes, node) {
			continue
		}
		m.group.disturbed.Add(1)
		m.group.examine()
		if pid := m.pid.Load(); pid != nil && m.group.measured() {
			n.tell(pid, railChanged{})
		}
	}
}
