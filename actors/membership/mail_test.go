package membership

import (
	"log/slog"
	"testing"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/polyrail/polyrail/messages"
)

// What gossip brings faster than the node's actor takes it is dropped.
func TestRendezvousMessagesThatWaitAreLimited(t *testing.T) {
	quiet := slog.New(slog.DiscardHandler)
	n := &node{log: quiet, system: actor.NewActorSystem(actor.WithLoggerFactory(
		func(*actor.ActorSystem) *slog.Logger { return quiet }))}
	defer n.system.Shutdown()
	busy, taken := make(chan struct{}), make(chan struct{}, 2*maxMail)
	n.pid = n.system.Root.Spawn(actor.PropsFromFunc(func(c actor.Context) {
		if _, ok := c.Message().(*gossipMessage); ok {
			<-busy
			taken <- struct{}{}
		}
	}))
	h := &gossipHandler{n}
	const excess = 100
	for range maxMail + excess {
		h.ClusterMessage("x", &messages.Rendezvous{})
	}
	close(busy)
	for range maxMail {
		<-taken
	}
	if dropped := n.dropped.Load(); dropped != excess || len(taken) != 0 {
		t.Errorf("%d were dropped, %d came in excess", dropped, len(taken))
	}
}
