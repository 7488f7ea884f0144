package railactors

import (
	"fmt"
	"log/slog"
	"maps"
	"sync"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/polyrail/polyrail/railactors/affinity"
	"github.com/polyrail/polyrail/railactors/dispatch"
	"github.com/polyrail/polyrail/railactors/supervise"
)

// railSupervisor is the parent of the rail actors. The devices and their listeners are the
// fabric's: they survive any restart below it.
type railSupervisor struct {
	fabric   *Fabric
	strategy *supervise.Strategy
	started  chan struct{}
	once     sync.Once
}

// Receive implements actor.Actor.
func (s *railSupervisor) Receive(ctx actor.Context) {
	defer supervise.Recover(ctx, s.fabric.log)
	switch ctx.Message().(type) {
	case *actor.Started:
		for i, r := range s.fabric.rails {
			r.pid = ctx.SpawnPrefix(actor.PropsFromProducer(func() actor.Actor {
				return &railActor{fabric: s.fabric, rail: i, strategy: s.strategy}
			}, actor.WithDispatcher(s.fabric.warm), s.strategy.Props()), "rail-"+r.name+"-")
		}
		s.once.Do(func() { close(s.started) })
	default:
		s.fabric.unknown(ctx)
	}
}

// railActor is the parent of one rail's pairs, one for each peer.
type railActor struct {
	fabric   *Fabric
	rail     int
	strategy *supervise.Strategy
	pairs    map[*Peer]*actor.PID
}

// Receive implements actor.Actor.
func (a *railActor) Receive(ctx actor.Context) {
	defer supervise.Recover(ctx, a.fabric.log)
	switch m := ctx.Message().(type) {
	case *actor.Started:
		a.pairs = make(map[*Peer]*actor.PID)
		for _, p := range a.fabric.snapshot() { // after a restart
			a.spawn(ctx, p)
		}
	case *open:
		a.spawn(ctx, m.peer)
	case *shut:
		if pid := a.pairs[m.peer]; pid != nil {
			delete(a.pairs, m.peer)
			a.strategy.Stop(ctx, pid)
		}
	case *actor.Terminated:
		maps.DeleteFunc(a.pairs, func(_ *Peer, pid *actor.PID) bool { return pid.Equal(m.Who) })
		a.fabric.children.Done()
	default:
		a.fabric.unknown(ctx)
	}
}

func (a *railActor) spawn(ctx actor.Context, p *Peer) {
	if a.pairs[p] != nil || p.Lost() != nil || !a.fabric.adopt() {
		return
	}
	props := actor.PropsFromProducer(func() actor.Actor { return &pairActor{peer: p, rail: a.rail} },
		actor.WithDispatcher(dispatch.Synchronized()))
	a.pairs[p] = ctx.SpawnPrefix(props, fmt.Sprintf("pair-%s-%d-", p.node, p.session))
}

// settle binds the calling goroutine, a reader or writer of the rail's, to the rail's cores (Nezha
// §V-C3) until leave is called. Meanwhile the goroutine has its thread to itself, since a thread whose
// cores are restricted must not serve others. That costs: it is woken by way of another thread.
func (r *rail) settle(log *slog.Logger) (leave func()) {
	if len(r.cpus) == 0 {
		return func() {}
	}
	release, err := affinity.Bind(r.cpus)
	if err != nil { // the cores were taken from the process after its start
		log.Warn("rail runs on any core", "rail", r.name, "error", err)
	}
	return release
}
