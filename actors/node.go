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
	"github.com/polyrail/polyrail/collective/op"
	"github.com/polyrail/polyrail/collective/table"
	"github.com/polyrail/polyrail/collective/view"
	"github.com/polyrail/polyrail/messages"
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
	once   sync.Once
	err    error

	closing chan struct{} // closed when Close begins
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

	mu     sync.Mutex
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
	n := &node{config: cfg, log: cfg.Logger, warm: dispatch.NewWarm(8), inline: dispatch.Synchronized(), pool: memory.NewPool(cfg.MemoryLimit)}
	n.copies = &copies{n.pool}
	n.operations.New = func() any { return &operation{scratch: memory.NewArena(n.pool)} }
	n.groups.Store(&map[uint64]*member{})
	n.system = actor.NewActorSystem(actor.WithLoggerFactory(func(*actor.ActorSystem) *slog.Logger { return quietLogger(cfg.Logger) }))
	if cfg.Panics != nil {
		cfg.Panics.Bind(n.system)
	}
	n.stopLog = supervise.LogEvents(n.system, cfg.Logger)
	node := &Node{node: n, closing: make(chan struct{})}
	fail := func(err error) (*Node, error) {
		return nil, errors.Join(err, node.Close(ctx))
	}
	var err error
	cfg.Rails.Watch = n.watchPair
	if n.fabric, err = railactors.Start(n.system, cfg.Rails, n); err != nil {
		return fail(err)
	}
	var names []string
	var rails []view.Rail
	for _, r := range n.fabric.Rails() {
		n.log.Info("rail", "name", r.Name, "protocol", r.Protocol, "device", r.Chosen, "address", r.Addr)
		names = append(names, r.Name)
		rails = append(rails, view.Rail{Name: r.Name, Addr: r.Addr})
	}
	n.rails = len(names)
	n.openTuning()
	if n.first, err = cfg.Table(names); err != nil {
		return fail(err)
	}
	core, err := view.New(cfg.Node, cfg.Incarnation, rails, cfg.View)
	if err != nil {
		return fail(err)
	}
	forming := &nodeActor{node: n, core: core, calls: make(map[uint64]*communicatorCall),
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
// are still open break.
func (n *Node) Close(ctx context.Context) error {
	n.once.Do(func() { n.err = n.close(ctx) })
	return n.err
}

func (n *Node) close(ctx context.Context) error {
	close(n.closing)
	var errs []error
	for _, m := range *n.groups.Load() {
		n.breakGroup(m.group, fmt.Errorf("node %q: %w", n.config.Node, fault.ErrClosed), 0, true)
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

// breakGroup ends all operations of a communicator with the first cause. It may be called on any
// goroutine that holds no lock of this package, and doesn't depend on any actor's health; the
// communicator actor tells the other ranks.
func (n *node) breakGroup(g *group, cause error, seq uint64, tell bool) {
	open, first := g.fail(seq, cause)
	if !first {
		return
	}
	if g.formed.Load() {
		n.events.emit(Event{Kind: CommunicatorBroken, Communicator: g.name, Rank: int(g.rank), Err: cause})
	}
	for _, p := range open {
		p.operation.abort(g, p.seq, cause)
	}
	g.transfers.fail(cause)
	if m := (*n.groups.Load())[g.id]; m != nil && m.group == g {
		if pid := m.pid.Load(); pid != nil {
			n.tell(pid, &breakCommunicator{cause, seq, tell})
		}
	}
}

// recycle pools an operation that nothing refers to.
func (n *node) recycle(o *operation) {
	o.mu.Lock()
	o.release()
	o.mu.Unlock()
	n.operations.Put(o)
}

// register makes a group known to readers: frames of its id are kept from now on.
func (n *node) register(g *group) *member {
	m := &member{group: g}
	n.replace(func(groups map[uint64]*member) { groups[g.id] = m })
	return m
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

// duplicate registers the communicator that Dup makes of parent under seq.
func (n *node) duplicate(parent *group, seq uint64, first *table.Table) *group {
	g := newGroup(n, childID(parent.id, seq), fmt.Sprintf("%s/%d", parent.name, seq), parent.rank, parent.nodes)
	g.procs = parent.procs
	g.first = first
	for rank, p := range parent.peers {
		if p == nil {
			continue
		}
		g.attach(op.Rank(rank), p)
		n.fabric.Retain(p)
	}
	n.register(g)
	return g
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

// Control implements railactors.Inbound.
func (n *node) Control(from *railactors.Peer, body *messages.Control) {
	m := (*n.groups.Load())[body.GetComm()]
	if leave := body.GetLeave(); leave != nil {
		n.farewell(from, m, body.GetComm(), leave)
		return
	}
	if m == nil {
		n.log.Debug("control message for no communicator of this node", "from", from.Node(), "type", fmt.Sprintf("%T", body.GetBody()))
		return
	}
	rank, ok := m.group.ranks[from]
	if !ok {
		n.log.Warn("control message from a node that is no member", "communicator", m.group.name, "from", from.Node())
		return
	}
	pid := m.pid.Load()
	if pid == nil {
		n.mu.Lock()
		if pid = m.pid.Load(); pid == nil && len(m.early) < maxEarlyControl {
			m.early = append(m.early, controlMessage{rank, body})
		}
		n.mu.Unlock()
	}
	if pid != nil {
		n.tell(pid, &controlMessage{rank, body})
	}
}

// farewell answers a rank that closes a communicator: at once and without the communicator's
// actor, which may be gone by now, as the whole communicator may.
func (n *node) farewell(from *railactors.Peer, m *member, comm uint64, leave *messages.Leave) {
	ack := &messages.Control{Comm: comm, Body: &messages.Control_LeaveAck{LeaveAck: &messages.LeaveAck{}}}
	if err := from.SendControl(ack); err != nil {
		n.log.Debug("farewell not answered", "to", from.Node(), "error", err)
	}
	if m == nil {
		return
	}
	if rank, ok := m.group.ranks[from]; ok {
		m.group.depart(rank, leave.GetLast())
		m.group.transfers.depart(rank, leave.GetSent())
	}
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

// PeerLost implements railactors.Inbound.
func (n *node) PeerLost(p *railactors.Peer, err error) {
	for _, m := range *n.groups.Load() {
		rank, ok := m.group.ranks[p]
		if !ok {
			continue
		}
		cause := err
		if lost, ok := asLost(err); ok {
			cause = &fault.RankLostError{Rank: rank, Node: lost.Node, Reason: lost.Reason}
		}
		n.breakGroup(m.group, cause, 0, true)
		n.events.emit(Event{Kind: RankLost, Communicator: m.group.name, Rank: int(rank), Node: p.Node(), Err: cause})
		if pid := m.pid.Load(); pid != nil {
			n.tell(pid, memberLost(rank))
		}
	}
	n.tell(n.pid, peerLost{p.Node(), err})
}
