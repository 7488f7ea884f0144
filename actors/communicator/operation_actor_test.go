package communicator

import (
	"errors"
	"testing"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/polyrail/polyrail/collective/fault"
	"github.com/polyrail/polyrail/railactors"
)

// owned is told what became of a frame.
type owned struct{ err error }

func (o *owned) Released(_ *railactors.Frame, err error) { o.err = err }

// A frame without a peer makes the hand-over panic.
func TestAFrameThatCantBeHandedOverFailsItsWorkerAndTellsItsOwner(t *testing.T) {
	n := quietNode(2)
	defer n.System.Shutdown()
	var broken error
	g := n.NewGroup(1, "train", 0, []string{"a", "b"}, nil, nil)
	g.Fail = func(cause error, _ uint64) { broken = cause }
	a := &operationActor{node: n, strategy: n.Strategy(g)}
	n.System.Root.Spawn(actor.PropsFromProducer(func() actor.Actor { return a },
		actor.WithDispatcher(n.Inline), actor.WithSupervisor(a.strategy)))
	var owner owned
	a.Hand(&railactors.Frame{Rail: 1, Owner: &owner}, nil)
	if !errors.Is(owner.err, fault.ErrInternal) {
		t.Errorf("the frame was released with %v", owner.err)
	}
	if !errors.Is(broken, fault.ErrInternal) {
		t.Errorf("the communicator is broken by %v", broken)
	}
}
