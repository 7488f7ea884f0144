package communicator

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/polyrail/polyrail/actors/balancing"
	"github.com/polyrail/polyrail/actors/engine"
	"github.com/polyrail/polyrail/collective/balance"
	"github.com/polyrail/polyrail/collective/fault"
	"github.com/polyrail/polyrail/collective/op"
	"github.com/polyrail/polyrail/collective/table"
	"github.com/polyrail/polyrail/messages"
	"github.com/polyrail/polyrail/railactors/supervise"
)

// Communicator is the handle of a communicator: what a caller's goroutine holds.
type Communicator struct {
	Group       *Group
	PID         *actor.PID // of the communicator actor
	coordinator *actor.PID
	slots       chan struct{} // one taken for each operation in flight
	closed      chan struct{} // closed when Close has ended
}

// communicator is the actor that closes a communicator and supervises coordinator, balancer and
// operations. How it breaks is in ending.go, without the actor.
type communicator struct {
	group    *Group
	started  chan<- *Communicator
	handle   *Communicator
	balancer *actor.PID
	trees    *actor.PID // nil until there is something for it

	leaving chan error // of the Close that waits; nil otherwise
	unsent  error      // why a rank could not be told of it
}

func (c *communicator) Receive(ctx actor.Context) {
	defer c.survive(ctx)
	switch m := ctx.Message().(type) {
	case *actor.Started:
		c.start(ctx)
	case *Control:
		c.group.mail.Add(-1)
		c.control(ctx, m)
	case *closeCommunicator:
		c.leave(m)
	case MemberGone:
		c.acknowledged(op.Rank(m))
	case *Rendezvous, *TreeDown, tableCommitted:
		if c.trees != nil {
			c.group.node.tell(c.trees, m)
		}
	case balancing.RailChanged:
		c.group.node.tell(c.balancer, m)
	case *balancing.Propose: // the balancer's
		n := c.group.node
		n.tell(c.handle.coordinator, m)
	case *actor.Stopped:
		c.group.stopped()
	case *actor.Stopping, *actor.Restarting, *actor.Terminated:
	default:
		c.group.node.unknown(ctx)
	}
}

// survive keeps the actor after a panic, where a restart would end the coordinator, on which calls
// wait: its communicator breaks, and callers are told.
func (c *communicator) survive(ctx actor.Context) {
	r := recover()
	if r == nil {
		return
	}
	if _, starting := ctx.Message().(*actor.Started); starting {
		panic(r)
	}
	n := c.group.node
	supervise.Log(ctx.Self(), ctx.Message(), r, n.Log)
	cause := fmt.Errorf("%w: communicator: %v", fault.ErrInternal, r)
	c.group.Fail(cause, 0)
	if m, ok := ctx.Message().(*closeCommunicator); ok {
		select {
		case m.done <- cause:
		default: // it was answered before
		}
	}
}

func (c *communicator) start(ctx actor.Context) {
	n, g := c.group.node, c.group
	g.Table.CompareAndSwap(nil, c.group.First)
	inline := actor.WithDispatcher(n.Inline)
	c.balancer = g.Balance.Spawn(ctx, n.Inline)
	// It survives its actor's restart: the ranks' seqs and tables must go on.
	brain := newCoordinator(g, c.balancer, c.group.First)
	coordinator := ctx.SpawnPrefix(actor.PropsFromProducer(func() actor.Actor { return brain },
		inline, actor.WithSupervisor(brain.strategy)), "coordinator")
	c.handle = &Communicator{Group: g, PID: ctx.Self(), coordinator: coordinator,
		slots: make(chan struct{}, n.Engine.Config.MaxInFlight), closed: make(chan struct{})}
	if g.Rank == 0 && slices.ContainsFunc(n.SharpRails, func(name string) bool { return name != "" }) {
		c.spawnTrees(ctx)
	}
	select {
	case c.started <- c.handle:
	default: // restarted: the communicator is broken, and its handle keeps the first coordinator
	}
}

// spawnTrees starts the actor of the communicator's trees.
func (c *communicator) spawnTrees(ctx actor.Context) {
	g, coordinator := c.group, c.handle.coordinator
	c.trees = ctx.SpawnPrefix(actor.PropsFromProducer(func() actor.Actor { return newTrees(g, coordinator) },
		actor.WithDispatcher(g.node.Inline)), "trees")
}

// control sorts the messages of other ranks.
func (c *communicator) control(ctx actor.Context, m *Control) {
	n, g := c.group.node, c.group
	switch b := m.Body.GetBody().(type) {
	case *messages.Control_Prepare, *messages.Control_Ready, *messages.Control_TooLate,
		*messages.Control_Commit:
		n.tell(c.handle.coordinator, m)
	case *messages.Control_Windows:
		n.tell(c.balancer, &balancing.Timings{From: m.From, Windows: b.Windows})
	case *messages.Control_LeaveAck:
		c.acknowledged(m.From)
	case *messages.Control_TreeOpen, *messages.Control_TreeReady, *messages.Control_TreeLost,
		*messages.Control_TreeFenced, *messages.Control_TreeRepair:
		if c.trees == nil {
			c.spawnTrees(ctx)
		}
		n.tell(c.trees, m)
	case *messages.Control_Leave: // behind what it has sent before
		n.tell(c.handle.coordinator, m)
		if c.trees != nil {
			n.tell(c.trees, m)
		}
	default:
		n.Log.Warn("unknown control message", "communicator", g.Name, "from", g.Nodes[m.From],
			"type", fmt.Sprintf("%T", b))
	}
}

// leave says farewell; the answers arrive as LeaveAck.
func (c *communicator) leave(m *closeCommunicator) {
	defer close(m.said)
	g := c.group
	last := g.Seq()
	g.left.Store(true) // before it is looked who is connected: see Parting
	c.leaving = m.done
	var cause *messages.Abort // of a broken one: the farewell may be faster than any abort
	if seq, broken := g.Cause(); broken != nil {
		cause = g.abortMessage(seq, broken).GetAbort()
	}
	for rank := range g.Peers {
		if g.heard[rank].Load() {
			continue
		}
		if g.Peers[rank].Lost() != nil || !g.Peers[rank].Awake() {
			g.heard[rank].Store(true)
			continue
		}
		farewell := g.farewell(op.Rank(rank), last)
		farewell.GetLeave().Cause = cause
		if err := g.send(op.Rank(rank), farewell); err != nil { // that broke it, or the rank is lost
			g.heard[rank].Store(true)
			if g.Peers[rank].Lost() == nil {
				c.unsent = fmt.Errorf("communicator %q: leaving: %w", g.Name, err)
			}
		}
	}
	c.check()
}

func (c *communicator) acknowledged(rank op.Rank) {
	if g := c.group; rank >= 0 && int(rank) < g.Size {
		g.heard[rank].Store(true)
		c.check()
	}
}

// check ends the farewell when everybody has answered.
func (c *communicator) check() {
	if c.leaving == nil {
		return
	}
	for range c.group.unheard() {
		return
	}
	c.leaving <- c.unsent
	c.leaving = nil
}

// Name is what the members asked for.
func (c *Communicator) Name() string { return c.Group.Name }

// Rank is this node's number.
func (c *Communicator) Rank() int { return int(c.Group.Rank) }

// Size is the number of members.
func (c *Communicator) Size() int { return c.Group.Size }

// Nodes are the members' names by rank; the slice is shared.
func (c *Communicator) Nodes() []string { return c.Group.Nodes }

// Err is what closed or broke the communicator, or nil.
func (c *Communicator) Err() error { return c.Group.Usable() }

// Transfers are its messages between two ranks.
func (c *Communicator) Transfers() *engine.Transfers { return c.Group.Transfers }

// Table is the last committed table.
func (c *Communicator) Table() *table.Table { return c.Group.Table.Load() }

// SetTable publishes a table through the agreement of all ranks, and returns when it is
// committed. Only rank 0 decides.
func (c *Communicator) SetTable(ctx context.Context, entries []table.Entry) error {
	g := c.Group
	if err := c.admit(ctx); err != nil {
		return err
	}
	own := (&table.Table{Entries: entries}).Clone() // the caller may change them when this returns
	m := &balancing.Propose{Entries: own.Entries, Done: make(chan error, 1)}
	g.node.tell(c.coordinator, m)
	return g.Balance.Agreed(ctx, m.Done)
}

// Probe measures the rails of a new communicator, and returns when a table made of that is in
// force.
func (c *Communicator) Probe(ctx context.Context) error { return c.Group.Balance.Probe(ctx, c.Start) }

// Balance is what rank 0 knows of its rails and has decided for each size.
func (c *Communicator) Balance(ctx context.Context) (balance.Report, error) {
	return c.Group.Balance.Report(ctx)
}

// SaveTuning writes what rank 0 has learned to the tuning file now.
func (c *Communicator) SaveTuning(ctx context.Context) error { return c.Group.Balance.SaveTuning(ctx) }

// admit turns a call away that can't succeed, before it has any effect.
func (c *Communicator) admit(ctx context.Context) error {
	if err := c.Err(); err != nil {
		return err
	}
	return c.Group.Over(ctx)
}

// Seq is the number of the last operation that was called here.
func (c *Communicator) Seq() uint64 { return c.Group.Seq() }

// Close waits for the operations in flight, says farewell to the other ranks and forgets
// the communicator. A context that ends first ends what is in flight with an error.
func (c *Communicator) Close(ctx context.Context) error {
	n, g := c.Group.node, c.Group
	if !g.Shut() {
		if engine.Came(ctx, c.closed) {
			return nil
		}
		return fmt.Errorf("%w: by another call, which has not ended: %w", g.ClosedError(), context.Cause(ctx))
	}
	held, err := c.hush(ctx)
	g.Balance.KeepTuning()
	err = cmp.Or(err, c.sayFarewell(ctx))
	n.Log.Debug("communicator closed", "name", g.Name,
		"frames that nobody waited for", g.DroppedFrames.Load())
	if held {
		go func() { // ends with the user's operator
			<-g.Quiet()
			c.forget()
		}()
		return err
	}
	c.forget()
	return err
}

// hush waits for what is in flight. A context that ends first ends it; held says that memory of it is
// in use all the same.
func (c *Communicator) hush(ctx context.Context) (held bool, err error) {
	g := c.Group
	if g.Hushed(ctx) {
		return false, nil
	}
	cause := g.Awaiting(context.Cause(ctx))
	g.Fail(fmt.Errorf("%w: %w", fault.ErrClosed, cause), 0)
	grace, cancel := engine.Grace(ctx)
	defer cancel()
	if !g.Hushed(grace) {
		return true, g.HoldsMemory(cause)
	}
	return false, fmt.Errorf("communicator %q: closed with operations in flight: %w", g.Name, cause)
}

// sayFarewell tells the other ranks, and waits until they have acknowledged it.
func (c *Communicator) sayFarewell(ctx context.Context) error {
	n, g := c.Group.node, c.Group
	m := &closeCommunicator{said: make(chan struct{}), done: make(chan error, 1)}
	n.tell(c.PID, m)
	select { // also without time: others may wait for this rank, and it is about to be forgotten
	case <-m.said:
	case <-g.gone:
	}
	var cause error
	select {
	case err := <-m.done:
		return err
	case <-g.gone: // the node closes too, and has told the others
		cause = fmt.Errorf("communicator %q: %w", g.Name, cmp.Or(n.Engine.Closed(), fault.ErrClosed))
	case <-ctx.Done():
		cause = fmt.Errorf("communicator %q: leaving: %w", g.Name, context.Cause(ctx))
		if unheard := g.List("without the acknowledgement of", slices.Collect(g.unheard())); unheard != "" {
			cause = fmt.Errorf("%w, %s", cause, unheard)
		}
	}
	select {
	case err := <-m.done: // it has come, too
		return err
	default:
		return cause
	}
}

// forget ends what is left of a communicator that was shut.
func (c *Communicator) forget() {
	n, g := c.Group.node, c.Group
	// Drops what the others sent for calls that will not be made. Nobody is told: it has not broken.
	g.Break(g.ClosedError(), 0, func() {})
	n.Registry.Unregister(g)
	n.Stop(c.PID)
	close(c.closed)
}

// Abandon breaks a communicator that is to be shrunk, and waits until nothing refers to its
// callers' memory.
func (c *Communicator) Abandon(ctx context.Context) error {
	g := c.Group
	if err := g.ShutError(); err != nil {
		return err
	}
	if err := g.Over(ctx); err != nil {
		return err
	}
	g.Fail(fmt.Errorf("rank %d (node %q) shrinks it: %w", g.Rank, g.node.Name, fault.ErrClosed), g.Seq())
	if !g.Hushed(ctx) {
		return g.HoldsMemory(context.Cause(ctx))
	}
	return nil
}

// Discard closes a communicator that was shrunk. Close may have come first, and does the same.
func (c *Communicator) Discard() {
	if g := c.Group; g.Shut() {
		g.Balance.KeepTuning()
		c.forget()
	}
}
