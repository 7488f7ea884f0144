package actors

import (
	"fmt"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/polyrail/polyrail/collective/fault"
	"github.com/polyrail/polyrail/collective/table"
	"github.com/polyrail/polyrail/railactors/supervise"
)

// coordinator numbers the operations of a communicator, gives each its table, schedule and
// plan, and an operation actor. It decides nothing about data.
type coordinator struct {
	group    *group
	balancer *actor.PID
	strategy *supervise.Strategy
	member   *table.Member
	leader   *table.Leader // rank 0 only
	waiting  []*proposeTable
	tickets  []uint64 // of waiting
	pinned   bool     // a caller has set a table

	held    []*Request // turned away by a Prepare; bounded by the operations in flight
	since   time.Time  // of the first of them
	spare   []*operationActor
	cuts    cuts
	unheard int // operations in which a rank may only send
}

func newCoordinator(g *group, balancer *actor.PID, t *table.Table) *coordinator {
	c := &coordinator{
		group: g, balancer: balancer, strategy: g.node.strategy(g), member: table.NewMember(t),
		cuts: newCuts(),
	}
	if g.rank == 0 {
		c.leader = table.NewLeader(g.size, c.member)
	}
	return c
}

func (c *coordinator) Receive(ctx actor.Context) {
	c.strategy.Follow(ctx)
	defer supervise.Recover(ctx, c.group.node.log)
	switch m := ctx.Message().(type) {
	case *startOperation:
		c.start(ctx, m.request)
	case *operationEnded:
		c.ended(m)
	case *controlMessage:
		c.agree(ctx, m)
	case *proposeTable:
		c.propose(ctx, m)
	case *actor.Started, *actor.Stopping, *actor.Stopped, *actor.Restarting, *actor.Terminated:
	default:
		c.group.node.unknown(ctx)
	}
}

// start numbers a call, or keeps it while a table is being agreed on.
func (c *coordinator) start(ctx actor.Context, r *Request) {
	if err := c.group.usable(); err != nil {
		r.answer(nil, err)
		return
	}
	if len(c.held) > 0 {
		c.held = append(c.held, r)
		return
	}
	seq, t, ok := c.member.Begin()
	if !ok {
		c.since = time.Now()
		c.held = append(c.held, r)
		return
	}
	c.run(ctx, r, seq, t)
}

// resume starts what was held.
func (c *coordinator) resume(ctx actor.Context) {
	for len(c.held) > 0 {
		seq, t, ok := c.member.Begin()
		if !ok {
			return
		}
		if !c.since.IsZero() {
			c.group.held.Add(int64(time.Since(c.since)))
			c.since = time.Time{}
		}
		r := c.held[0]
		c.held = c.held[1:]
		c.run(ctx, r, seq, t)
	}
}

// run opens the operation and answers its caller, who launches it, unless he waits no longer: then the
// communicator is broken or closed, and needs no more seqs.
func (c *coordinator) run(ctx actor.Context, r *Request, seq uint64, t *table.Table) {
	if !r.taken.CompareAndSwap(false, true) {
		return
	}
	defer func() { // its caller must not wait for an answer that is lost
		if p := recover(); p != nil {
			r.answer(nil, fmt.Errorf("%w: coordinator: %v", fault.ErrInternal, p))
			panic(p)
		}
	}()
	o, err := c.group.number(seq)
	if err != nil {
		if c.group.shutError() == nil {
			c.group.node.breakGroup(c.group, err, seq, true)
		}
		r.answer(nil, err)
		return
	}
	if r.entered != nil {
		r.entered(seq, t)
	}
	o.request, o.work = r, r.work
	r.work.seq = seq
	err = c.configure(o, r, t)
	o.actor = c.actor(ctx)
	o.mu.Lock()
	if o.cause == nil {
		o.cause = err // launch ends it, and breaks the communicator
	}
	o.mu.Unlock()
	c.group.node.tell(o.actor.pid, &beginOperation{o, r.timeout(c.group.node.config.OperationTimeout)})
	r.answer(o, nil)
}

// actor takes an operation actor from the pool, or makes one. They are as many as
// operations were ever in flight at once.
func (c *coordinator) actor(ctx actor.Context) *operationActor {
	if n := len(c.spare); n > 0 {
		a := c.spare[n-1]
		c.spare = c.spare[:n-1]
		return a
	}
	a := &operationActor{node: c.group.node, coordinator: ctx.Self(), balancer: c.balancer, strategy: c.group.node.strategy(c.group)}
	ctx.SpawnPrefix(actor.PropsFromProducer(func() actor.Actor { return a },
		actor.WithDispatcher(c.group.node.inline), actor.WithSupervisor(a.strategy)), "operation")
	return a
}

func (c *coordinator) ended(m *operationEnded) {
	c.spare = append(c.spare, m.actor)
	c.group.node.recycle(m.operation)
}

// timeout is what is left of the limit after the time that the call was held.
func (r *Request) timeout(limit time.Duration) time.Duration {
	if limit == 0 {
		return 0
	}
	return max(time.Nanosecond, limit-time.Since(r.called))
}

// answer tells the caller what its call became.
func (r *Request) answer(o *operation, err error) {
	r.op, r.err = o, err
	select {
	case r.ready <- struct{}{}:
	default: // answered already; only a panic on the way comes here
	}
}
