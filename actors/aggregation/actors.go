package aggregation

import (
	"fmt"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/polyrail/polyrail/collective/fault"
	"github.com/polyrail/polyrail/railactors/supervise"
)

// The messages of this package's actors. None carries payload.
type (
	// begin: a group was made. Server → supervisor, which starts the group's actor.
	begin struct{ group *group }
	// connected: the wait for a group's members has ended. Its goroutine → group actor.
	connected struct {
		mayBeLate
		err error
	}
	// over: the group has ended. Whichever goroutine ended it → group actor.
	over struct{ mayBeLate }
)

// mayBeLate marks messages whose receiver may have stopped in the meantime: as dead letters they
// are nobody's fault.
type mayBeLate struct{}

// IgnoreDeadLetterLogging implements actor.IgnoreDeadLetterLogging.
func (mayBeLate) IgnoreDeadLetterLogging() {}

// tell sends a message from outside any actor.
func (s *Server) tell(pid *actor.PID, message any) { s.system.Root.Send(pid, message) }

// supervisor is the parent of the groups' actors. What must survive it is in Server.
type supervisor struct{ server *Server }

// supervisorProps are those of the supervisor. A group's actor that panics is stopped, which ends
// its group: the message that it was at is lost.
func (s *Server) supervisorProps() *actor.Props {
	cfg := supervise.DefaultConfig()
	cfg.Decide = func(any) actor.Directive { return actor.StopDirective }
	cfg.Report = func(d supervise.Decision) { s.log.Error("actor failed", "decision", d.String()) }
	return actor.PropsFromProducer(func() actor.Actor { return &supervisor{s} }, supervise.New(cfg).Props())
}

// Receive implements actor.Actor.
func (a *supervisor) Receive(ctx actor.Context) {
	defer supervise.Recover(ctx, a.server.log)
	switch m := ctx.Message().(type) {
	case *begin:
		if a.server.adopt() {
			ctx.SpawnPrefix(actor.PropsFromProducer(func() actor.Actor { return &groupActor{m.group} }), "group")
		}
	case *actor.Terminated:
		a.server.actors.Done()
	case *actor.Started, *actor.Stopping, *actor.Stopped, *actor.Restarting:
	default:
		supervise.Unknown(ctx, a.server.log)
	}
}

// adopt counts a group's actor that is about to be spawned: Close waits for its end. False if Close
// came first, which ends the group itself.
func (s *Server) adopt() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.actors.Add(1)
	return true
}

// groupActor is the lifecycle of one group: its wait for connections, and its end.
type groupActor struct{ group *group }

// Receive implements actor.Actor.
func (a *groupActor) Receive(ctx actor.Context) {
	g := a.group
	defer supervise.Recover(ctx, g.server.log)
	switch m := ctx.Message().(type) {
	case *actor.Started:
		a.start(ctx)
	case *connected:
		if m.err != nil {
			g.end(fmt.Errorf("not all members are connected: %w", m.err))
		}
	case over:
		ctx.Stop(ctx.Self())
	case *actor.Stopping:
		g.end(fmt.Errorf("%w: its actor has stopped", fault.ErrInternal))
	case *actor.Stopped, *actor.Restarting, *actor.Terminated:
	default:
		supervise.Unknown(ctx, g.server.log)
	}
}

func (a *groupActor) start(ctx actor.Context) {
	g, self := a.group, ctx.Self()
	g.pid.Store(self)
	if g.ended() { // whoever ended it may not have seen its actor
		ctx.Stop(self)
		return
	}
	go func() { g.server.tell(self, &connected{err: g.awaitMembers()}) }() // ends with the group
}
