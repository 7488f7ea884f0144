package railactors

import (
	"fmt"
	"maps"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/polyrail/polyrail/collective/peer"
	"github.com/polyrail/polyrail/railactors/dispatch"
	"github.com/polyrail/polyrail/railactors/supervise"
)

// parent is an actor with a child for each peer: the office, whose children are the peer actors,
// and each rail's actor, whose children are the rail's pairs.
type parent struct {
	fabric   *Fabric
	strategy *supervise.Strategy
	kind     string                    // what the children's names begin with
	child    func(p *Peer) actor.Actor // a new one
	of       func(p *Peer) bool        // there is to be one for this peer
	pids     map[*Peer]*actor.PID      // of the children that aren't to stop; nil when this actor stops
}

// office is the parent of the peer actors, and their clock: one timer for all of them.
type office struct {
	parent
	epoch int
	timer *time.Timer
}

func newOffice(f *Fabric, s *supervise.Strategy) *office {
	return &office{parent: parent{fabric: f, strategy: s, kind: "peer", of: func(*Peer) bool { return true }, child: func(p *Peer) actor.Actor { return &peerActor{peer: p} }}}
}

// Receive implements actor.Actor.
func (a *office) Receive(ctx actor.Context) {
	defer supervise.Recover(ctx, a.fabric.log)
	switch m := ctx.Message().(type) {
	case *tick:
		if m.epoch == a.epoch {
			for _, pid := range a.pids {
				ctx.Send(pid, m)
			}
			a.schedule(ctx)
		}
		return
	case *actor.Started:
		a.epoch = int(a.fabric.epochs.Add(1))
		a.schedule(ctx)
	case *actor.Stopping, *actor.Restarting:
		a.epoch = 0
		if a.timer != nil {
			a.timer.Stop()
		}
		if _, restarts := m.(*actor.Restarting); !restarts {
			a.fabric.givenUp(ctx.Self())
		}
	}
	a.receive(ctx)
}

func (a *office) schedule(ctx actor.Context) {
	self, epoch, f := ctx.Self(), a.epoch, a.fabric
	a.timer = time.AfterFunc(f.cfg.RankTimeout/peer.TicksPerTimeout, func() { f.tell(self, &tick{epoch: epoch}) })
}

func newRailActor(f *Fabric, rail int, s *supervise.Strategy) *parent {
	return &parent{fabric: f, strategy: s, kind: "pair", of: func(p *Peer) bool { return p.reached().Has(rail) }, child: func(p *Peer) actor.Actor { return &pairActor{peer: p, rail: rail} }}
}

// Receive implements actor.Actor.
func (a *parent) Receive(ctx actor.Context) {
	defer supervise.Recover(ctx, a.fabric.log)
	a.receive(ctx)
}

// receive opens and shuts the children.
func (a *parent) receive(ctx actor.Context) {
	switch m := ctx.Message().(type) {
	case *actor.Started:
		a.pids = make(map[*Peer]*actor.PID)
		for _, p := range a.fabric.snapshot() { // after a restart
			if p.Awake() {
				a.spawn(ctx, p)
			}
		}
	case *open:
		a.spawn(ctx, m.peer)
	case *shut:
		if pid := a.pids[m.peer]; pid != nil {
			delete(a.pids, m.peer)
			a.strategy.Stop(ctx, pid)
		}
	case *actor.Stopping, *actor.Restarting:
		a.pids = nil // a child that came now would never be stopped, and its parent wait for it
	case *actor.Terminated:
		maps.DeleteFunc(a.pids, func(_ *Peer, pid *actor.PID) bool { return pid.Equal(m.Who) })
		a.fabric.children.Done()
	default:
		a.fabric.unknown(ctx)
	}
}

func (a *parent) spawn(ctx actor.Context, p *Peer) {
	if a.pids == nil || a.pids[p] != nil || p.Lost() != nil || !a.of(p) || !a.fabric.adopt() {
		return
	}
	props := actor.PropsFromProducer(func() actor.Actor { return a.child(p) }, actor.WithDispatcher(dispatch.Synchronized()))
	a.pids[p] = ctx.SpawnPrefix(props, fmt.Sprintf("%s-%s-%d-", a.kind, p.node, p.session))
}

// peerActor looks at the liveness of a Peer, and opens and shuts its pairs. What a peer knows is in
// Peer.
type peerActor struct{ peer *Peer }

// Receive implements actor.Actor.
func (a *peerActor) Receive(ctx actor.Context) {
	f := a.peer.fabric
	defer supervise.Recover(ctx, f.log)
	switch ctx.Message().(type) {
	case *actor.Started:
		for r := range a.peer.reached().All() {
			ctx.Send(f.rails[r].pid.Load(), &open{peer: a.peer})
		}
	case *tick:
		a.peer.tick()
	default:
		f.unknown(ctx)
	}
}
