package cluster

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/polyrail/polyrail/cluster/memnet"
	"github.com/polyrail/polyrail/messages"
	"github.com/polyrail/polyrail/test/bubble"
)

func TestALeavingNodeIsSeenToLeave(t *testing.T) {
	bubble.Nodes(t, func(t *testing.T) {
		peers := startAll(t, memnet.New(), 4)
		if err := peers[2].Leave(t.Context()); err != nil {
			t.Error(err)
		}
		closeAll(t, peers[2])
		for _, i := range []int{0, 1, 3} {
			peers[i].expect(t, "n3#7 left")
			if peers[i].heard("n3#7 failed") || strings.Contains(nodes(peers[i].Gossip), "n3") {
				t.Errorf("n%d heard %v", i+1, peers[i].events)
			}
		}
		if err := peers[0].Send("n3", &messages.Rendezvous{}); err == nil || !strings.Contains(err.Error(), `"n3"`) {
			t.Errorf("Send to a node that left: %v", err)
		}
		closeAll(t, peers[0], peers[1], peers[3])
	})
}

func TestAFarewellNeedsNoStream(t *testing.T) {
	bubble.Nodes(t, func(t *testing.T) {
		network := &packetsOnly{Network: memnet.New()}
		peers := startAll(t, network, 3)
		network.now.Store(true)
		if err := peers[2].Leave(t.Context()); err != nil {
			t.Error(err)
		}
		closeAll(t, peers[2])
		peers[0].expect(t, "n3#7 left")
		peers[1].expect(t, "n3#7 left")
		closeAll(t, peers[:2]...)
	})
}

func TestAFarewellIsPassedOn(t *testing.T) {
	bubble.Nodes(t, func(t *testing.T) {
		peers := startAll(t, memnet.New(), 24) // more than the farewell itself is sent to
		leaver, others := peers[23], peers[:23]
		if err := leaver.Leave(t.Context()); err != nil {
			t.Error(err)
		}
		closeAll(t, leaver)
		for _, p := range others {
			p.expect(t, "n24#7 left")
		}
		pass(5 * time.Second) // by now memberlist has found it dead
		for i, p := range others {
			if p.heard("n24#7 failed") {
				t.Errorf("n%d heard %v", i+1, p.events)
			}
		}
		closeAll(t, others...)
	})
}

func TestWhoJoinsDoesNotSeeWhoLeaves(t *testing.T) {
	bubble.Nodes(t, func(t *testing.T) {
		network := memnet.New()
		peers := startAll(t, network, 3)
		if err := peers[2].Leave(t.Context()); err != nil {
			t.Error(err)
		}
		late := start(t, config(network, "n4", 7, "10.0.0.4:7946", seed)) // n3 still answers
		late.expect(t, "n2#7 joined")
		closeAll(t, peers[2])
		pass(5 * time.Second)
		if got := nodes(late.Gossip); got != "n1 n2 n4" || late.heard("n3#7 joined") {
			t.Errorf("members %s, heard %v", got, late.events)
		}
		closeAll(t, peers[0], peers[1], late)
	})
}

func TestNodesThatLeaveTogetherDoNotWaitForOneAnother(t *testing.T) {
	bubble.Nodes(t, func(t *testing.T) {
		peers := startAll(t, memnet.New(), 4)
		began := time.Now()
		var all sync.WaitGroup
		for _, p := range peers {
			all.Go(func() {
				if err := p.Leave(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if d := time.Since(began); d > 10*peers[0].cfg.GossipInterval {
			t.Errorf("left after %v", d)
		}
		closeAll(t, peers...)
	})
}
