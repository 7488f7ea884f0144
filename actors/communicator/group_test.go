package communicator

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"strings"
	"testing"

	"github.com/asynkron/protoactor-go/actor"
	"google.golang.org/protobuf/proto"

	"github.com/polyrail/polyrail/actors/engine"
	"github.com/polyrail/polyrail/collective/fault"
	"github.com/polyrail/polyrail/collective/table"
	"github.com/polyrail/polyrail/messages"
	"github.com/polyrail/polyrail/messages/wire"
	"github.com/polyrail/polyrail/railactors"
	"github.com/polyrail/polyrail/railactors/dispatch"
	"github.com/polyrail/polyrail/railactors/transport/mem"
	"github.com/polyrail/polyrail/test/bubble"
)

// nobody hears what comes; nothing is to.
type nobody struct{ railactors.Inbound }

// quietNode has an actor system, which the test shuts down, and logs nothing.
func quietNode(rails int) *Node {
	quiet := slog.New(slog.DiscardHandler)
	n := &Node{Engine: engine.New(engine.Config{}), Log: quiet, Inline: dispatch.Synchronized(),
		System: actor.NewActorSystem(actor.WithLoggerFactory(
			func(*actor.ActorSystem) *slog.Logger { return quiet }))}
	n.Engine.Rails = rails
	n.Engine.Closed = func() error { return nil }
	return n
}

// Nobody takes what is sent to node b, and it is not lost yet.
func TestAControlMessageThatFindsNoRoomBreaksTheCommunicator(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		network := mem.NewNetwork()
		network.Silence("a", "eth0")
		n := quietNode(1)
		fabric, err := railactors.Start(n.System,
			railactors.Config{Node: "a", Incarnation: 1, Cluster: "test", Logger: n.Log,
				Rails: []railactors.RailConfig{{Name: "rail0", Transport: network.Transport("a"),
					Device: "eth0"}}}, nobody{})
		if err != nil {
			t.Fatal(err)
		}
		peer, err := fabric.Connect(railactors.Remote{Node: "b", Incarnation: 1,
			Rails: []railactors.RailAddress{{Name: "rail0", Addr: "mem:b/eth0#9"}}})
		if err != nil {
			t.Fatal(err)
		}
		g := n.NewGroup(1, "train", 0, []string{"a", "b"}, nil, nil)
		g.Attach(1, peer)
		for g.Err() == nil {
			if err := peer.SendControl(&messages.Control{Body: &messages.Control_Ready{}}); err != nil {
				g.control(1, &messages.Control{Body: &messages.Control_Windows{Windows: &messages.Windows{}}})
				if g.Err() != nil {
					t.Errorf("timings without room broke it: %v", g.Err())
				}
				g.control(1, &messages.Control{Body: &messages.Control_Ready{}})
				break
			}
		}
		if err := g.Err(); !errors.Is(err, fault.ErrLimit) ||
			!strings.Contains(err.Error(), `rank 1: node "b"`) {
			t.Errorf("it is broken by %v", err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		fabric.Close(ctx) // what waits is not sent any more
		n.System.Shutdown()
	})
}

// A Prepare takes the committed table along.
func TestTwoOfTheLargestTablesFitAControlFrame(t *testing.T) {
	large := &table.Table{Version: math.MaxUint32}
	for i := range table.MaxEntries {
		large.Entries = append(large.Entries, table.Entry{MaxBytes: math.MaxInt64, Algorithm: math.MaxUint8})
		for range table.MaxRails {
			large.Entries[i].Weights = append(large.Entries[i].Weights, table.MaxWeight)
		}
	}
	m := &messages.Control{Comm: math.MaxUint64,
		Body: &messages.Control_Prepare{Prepare: prepareMessage(&table.Prepare{
			Table: large, Committed: large, Effective: math.MaxUint64, CommittedEffective: math.MaxUint64})}}
	if n := proto.Size(m); n > wire.MaxControl {
		t.Errorf("%d bytes, the limit is %d", n, wire.MaxControl)
	}
}
