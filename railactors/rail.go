package railactors

import (
	"log/slog"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/polyrail/polyrail/railactors/affinity"
	"github.com/polyrail/polyrail/railactors/supervise"
)

// railSupervisor is the parent of the rail actors. The devices and their listeners are the
// fabric's: they survive any restart below it.
type railSupervisor struct {
	fabric   *Fabric
	strategy *supervise.Strategy
	begun    func() // may be called again, by the one that comes after a panic
}

// Receive implements actor.Actor.
func (s *railSupervisor) Receive(ctx actor.Context) {
	defer supervise.Recover(ctx, s.fabric.log)
	switch ctx.Message().(type) {
	case *actor.Started:
		for i, r := range s.fabric.rails {
			r.pid.Store(ctx.SpawnPrefix(actor.PropsFromProducer(func() actor.Actor {
				return newRailActor(s.fabric, i, s.strategy)
			}, actor.WithDispatcher(s.fabric.warm), s.strategy.Props()), "rail-"+r.name+"-"))
		}
		s.begun()
	case *actor.Stopping:
		s.fabric.givenUp(ctx.Self())
	default:
		s.fabric.unknown(ctx)
	}
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
