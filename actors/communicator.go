package actors

import (
	"cmp"
	"context"
	"fmt"

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
	closed      chan struct{} // closed when Close has ended
}

// communicator is the actor that closes a communicator and supervises coordinator, balancer and operations. How it
// breaks is in ending.go, without the actor.
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
	case *closeCommunicator:
		c.leave(m)
	case memberLost:
		c.acknowledged(op.Rank(m))
	case railChanged:
		c.group.node.tell(c.balancer, m)
	case *proposeTable: // the balancer's
		n := c.group.node
		n.tell(c.handle.coordinator, m)
	case *actor.Stopped:
		c.group.stopped()
	case *actor.Stopping, *actor.Restarting, *actor.Terminated:
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
		slots: make(chan struct{}, n.config.MaxInFlight), closed: make(chan struct{})}
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

// leave says farewell; the answers arrive as LeaveAck.
func (c *communicator) leave(m *closeCommunicator) {
	g := c.group
	g.mu.Lock()
	last := g.numbered
	g.mu.Unlock()
	c.leaving = m.done
	g.tellCause() // if another rank broke it: the farewell may be faster than that rank's abort
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

// Name is what the members asked for.
func (c *Communicator) Name() string { return c.group.name }

// Rank is this node's number.
func (c *Communicator) Rank() int { return int(c.group.rank) }

// Size is the number of members.
func (c *Communicator) Size() int { return c.group.size }

// Nodes are the members' names by rank; the slice is shared.
func (c *Communicator) Nodes() []string { return c.group.nodes }

// Err is what closed or broke the communicator, or nil.
func (c *Communicator) Err() error { return c.group.usable() }

// Table is the last committed table.
func (c *Communicator) Table() *table.Table { return c.group.table.Load() }

// SetTable publishes a table through the agreement of all ranks, and returns when it is
// committed. Only rank 0 decides.
func (c *Communicator) SetTable(ctx context.Context, entries []table.Entry) error {
	g := c.group
	if err := c.admit(ctx); err != nil {
		return err
	}
	m := &proposeTable{entries: entries, done: make(chan error, 1)}
	g.node.tell(c.coordinator, m)
	return c.agreed(ctx, m.done)
}

// agreed waits for the answer to a proposal.
func (c *Communicator) agreed(ctx context.Context, done <-chan error) error {
	select {
	case err := <-done:
		return err
	case <-c.group.closing:
	case <-c.group.ended:
	case <-ctx.Done():
		return fmt.Errorf("communicator %q: while the ranks agree on a table: %w", c.group.name, context.Cause(ctx))
	}
	return c.Err()
}

// admit turns a call away that can't succeed, before it has any effect.
func (c *Communicator) admit(ctx context.Context) error {
	if err := c.Err(); err != nil {
		return err
	}
	return c.group.over(ctx)
}

// over is the error of a call whose context was over before it, or nil.
func (g *group) over(ctx context.Context) error {
	if ctx.Err() == nil {
		return nil
	}
	return fmt.Errorf("communicator %q: %w", g.name, context.Cause(ctx))
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

// Close waits for the operations in flight, says farewell to the other ranks and forgets
// the communicator. A context that ends first ends what is in flight with an error.
func (c *Communicator) Close(ctx context.Context) error {
	n, g := c.group.node, c.group
	if !g.shut() {
		select {
		case <-c.closed:
			return nil
		case <-ctx.Done():
			return fmt.Errorf("%w: by another call, which has not ended: %w", g.closedError(), context.Cause(ctx))
		}
	}
	defer close(c.closed)
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
	case <-g.gone: // the node closes too, and has told the others
		err = cmp.Or(err, fmt.Errorf("communicator %q: %w", g.name, n.closedError()))
	case <-ctx.Done():
		err = fmt.Errorf("communicator %q: leaving without every member's acknowledgement: %w", g.name, context.Cause(ctx))
	}
	n.log.Debug("communicator closed", "name", g.name, "frames that nobody waited for", g.sunk.Load())
	c.forget()
	return err
}

// forget ends what is left of a communicator that was shut.
func (c *Communicator) forget() {
	n, g := c.group.node, c.group
	n.breakGroup(g, g.closedError(), 0, false) // drops what the others sent for calls that will not be made
	n.unregister(g)
	n.stop(c.pid)
}
