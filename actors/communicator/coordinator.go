package communicator

import (
	"fmt"
	"sync"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/polyrail/polyrail/actors/balancing"
	"github.com/polyrail/polyrail/actors/engine"
	"github.com/polyrail/polyrail/collective/fault"
	"github.com/polyrail/polyrail/collective/table"
	"github.com/polyrail/polyrail/railactors/supervise"
)

// coordinator numbers the operations of a communicator, gives each its table, schedule and
// plan, and an operation actor. It decides nothing about data.
type coordinator struct {
	group    *Group
	balancer *actor.PID
	strategy *supervise.Strategy
	member   *table.Member
	leader   *table.Leader // rank 0 only
	waiting  []*balancing.Propose
	tickets  []uint64      // of waiting
	pinned   bool          // a caller has set a table
	entries  []table.Entry // that were proposed last, with …
	trees    []uint64      // … the groups of the rails; nil before the first

	held  []*startOperation // turned away by a Prepare; bounded by the operations in flight
	since time.Time         // of the first of them
	spare spareActors
}

// spareActors are the operation actors that have no operation. The coordinator takes them; each comes
// back by itself.
type spareActors struct {
	mu  sync.Mutex
	all []*operationActor
}

// take returns nil if there is none.
func (s *spareActors) take() *operationActor {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := len(s.all)
	if n == 0 {
		return nil
	}
	a := s.all[n-1]
	s.all = s.all[:n-1]
	return a
}

func (s *spareActors) put(a *operationActor) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = append(s.all, a)
}

func newCoordinator(g *Group, balancer *actor.PID, t *table.Table) *coordinator {
	c := &coordinator{
		group: g, balancer: balancer, strategy: g.node.Strategy(g), member: table.NewMember(t),
	}
	if g.Rank == 0 {
		c.leader = table.NewLeader(g.Size, c.member)
	}
	return c
}

func (c *coordinator) Receive(ctx actor.Context) {
	c.strategy.Follow(ctx)
	defer supervise.Recover(ctx, c.group.node.Log)
	switch m := ctx.Message().(type) {
	case *startOperation:
		c.start(ctx, m)
	case *Control:
		c.agree(ctx, m)
	case *balancing.Propose:
		c.propose(ctx, m)
	case proposeTree:
		c.proposeTree(ctx, m)
	case *actor.Started, *actor.Stopping, *actor.Stopped, *actor.Restarting, *actor.Terminated:
	default:
		c.group.node.unknown(ctx)
	}
}

// start numbers a call, or keeps it while a table is being agreed on.
func (c *coordinator) start(ctx actor.Context, m *startOperation) {
	if err := c.group.Usable(); err != nil {
		m.answer(nil, err)
		return
	}
	if len(c.held) > 0 {
		c.held = append(c.held, m)
		return
	}
	seq, t, ok := c.member.Begin()
	if !ok {
		c.since = time.Now()
		c.held = append(c.held, m)
		c.checkHeld()
		return
	}
	c.run(ctx, m, seq, t)
}

// checkHeld ends what is held if a rank has closed before it, since rank 0 may be the one: it commits
// no table then.
func (c *coordinator) checkHeld() {
	if len(c.held) == 0 {
		return
	}
	if err := c.group.Unreached(c.member.Next()); err != nil {
		c.group.Fail(err, c.member.Next())
	}
}

// resume starts what was held.
func (c *coordinator) resume(ctx actor.Context) {
	for len(c.held) > 0 {
		seq, t, ok := c.member.Begin()
		if !ok {
			return
		}
		if !c.since.IsZero() {
			c.group.Balance.Held.Add(int64(time.Since(c.since)))
			c.since = time.Time{}
		}
		m := c.held[0]
		c.held = c.held[1:]
		c.run(ctx, m, seq, t)
	}
}

// run opens the operation and answers its caller, who launches it. If the caller waits no longer,
// the communicator is broken or closed, and needs no more seqs.
func (c *coordinator) run(ctx actor.Context, m *startOperation, seq uint64, t *table.Table) {
	if !m.taken.CompareAndSwap(false, true) {
		return
	}
	defer func() { // its caller must not wait for an answer that is lost
		if p := recover(); p != nil {
			m.answer(nil, fmt.Errorf("%w: coordinator: %v", fault.ErrInternal, p))
			panic(p)
		}
	}()
	o, err := c.group.Number(seq)
	if err != nil {
		if c.group.ShutError() == nil {
			c.group.Fail(err, seq)
			err = c.group.Err()
		}
		m.answer(nil, err)
		return
	}
	if m.entered != nil {
		m.entered(seq, t)
	}
	a := c.actor(ctx)
	c.configure(ctx, o, m.work, t, a)
	if limit := m.timeout(c.group.node.OperationTimeout); limit > 0 {
		c.group.node.tell(a.pid, &beginOperation{o, limit})
	}
	m.answer(o, nil)
}

// configure works the operation out. If that panics the operation ends with it, when its caller
// launches it: a number that is never launched would hold up Close.
func (c *coordinator) configure(ctx actor.Context, o *engine.Operation, w *engine.Work, t *table.Table,
	a *operationActor) {
	defer func() {
		if r := recover(); r != nil {
			supervise.Log(ctx.Self(), ctx.Message(), r, c.group.node.Log)
			o.Doom(fmt.Errorf("%w: coordinator: %v", fault.ErrInternal, r))
		}
	}()
	o.Configure(w, t, a)
}

// actor takes an operation actor from the pool, or makes one. They are as many as
// operations were ever in flight at once.
func (c *coordinator) actor(ctx actor.Context) *operationActor {
	if a := c.spare.take(); a != nil {
		return a
	}
	a := &operationActor{node: c.group.node, spare: &c.spare, balancer: c.balancer,
		strategy: c.group.node.Strategy(c.group)}
	ctx.SpawnPrefix(actor.PropsFromProducer(func() actor.Actor { return a },
		actor.WithDispatcher(c.group.node.Inline), actor.WithSupervisor(a.strategy)), "operation")
	return a
}

// timeout is what is left of the limit after the time that the call was held.
func (m *startOperation) timeout(limit time.Duration) time.Duration {
	if limit == 0 {
		return 0
	}
	return max(time.Nanosecond, limit-time.Since(m.called))
}

// answer tells the caller what its call became.
func (m *startOperation) answer(o *engine.Operation, err error) {
	m.operation, m.err = o, err
	select {
	case m.ready <- struct{}{}:
	default: // answered already; only a panic on the way comes here
	}
}
