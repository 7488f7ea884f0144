package actors

import (
	"fmt"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/polyrail/polyrail/collective/fault"
)

// worker is one rail's part in one operation: it hands frames to the peers and times
// the rail (Nezha's Timer, §III-E). It belongs to a pooled operation actor.
type worker struct {
	node     *node
	balancer *actor.PID
	rail     int

	operation *operation
	first     time.Time // when the current operation first used the rail
}

func (w *worker) Receive(ctx actor.Context) {
	switch m := ctx.Message().(type) {
	case *transmit:
		w.transmit(m)
	case *railFinished:
		w.finish(m)
	case *actor.Started, *actor.Stopping, *actor.Stopped, *actor.Restarting:
	default:
		w.node.unknown(ctx)
	}
}

// finish reports the rail's time to the balancer.
func (w *worker) finish(m *railFinished) {
	f := *m
	*m = railFinished{}
	finishes.Put(m)
	if f.operation == w.operation && f.last.After(w.first) {
		w.node.tell(w.balancer, &railTiming{table: f.table, rail: w.rail, bytes: f.bytes, elapsed: f.last.Sub(w.first)})
	}
	w.operation = nil
}

// transmit hands over one frame. If that fails, the frame has an owner who must hear of it.
func (w *worker) transmit(m *transmit) {
	o, f, to := m.operation, m.frame, m.to
	*m = transmit{}
	transmits.Put(m)
	defer func() {
		if r := recover(); r != nil {
			f.Owner.Released(f, fmt.Errorf("%w: worker of rail %d: %v", fault.ErrInternal, w.rail, r))
			panic(r)
		}
	}()
	if w.operation != o {
		w.operation, w.first = o, time.Now()
	}
	to.Send(f)
}
