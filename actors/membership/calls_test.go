package membership

import (
	"errors"
	"log/slog"
	"testing"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/polyrail/polyrail/collective/fault"
	"github.com/polyrail/polyrail/test/bubble"
)

// A panic of the node's actor ends the call that it was at. The actor goes on, however often.
func TestAPanicEndsTheCallThatTheNodeWasAt(t *testing.T) {
	bubble.Nodes(t, func(t *testing.T) {
		n := &node{log: slog.New(slog.DiscardHandler), closing: make(chan struct{})}
		n.system = newSystem(n.log)
		defer n.system.Shutdown()
		canceled := &communicatorCall{id: 1, name: "canceled", done: make(chan formed, 1)}
		// It has neither a fabric nor a core.
		faulty := &nodeActor{node: n, calls: map[uint64]*communicatorCall{1: canceled}}
		n.pid = n.system.Root.Spawn(actor.PropsFromProducer(func() actor.Actor { return faulty }))
		for range 20 { // a supervisor restarts no actor so often
			f := n.await(t.Context(), &communicatorCall{name: "train", done: make(chan formed, 1)})
			if !errors.Is(f.err, fault.ErrInternal) {
				t.Errorf("got %v", f.err)
			}
		}
		n.tell(n.pid, &cancelCall{canceled, "its context ended"})
		if f := <-canceled.done; !errors.Is(f.err, fault.ErrInternal) {
			t.Errorf("got %v", f.err)
		}
		if err := n.system.Root.StopFuture(n.pid).Wait(); err != nil {
			t.Error(err)
		}
		if len(faulty.calls) > 0 {
			t.Error("a call that has ended is kept")
		}
	})
}
