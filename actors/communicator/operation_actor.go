package communicator

import (
	"fmt"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/polyrail/polyrail/actors/balancing"
	"github.com/polyrail/polyrail/actors/engine"
	"github.com/polyrail/polyrail/collective/fault"
	"github.com/polyrail/polyrail/railactors"
	"github.com/polyrail/polyrail/railactors/supervise"
)

// operationActor is the lifecycle of one operation at a time: its timer, its workers, its
// end. The coordinator keeps a pool of them. Everything that must survive the
// actor's failure is in engine.Operation.
type operationActor struct {
	node     *Node
	spare    *spareActors // where it goes when its operation has ended
	balancer *actor.PID
	strategy *supervise.Strategy

	// Set once when the actor starts, before anybody knows it.
	pid     *actor.PID
	workers []*actor.PID // by planned rail

	timer *time.Timer    // nil: there is no timeout
	ended operationEnded // of one operation at a time
}

func (a *operationActor) Receive(ctx actor.Context) {
	a.strategy.Follow(ctx)
	defer supervise.Recover(ctx, a.node.Log)
	switch m := ctx.Message().(type) {
	case *actor.Started:
		a.start(ctx)
	case *beginOperation:
		a.begin(m)
	case *operationEnded:
		a.end(m)
	case *actor.Stopping:
		a.disarm()
	case *actor.Stopped, *actor.Restarting, *actor.Terminated:
	default:
		a.node.unknown(ctx)
	}
}

func (a *operationActor) start(ctx actor.Context) {
	a.pid = ctx.Self()
	a.workers = a.workers[:0]
	for range a.node.Engine.Rails {
		a.workers = append(a.workers, ctx.SpawnPrefix(actor.PropsFromProducer(func() actor.Actor {
			return &worker{node: a.node, balancer: a.balancer}
		}, actor.WithDispatcher(a.node.Inline)), "worker"))
	}
}

func (a *operationActor) begin(m *beginOperation) {
	a.timer = m.operation.ExpireAfter(m.timeout, a.node.OperationTimeout)
}

// Hand implements engine.Owner. If it fails, the frame has an owner who must hear of it, and so must
// the worker of the frame's rail, and with it the supervisor.
func (a *operationActor) Hand(f *railactors.Frame, to *railactors.Peer) {
	rail := f.Rail
	defer func() {
		if r := recover(); r != nil {
			if f.Owner != nil { // it has not been released on the way
				f.Owner.Released(f, fmt.Errorf("%w: worker of rail %d: %v", fault.ErrInternal, rail, r))
			}
			a.node.tell(a.workers[rail], handingFailed{r})
		}
	}()
	to.Send(f)
}

// Ended implements engine.Owner. The actor need not hear of an operation that has no timer and that
// nobody timed: most small ones.
func (a *operationActor) Ended(o *engine.Operation) {
	t := o.Timed()
	if t == nil && a.node.OperationTimeout == 0 {
		a.release(o)
		return
	}
	a.ended = operationEnded{o, t}
	a.node.tell(a.pid, &a.ended)
}

func (a *operationActor) end(m *operationEnded) {
	o, t := m.operation, m.timed
	*m = operationEnded{}
	a.disarm()
	if t != nil {
		for i := range t.Rails {
			a.node.tell(a.workers[t.Rails[i].Rail], (*balancing.RailFinished)(t))
		}
	}
	a.release(o)
}

// release is the last thing that an operation's actor does for it: both are free for another one.
func (a *operationActor) release(o *engine.Operation) {
	a.node.Engine.Recycle(o)
	a.spare.put(a)
}

func (a *operationActor) disarm() {
	if a.timer != nil {
		a.timer.Stop()
		a.timer = nil
	}
}
