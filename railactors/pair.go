package railactors

import (
	"context"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/polyrail/polyrail/collective/peer"
	"github.com/polyrail/polyrail/railactors/supervise"
)

// pairActor owns the life of the connection to one peer on one rail: it sees to it that
// there is one, from one generation to the next. When it stops, so do the
// connection and its goroutines. It runs on whichever goroutine sends to it.
//
// Where the other node dials, an attempt is a probe: it finds out at once that the other process
// is gone.
type pairActor struct {
	peer     *Peer
	rail     int
	epoch    int // fences messages of former incarnations and attempts
	attempts int // in vain, in a row
	flaps    int // connections that didn't live long, in a row
	dialing  bool
	said     string             // why it could not connect, as the log has it; empty when connected
	up       uint64             // the generation of the last connection that was told of
	hurried  bool               // if the attempt fails, the next one has better chances
	cancel   context.CancelFunc // ends the attempt
	timer    *time.Timer        // of the next one
}

// Receive implements actor.Actor.
func (a *pairActor) Receive(ctx actor.Context) {
	f := a.peer.fabric
	defer supervise.Recover(ctx, f.log)
	switch m := ctx.Message().(type) {
	case *actor.Started:
		a.epoch = int(f.epochs.Add(1))
		if c := a.peer.bind(a.rail, ctx.Self()); c != nil {
			a.connected(c)
		}
		a.dial(ctx) // a connection may have been made, and lost, before
	case *connectionUp:
		a.connected(m.conn)
	case *connectionLost:
		a.lost(m.conn)
		a.again(ctx)
	case *dialEnded:
		if m.epoch == a.epoch {
			a.dialing = false
			a.ended(ctx, m.err)
		}
	case *railBack:
		a.back(ctx, m.fresh)
	case *retry:
		if m.epoch == a.epoch {
			a.dial(ctx)
		}
	case *actor.Stopping, *actor.Restarting:
		a.epoch = 0
		if a.cancel != nil {
			a.cancel()
		}
		if a.timer != nil {
			a.timer.Stop()
		}
		a.peer.unbind(a.rail, ctx.Self())
	default:
		f.unknown(ctx)
	}
}

// connected tells of a connection, once.
func (a *pairActor) connected(c *connection) {
	a.attempts, a.said = 0, ""
	if a.up == c.generation {
		return
	}
	a.up = c.generation
	f := a.peer.fabric
	f.log.Info("pair connected", "peer", a.peer.node, "rail", f.rails[a.rail].name, "generation", c.generation)
	f.report(PairEvent{Kind: PairUp, Node: a.peer.node, Rail: f.rails[a.rail].name})
}

func (a *pairActor) lost(c *connection) {
	f := a.peer.fabric
	if a.flaps++; time.Since(c.born) >= steady {
		a.flaps = 0
	}
	if err, wanted := c.reason(); wanted {
		cut := c.cut()
		f.log.Warn("pair lost its connection", "peer", a.peer.node, "rail", f.rails[a.rail].name, "generation", c.generation,
			"unacknowledged", cut.Unacknowledged, "waiting", cut.Waiting, "reason", err)
		f.report(PairEvent{Kind: PairDown, Node: a.peer.node, Rail: f.rails[a.rail].name, Err: err,
			Unacknowledged: int64(cut.Unacknowledged), Waiting: int64(cut.Waiting)})
		if err == errClosedByPeer { // it may have found out that this rail is dead, here or there
			f.doubt(a.peer, a.rail, true)
		}
	} else {
		f.log.Debug("pair closed", "peer", a.peer.node, "rail", f.rails[a.rail].name, "reason", err)
	}
}

// back takes the news that an attempt has a chance. A rail that flaps keeps its pause.
func (a *pairActor) back(ctx actor.Context, fresh bool) {
	a.attempts = 0
	switch {
	case a.dialing:
		a.hurried = true
		if fresh {
			a.cancel() // it may wait for an answer to what was lost
		}
	case a.flaps <= 1:
		a.dial(ctx)
	}
}

// again arranges for the next attempt: at once at first, after a growing pause for a rail that
// fails, or breaks, time and again.
func (a *pairActor) again(ctx actor.Context) {
	pause := backoff(max(a.attempts, a.flaps-1))
	if pause == 0 {
		a.dial(ctx)
		return
	}
	if a.dialing || !a.peer.needs(a.rail) {
		return
	}
	if a.timer != nil {
		a.timer.Stop()
	}
	f, self, epoch := a.peer.fabric, ctx.Self(), a.epoch
	a.timer = time.AfterFunc(pause, func() { f.tell(self, &retry{epoch: epoch}) })
}

// report tells Config.Watch.
func (f *Fabric) report(e PairEvent) {
	if f.cfg.Watch != nil {
		f.cfg.Watch(e)
	}
}

// moved tells what became of the data that a connection had on its way.
func (p *Peer) moved(m *peer.Move) {
	f := p.fabric
	e := PairEvent{Kind: PairMoved, Node: p.node, Rail: f.rails[m.Rail].name, Unacknowledged: int64(m.Unacknowledged),
		Waiting: int64(m.Waiting), Resent: int64(m.Resent), To: make(map[string]int64)}
	for rail, bytes := range m.To {
		if bytes > 0 {
			e.To[f.rails[rail].name] = int64(bytes)
		}
	}
	f.log.Warn("pair's data moved", "peer", e.Node, "rail", e.Rail, "generation", m.Generation,
		"unacknowledged", e.Unacknowledged, "waiting", e.Waiting, "resent", e.Resent, "to", e.To, "held", m.Held)
	f.report(e)
}

// dial starts an attempt, unless there is a connection, or nobody wants one.
func (a *pairActor) dial(ctx actor.Context) {
	f := a.peer.fabric
	if a.dialing || !a.peer.needs(a.rail) {
		return
	}
	if a.timer != nil {
		a.timer.Stop()
	}
	var attempt context.Context
	attempt, a.cancel = context.WithCancel(f.ctx)
	self, epoch, cancel := ctx.Self(), a.epoch, a.cancel
	a.dialing = f.spawn(func() {
		defer cancel()
		err := a.peer.dial(attempt, a.rail, !a.peer.dials)
		if f.ctx.Err() == nil {
			f.tell(self, &dialEnded{epoch: epoch, err: err})
		}
	})
}

// ended takes the end of an attempt, and arranges for the next one if there has to be one.
func (a *pairActor) ended(ctx actor.Context, err error) {
	f := a.peer.fabric
	if a.hurried {
		a.hurried = false // how it failed says nothing about now
		a.again(ctx)
		return
	}
	if err != nil {
		a.peer.unreachable(a.rail, err)
	} else { // a probe was answered
		a.peer.signals[a.rail].heard.Store(int64(f.now()))
	}
	if !a.peer.needs(a.rail) {
		return
	}
	if isNotYet(err) { // it has made this node wait; one that is busy has not, and needs a rest
		a.attempts = 0
	} else if err != nil && a.attempts == 0 && err.Error() != a.said {
		a.said = err.Error()
		f.log.Info("pair can't connect, trying on", "peer", a.peer.node, "rail", f.rails[a.rail].name, "reason", err)
	}
	a.attempts++
	a.again(ctx)
}
