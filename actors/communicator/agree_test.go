package communicator

import (
	"errors"
	"log/slog"
	"testing"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/polyrail/polyrail/actors/engine"
	"github.com/polyrail/polyrail/collective/fault"
	"github.com/polyrail/polyrail/messages"
)

// Rank 0 decides the table. Whoever else says so changes nothing, and breaks nothing.
func TestATableOfAnotherRankIsNotTaken(t *testing.T) {
	n := &Node{Engine: engine.New(engine.Config{}), Log: slog.New(slog.DiscardHandler)}
	g := n.NewGroup(1, "train", 2, []string{"a", "b", "c"}, nil, nil)
	c := &coordinator{group: g} // without a member: it would be asked
	for _, m := range []*messages.Control{
		{Body: &messages.Control_Prepare{Prepare: &messages.Prepare{Table: &messages.Table{Version: 1 << 31}}}},
		{Body: &messages.Control_Commit{Commit: &messages.Commit{Version: 1 << 31}}},
	} {
		c.agree(nil, &Control{From: 1, Body: m})
		if g.Err() != nil {
			t.Errorf("%v broke it: %v", m, g.Err())
		}
	}
}

// A rank that says more than the actor takes breaks the communicator: memory does not grow.
func TestControlMessagesThatWaitAreLimited(t *testing.T) {
	n := quietNode(1)
	defer n.System.Shutdown()
	g := n.NewGroup(1, "train", 0, []string{"a", "b"}, nil, nil)
	busy := make(chan struct{})
	defer close(busy)
	pid := n.System.Root.Spawn(actor.PropsFromFunc(func(c actor.Context) {
		if _, ok := c.Message().(*Control); ok {
			<-busy
		}
	}))
	for i := range maxMail + 1 {
		if g.Err() != nil {
			t.Fatalf("message %d broke it: %v", i, g.Err())
		}
		g.Post(pid, &Control{From: 1, Body: &messages.Control{}})
	}
	if err := g.Err(); !errors.Is(err, fault.ErrLimit) {
		t.Errorf("got %v", err)
	}
}
