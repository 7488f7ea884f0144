package communicator

import (
	"github.com/asynkron/protoactor-go/actor"
	"github.com/polyrail/polyrail/actors/balancing"
)

// worker is one rail's part in one operation: it reports what the rail took (Nezha's Timer, §III-E).
// It fails where handing a frame of the rail to a peer failed. Frames themselves are no messages: who
// has one hands it over (docs/decisions/003). It belongs to a pooled operation actor.
type worker struct {
	node     *Node
	balancer *actor.PID
}

func (w *worker) Receive(ctx actor.Context) {
	switch m := ctx.Message().(type) {
	case *balancing.RailFinished:
		w.node.tell(w.balancer, m)
	case handingFailed:
		panic(m.reason)
	case *actor.Started, *actor.Stopping, *actor.Stopped, *actor.Restarting:
	default:
		w.node.unknown(ctx)
	}
}
