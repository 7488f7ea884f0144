package railactors

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/polyrail/polyrail/collective/fault"
	"github.com/polyrail/polyrail/collective/peer"
	"github.com/polyrail/polyrail/railactors/dispatch"
	"github.com/polyrail/polyrail/railactors/supervise"
)

// The messages of this package's actors. None carries payload.
type (
	// open: there is a new peer. Connect → office, and peer actor → rail actors.
	open struct {
		mayBeLate
		peer *Peer
	}
	// shut: the peer has ended. Peer → office and rail actors.
	shut struct {
		mayBeLate
		peer *Peer
	}
	// connectionUp: a connection was put into use. Handshake's goroutine → pair actor.
	connectionUp struct {
		mayBeLate
		conn *connection
	}
	// connectionLost: it failed. Whichever goroutine found out → pair actor.
	connectionLost struct {
		mayBeLate
		conn *connection
	}
	// dialEnded: what an attempt to connect came to. Its goroutine → pair actor.
	dialEnded struct {
		mayBeLate
		epoch int
		err   error
	}
	// railBack: the rail may work again: the system says that its link is up (fresh), or the other
	// node, which doesn't dial, got through. Watcher, and handshake's goroutine → pair actor.
	railBack struct {
		mayBeLate
		fresh bool
	}
	// retry: it is time for the next attempt. Timer → pair actor.
	retry struct {
		mayBeLate
		epoch int
	}
	// tick: look at the peers' liveness. Timer → office → peer actors.
	tick struct {
		mayBeLate
		epoch int
	}
)

// mayBeLate marks messages whose receiver may have stopped in the meantime: as dead letters
// they are nobody's fault.
type mayBeLate struct{}

// IgnoreDeadLetterLogging implements actor.IgnoreDeadLetterLogging.
func (mayBeLate) IgnoreDeadLetterLogging() {}

// startActors starts the actor tree and returns when the rail actors can be sent to:
//
//	rails-NODE (rail supervisor) ─ rail ─ pair …
//	peers-NODE (office) ─ peer …
func (f *Fabric) startActors() error {
	f.warm = dispatch.NewWarm(4)
	strategy := supervise.New(supervise.DefaultConfig())
	spawn := func(name string, producer actor.Producer) (*actor.PID, error) {
		pid, err := f.sys.Root.SpawnNamed(actor.PropsFromProducer(producer, actor.WithDispatcher(f.warm), strategy.Props()), name)
		if err != nil {
			return nil, fmt.Errorf("actor %q: %w", name, err)
		}
		return pid, nil
	}
	started := make(chan struct{})
	begun := sync.OnceFunc(func() { close(started) })
	var err error
	f.root, err = spawn("rails-"+f.cfg.Node, func() actor.Actor {
		return &railSupervisor{fabric: f, strategy: strategy, begun: begun}
	})
	if err != nil {
		f.warm.Close()
		return err
	}
	<-started
	f.office, err = spawn("peers-"+f.cfg.Node, func() actor.Actor { return newOffice(f, strategy) })
	if err != nil {
		err = errors.Join(err, f.sys.Root.StopFuture(f.root).Wait())
		f.warm.Close()
	}
	return err
}

// givenUp: an actor stops that all peers need. Unless Close stops it, it has panicked too often.
// Without it nobody is connected or watched: what waits for a peer ends, and says why.
func (f *Fabric) givenUp(pid *actor.PID) {
	f.mu.Lock()
	if f.closed || f.failed != nil {
		f.mu.Unlock()
		return
	}
	f.failed = fmt.Errorf("%w: actor %q of this node panicked too often and was stopped, see its log",
		fault.ErrInternal, pid.Id)
	f.mu.Unlock()
	f.log.Error("this node connects to no other one any more", "error", f.failed)
	for _, p := range f.snapshot() {
		p.lose(f.failed.Error())
	}
}

// Failed is why the fabric connects nobody any more, or nil.
func (f *Fabric) Failed() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.failed
}

// stopActors ends the tree. The peers come first: they tell the rails.
func (f *Fabric) stopActors() {
	for _, pid := range []*actor.PID{f.office, f.root} {
		if err := f.sys.Root.StopFuture(pid).Wait(); err != nil {
			f.log.Warn("actor didn't stop", "actor", pid.Id, "error", err)
		}
	}
}

// tell sends to an actor of the fabric's.
func (f *Fabric) tell(pid *actor.PID, message any) { f.sys.Root.Send(pid, message) }

// backoff is the pause before the k-th attempt in a row, less a random part, so that
// many nodes don't come at once.
func backoff(k int) time.Duration {
	d := peer.Backoff(k, minBackoff, maxBackoff)
	return d - rand.N(d/2+1)
}

// unknown reports a message that an actor doesn't know.
func (f *Fabric) unknown(ctx actor.Context) {
	supervise.MayExplode(ctx)
	switch ctx.Message().(type) {
	case *actor.Started, *actor.Stopping, *actor.Stopped, *actor.Restarting, *actor.Terminated:
	default:
		f.log.Error("unknown message", "actor", ctx.Self().Id, "type", fmt.Sprintf("%T", ctx.Message()))
	}
}
