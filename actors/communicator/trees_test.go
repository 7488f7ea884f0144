package communicator

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/polyrail/polyrail/collective/sharp"
	"github.com/polyrail/polyrail/messages"
	"github.com/polyrail/polyrail/railactors"
	"github.com/polyrail/polyrail/railactors/transport/mem"
	"github.com/polyrail/polyrail/test/bubble"
)

// deaf is nobody who does not mind losses.
type deaf struct{ nobody }

func (deaf) PeerLost(*railactors.Peer, error) {}

// Rank 0 offers a rail's next tree when all have given up the last one. If it offers more, memory
// does not grow by them.
func TestTreesThatRankZeroOffersAreLimited(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		n := quietNode(1)
		var err error
		n.Fabric, err = railactors.Start(n.System, railactors.Config{Node: "b", Incarnation: 1, Cluster: "test", Logger: n.Log,
			Rails: []railactors.RailConfig{{Name: "rail0", Transport: mem.NewNetwork().Transport("b"), Device: "eth0"}}}, deaf{})
		if err != nil {
			t.Fatal(err)
		}
		nowhere := []*messages.ViewRail{{Name: "rail0", Addr: "mem:a/eth0#9"}}
		zero, err := n.Fabric.Connect(railactors.RemoteOf(&messages.ViewMember{Node: "a", Incarnation: 1, Rails: nowhere}))
		if err != nil {
			t.Fatal(err)
		}
		g := n.NewGroup(1, "train", 1, []string{"a", "b"}, nil, nil)
		g.Attach(0, zero)
		trees := newTrees(g, nil)
		trees.self = n.System.Root.Spawn(actor.PropsFromFunc(func(actor.Context) {}))
		offer := func(group uint64) {
			trees.connect(&messages.TreeOpen{Group: group, Rail: "rail0", Window: 1, FragmentBytes: sharp.FragmentUnit,
				Node: &messages.ViewMember{Node: fmt.Sprintf("aggregator%d", group), Incarnation: 1, Rails: nowhere}})
		}
		for group := range uint64(100) {
			offer(1 + group)
		}
		if len(trees.open) != 1 {
			t.Errorf("%d trees of one rail are open", len(trees.open))
		}
		trees.fence(1, "it was lost")
		offer(101)
		if trees.open[101] == nil {
			t.Error("no tree follows one that was given up")
		}
		trees.end()
		n.Fabric.Disconnect(zero)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		_ = n.Fabric.Close(ctx) // nobody takes what rank 0 is told
		n.System.Shutdown()
	})
}
