package communicator

import (
	"fmt"
	"sync"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/polyrail/polyrail/actors/balancing"
	"github.com/polyrail/polyrail/collective/fault"
)

var transmits = sync.Pool{New: func() any { return new(transmit) }}

// worker is one rail's part in one operation: it hands frames to the peers, and reports what the rail took
// (Nezha's Timer, §III-E). It belongs to a pooled operation actor.
type worker struct {
	node     *Node
	balancer *actor.PID
	rail     int
}

func (w *worker) Receive(ctx actor.Context) {
	switch m := ctx.Message().(type) {
	case *transmit:
		w.transmit(m)
	case *balancing.RailFinished:
		w.node.tell(w.balancer, m)
	case *actor.Started, *actor.Stopping, *actor.Stopped, *actor.Restarting:
	default:
		w.node.unknown(ctx)
	}
}

// transmit hands over one frame. If that fails, the frame has an owner who must hear of it.
func (w *worker) transmit(m *transmit) {
	f, to := m.frame, m.to
	*m = transmit{}
	transmits.Put(m)
	defer func() {
		if r := recover(); r != nil {
			f.Owner.Released(f, fmt.Errorf("%w: worker of rail %d: %v", fault.ErrInternal, w.rail, r))
			panic(r)
		}
	}()
	to.Send(f)
}
