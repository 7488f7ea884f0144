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

// office is the parent of the peer actors.
type office struct {
	fabric   *Fabric
	strategy *supervise.Strategy
	peers    map[*Peer]*actor.PID
}

// Receive implements actor.Actor.
func (o *office) Receive(ctx actor.Context) {
	defer supervise.Recover(ctx, o.fabric.log)
	switch m := ctx.Message().(type) {
	case *actor.Started:
		o.peers = make(map[*Peer]*actor.PID)
		for _, p := range o.fabric.snapshot() { // after a restart
			o.spawn(ctx, p)
		}
	case *open:
		o.spawn(ctx, m.peer)
	case *shut:
		if pid := o.peers[m.peer]; pid != nil {
			delete(o.peers, m.peer)
			o.strategy.Stop(ctx, pid)
		}
	case *actor.Terminated:
		maps.DeleteFunc(o.peers, func(_ *Peer, pid *actor.PID) bool { return pid.Equal(m.Who) })
		o.fabric.children.Done()
	default:
		o.fabric.unknown(ctx)
	}
}

func (o *office) spawn(ctx actor.Context, p *Peer) {
	if o.peers[p] != nil || p.Lost() != nil || !o.fabric.adopt() {
		return
	}
	props := actor.PropsFromProducer(func() actor.Actor { return &peerActor{peer: p} }, actor.WithDispatcher(dispatch.Synchronized()))
	o.peers[p] = ctx.SpawnPrefix(props, fmt.Sprintf("peer-%s-%d-", p.node, p.session))
}

// peerActor is the clock of a Peer, and opens and shuts its pairs. What a peer knows is in Peer.
type peerActor struct {
	peer  *Peer
	epoch int
	timer *time.Timer
}

// Receive implements actor.Actor.
func (a *peerActor) Receive(ctx actor.Context) {
	f := a.peer.fabric
	defer supervise.Recover(ctx, f.log)
	switch m := ctx.Message().(type) {
	case *actor.Started:
		a.epoch = int(f.epochs.Add(1))
		for _, r := range f.rails {
			ctx.Send(r.pid, &open{peer: a.peer})
		}
		a.schedule(ctx)
	case *tick:
		if m.epoch == a.epoch {
			a.peer.tick()
			a.schedule(ctx)
		}
	case *actor.Stopping, *actor.Restarting:
		a.stop()
	default:
		f.unknown(ctx)
	}
}

func (a *peerActor) schedule(ctx actor.Context) {
	self, epoch, f := ctx.Self(), a.epoch, a.peer.fabric
	a.timer = time.AfterFunc(f.cfg.RankTimeout/peer.TicksPerTimeout, func() { f.tell(self, &tick{epoch: epoch}) })
}

func (a *peerActor) stop() {
	a.epoch = 0
	if a.timer != nil {
		a.timer.Stop()
	}
}
