package actors

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"sync/atomic"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/polyrail/polyrail/collective/fault"
	"github.com/polyrail/polyrail/collective/op"
	"github.com/polyrail/polyrail/collective/table"
	"github.com/polyrail/polyrail/messages"
	"github.com/polyrail/polyrail/railactors/supervise"
)

// Communicator is the handle of a communicator: what a caller's goroutine holds.
type Communicator struct {
	group       *group
	pid         *actor.PID
	coordinator *actor.PID
	balancer    *actor.PID
	slots       chan struct{} // one taken for each operation in flight
	closed      atomic.Bool
	gone        chan struct{} // closed when Close has ended
}

// communicator is the actor that owns a communicator's end: it breaks it, closes it, and
// supervises coordinator, balancer and operations.
type communicator struct {
	group    *group
	first    *table.Table
	started  chan<- *Communicator
	handle   *Communicator
	balancer *actor.PID

	leaving chan error // of the Close that waits; nil otherwise
	left    []bool     // by rank: has acknowledged our Leave
}

func (c *communicator) Receive(ctx actor.Context) {
	defer c.survive(ctx)
	switch m := ctx.Message().(type) {
	case *actor.Started:
		c.start(ctx)
	case *controlMessage:
		c.control(m)
	case *breakCommunicator:
		c.breakDown(m)
	case *closeCommunicator:
		c.leave(m)
	case memberLost:
		c.acknowledged(op.Rank(m))
	case railChanged:
		c.group.node.tell(c.balancer, m)
	case *proposeTable: // the balancer's
		n := c.group.node
		n.tell(c.handle.coordinator, m)
	case *actor.Stopping, *actor.Stopped, *actor.Restarting, *actor.Terminated:
	default:
		c.group.node.unknown(ctx)
	}
}

// survive keeps the actor after a panic, where a restart would end the coordinator, on which calls wait: its communicator
// breaks, and callers are told.
func (c *communicator) survive(ctx actor.Context) {
	r := recover()
	if r == nil {
		return
	}
	if _, starting := ctx.Message().(*actor.Started); starting {
		panic(r)
	}
	n := c.group.node
	supervise.Log(ctx.Self(), ctx.Message(), r, n.log)
	cause := fmt.Errorf("%w: communicator: %v", fault.ErrInternal, r)
	n.breakGroup(c.group, cause, 0, true)
	if m, ok := ctx.Message().(*closeCommunicator); ok {
		select {
		case m.done <- cause:
		default: // it was answered before
		}
	}
}

func (c *communicator) start(ctx actor.Context) {
	n, g := c.group.node, c.group
	g.table.CompareAndSwap(nil, c.first)
	inline := actor.WithDispatcher(n.inline)
	c.balancer = ctx.SpawnPrefix(actor.PropsFromProducer(func() actor.Actor { return newBalancer(g) }, inline), "balancer")
	g.tuner.balancer.Store(c.balancer)
	brain := newCoordinator(g, c.balancer, c.first) // survives its actor's restart: the ranks' seqs and tables must go on
	coordinator := ctx.SpawnPrefix(actor.PropsFromProducer(func() actor.Actor { return brain },
		inline, actor.WithSupervisor(brain.strategy)), "coordinator")
	c.handle = &Communicator{group: g, pid: ctx.Self(), coordinator: coordinator, balancer: c.balancer,
		slots: make(chan struct{}, n.config.MaxInFlight), gone: make(chan struct{})}
	c.left = make([]bool, g.size)
	c.left[g.rank] = true
	select {
	case c.started <- c.handle:
	default: // restarted: the communicator is broken, and its handle keeps the first coordinator
	}
}

// control sorts the messages of other ranks.
func (c *communicator) control(m *controlMessage) {
	n, g := c.group.node, c.group
	switch b := m.body.GetBody().(type) {
	case *messages.Control_Abort:
		n.breakGroup(g, g.abortCause(m.from, b.Abort), b.Abort.GetSeq(), false)
	case *messages.Control_Prepare, *messages.Control_Ready, *messages.Control_TooLate, *messages.Control_Commit:
		n.tell(c.handle.coordinator, m)
	case *messages.Control_Windows:
		n.tell(c.balancer, m)
	case *messages.Control_LeaveAck:
		c.acknowledged(m.from)
	default:
		n.log.Warn("unknown control message", "communicator", g.name, "from", g.nodes[m.from], "type", fmt.Sprintf("%T", b))
	}
}

// breakDown follows node.breakGroup: every operation has its error; the others are told once.
func (c *communicator) breakDown(m *breakCommunicator) {
	n, g := c.group.node, c.group
	if !errors.Is(m.cause, fault.ErrClosed) {
		n.log.Warn("communicator broken", "communicator", g.name, "seq", m.seq, "cause", m.cause)
	}
	if m.tell {
		g.controlAll(g.abortMessage(m.seq, m.cause))
	}
	n.tell(c.handle.coordinator, &breakCommunicator{cause: g.err()})
}

// leave says farewell; the answers arrive as LeaveAck.
func (c *communicator) leave(m *closeCommunicator) {
	g := c.group
	g.mu.Lock()
	last := g.numbered
	g.mu.Unlock()
	c.leaving = m.done
	for rank := range g.peers {
		if c.left[rank] {
			continue
		}
		if g.peers[rank].Lost() != nil {
			c.left[rank] = true
			continue
		}
		g.control(op.Rank(rank), &messages.Control{Body: &messages.Control_Leave{Leave: &messages.Leave{Last: last, Sent: g.transfers.leave(op.Rank(rank))}}})
	}
	c.check()
}

func (c *communicator) acknowledged(rank op.Rank) {
	if rank >= 0 && int(rank) < len(c.left) {
		c.left[rank] = true
		c.check()
	}
}

// check ends the farewell when everybody has answered.
func (c *communicator) check() {
	if c.leaving == nil {
		return
	}
	for _, ok := range c.left {
		if !ok {
			return
		}
	}
	c.leaving <- nil
	c.leaving = nil
}

// asLost finds the lost rank in a cause.
func asLost(err error) (lost *fault.RankLostError, ok bool) {
	ok = errors.As(err, &lost)
	return lost, ok
}

// depart: a rank closes the communicator after seq last. An operation above that can't finish.
func (g *group) depart(rank op.Rank, last uint64) {
	g.mu.Lock()
	if g.departed == nil {
		g.departed = make(map[op.Rank]uint64)
	}
	g.departed[rank] = last
	beyond := g.numbered > last
	g.mu.Unlock()
	if beyond {
		g.node.breakGroup(g, g.departure(rank, last), last+1, false)
	}
}

func (g *group) departure(rank op.Rank, last uint64) error {
	return &fault.AbortError{Rank: rank, Node: g.nodes[rank], Code: fault.CodeClosed,
		Reason: fmt.Sprintf("it closed the communicator after seq %d", last)}
}

// Name is what the members asked for.
func (c *Communicator) Name() string { return c.group.name }

// Rank is this node's number.
func (c *Communicator) Rank() int { return int(c.group.rank) }

// Size is the number of members.
func (c *Communicator) Size() int { return c.group.size }

// Nodes are the members' names by rank; the slice is shared.
func (c *Communicator) Nodes() []string { return c.group.nodes }

// Err is the cause that broke the communicator, or nil.
func (c *Communicator) Err() error {
	if c.closed.Load() {
		return c.closedError()
	}
	return c.group.err()
}

func (c *Communicator) closedError() error {
	return fmt.Errorf("communicator %q: %w", c.group.name, fault.ErrClosed)
}

// Table is the last committed table.
func (c *Communicator) Table() *table.Table { return c.group.table.Load() }

// SetTable publishes a table through the agreement of all ranks (DESIGN §4.1), and returns when it is
// committed. Only rank 0 decides.
func (c *Communicator) SetTable(ctx context.Context, entries []table.Entry) error {
	if c.closed.Load() {
		return c.closedError()
	}
	m := &proposeTable{entries: entries, done: make(chan error, 1)}
	c.group.node.tell(c.coordinator, m)
	select {
	case err := <-m.done:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Start begins an operation. It blocks while the communicator has its limit of
// operations in flight. A call that fails here has consumed its seq and breaks the
// communicator, except on a closed or broken one.
func (c *Communicator) Start(ctx context.Context, r *Request) (*Work, error) {
	if err := c.Err(); err != nil {
		return nil, err
	}
	select {
	case c.slots <- struct{}{}:
	default:
		select {
		case c.slots <- struct{}{}:
		case <-ctx.Done():
			return nil, c.giveUp(ctx, r)
		}
	}
	r.ready = make(chan struct{}, 1)
	r.work = &Work{group: c.group, done: make(chan struct{}), slot: c.slots}
	c.group.node.tell(c.coordinator, &startOperation{r})
	select {
	case <-r.ready:
	case <-ctx.Done():
		c.group.node.breakGroup(c.group, context.Cause(ctx), 0, true)
		<-r.ready
	}
	if r.err != nil {
		<-c.slots
		return nil, r.err
	}
	r.op.launch()
	return r.work, nil
}

// Watch ends the operation when the context ends, for a caller that may not Wait.
func (w *Work) Watch(ctx context.Context) {
	if ctx.Done() == nil {
		return
	}
	stop := context.AfterFunc(ctx, func() {
		w.group.node.breakGroup(w.group, context.Cause(ctx), w.seq, true)
	})
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stop = stop
	if w.ended {
		stop()
	}
}

// giveUp is a call that ended while it waited for its turn.
func (c *Communicator) giveUp(ctx context.Context, r *Request) error {
	cause := context.Cause(ctx)
	c.group.node.breakGroup(c.group, cause, 0, true)
	return fmt.Errorf("communicator %q: waiting for one of %d operations in flight to end: %w", c.group.name, cap(c.slots), cause)
}

// Dup makes a second communicator of the same members, which begins with the table in force here. It takes a seq of this one.
func (c *Communicator) Dup(ctx context.Context) (*Communicator, error) {
	n, g := c.group.node, c.group
	var child *group
	r := &Request{Kind: op.KindDup, entered: func(seq uint64, t *table.Table) { child = n.duplicate(g, seq, t) }}
	work, err := c.Start(ctx, r)
	if err == nil {
		err = work.Wait(ctx)
	}
	if err != nil {
		if child != nil {
			n.unregister(child)
		}
		return nil, err
	}
	handle := n.open(child)
	child.isFormed()
	return handle, nil
}

// childID is the wire id of the communicator that Dup makes of parent under seq.
func childID(parent, seq uint64) uint64 {
	h := fnv.New64a()
	var b [16]byte
	binary.LittleEndian.PutUint64(b[:], parent)
	binary.LittleEndian.PutUint64(b[8:], seq)
	h.Write(b[:])
	return max(h.Sum64(), 1)
}

// Close waits for the operations in flight, says farewell to the other ranks and forgets
// the communicator. A context that ends first ends what is in flight with an error.
func (c *Communicator) Close(ctx context.Context) error {
	if c.closed.Swap(true) {
		<-c.gone
		return nil
	}
	defer close(c.gone)
	n, g := c.group.node, c.group
	var err error
	select {
	case <-g.quiet():
	case <-ctx.Done():
		err = context.Cause(ctx)
		n.breakGroup(g, fmt.Errorf("%w: %w", fault.ErrClosed, err), 0, true)
		<-g.quiet()
	}
	g.keepTuning()
	done := make(chan error, 1)
	n.tell(c.pid, &closeCommunicator{done})
	select {
	case failed := <-done:
		err = cmp.Or(err, failed)
	case <-ctx.Done():
		err = fmt.Errorf("communicator %q: leaving without every member's acknowledgement: %w", g.name, context.Cause(ctx))
	}
	n.log.Debug("communicator closed", "name", g.name, "frames that nobody waited for", g.sunk.Load())
	n.breakGroup(g, c.closedError(), 0, false) // drops what the others sent for calls that will not be made
	n.unregister(g)
	// Poison, not stop: what the actor has yet to tell the other ranks ends their calls.
	if stopErr := n.system.Root.PoisonFuture(c.pid).Wait(); stopErr != nil {
		n.log.Warn("actor did not stop", "actor", c.pid.GetId(), "error", stopErr)
	}
	return err
}
