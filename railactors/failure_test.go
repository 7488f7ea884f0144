package railactors

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/polyrail/polyrail/collective/fault"
	"github.com/polyrail/polyrail/messages"
	"github.com/polyrail/polyrail/messages/wire"
	"github.com/polyrail/polyrail/railactors/transport/mem"
)

// expectLost waits until n was told that the other node is lost, and returns how long that took.
func (n *testNode) expectLost(other *Peer, reason string) time.Duration {
	n.t.Helper()
	start := time.Now()
	n.await(other.Node()+" lost", func() bool { return n.lost[other.Node()] != nil })
	n.mu.Lock()
	defer n.mu.Unlock()
	err := n.lost[other.Node()]
	var lost *fault.RankLostError
	if !errors.As(err, &lost) || lost.Node != other.Node() || lost.Rank != -1 || !strings.Contains(err.Error(), reason) {
		n.t.Errorf("node %s lost %s with %v, want %q", n.name, other.Node(), err, reason)
	}
	if !errors.Is(other.Lost(), fault.ErrRankLost) {
		n.t.Errorf("Lost says %v", other.Lost())
	}
	return time.Since(start)
}

func TestAKilledProcessIsLostAtOnce(t *testing.T) {
	for _, victim := range []string{"a", "b"} { // a dials, b is dialed
		t.Run(victim, func(t *testing.T) {
			virtual(t, 2, func(b *bed, net *mem.Network) {
				n := b.start("a", "b")
				ab, ba := join(n[0], n[1])
				witness, p := n[0], ab
				if victim == "a" {
					witness, p = n[1], ba
				}
				witness.land = func(*Peer, *wire.Header) (Landing, error) { return Landing{}, nil }
				net.Kill(victim)
				witness.send(p, 1, 0, 100<<10, 0)
				if took := witness.expectLost(p, "refuses"); took > 500*time.Millisecond {
					t.Errorf("took %v", took)
				}
				if err := p.SendControl(&messages.Control{}); !errors.Is(err, fault.ErrRankLost) {
					t.Errorf("a control message to it: %v", err)
				}
				witness.expectReleased(1, fault.ErrRankLost)
				witness.send(p, 2, 0, 100, 0)
				witness.expectReleased(2, fault.ErrRankLost)
			})
		})
	}
}

func TestASilentPeerIsLostWithinTheRankTimeout(t *testing.T) {
	virtual(t, 2, func(b *bed, net *mem.Network) {
		n := b.start("a", "b")
		ab, ba := join(n[0], n[1])
		<-time.After(10 * time.Second) // virtual: an idle pair stays alive by its heartbeats
		if ab.Lost() != nil || ba.Lost() != nil {
			t.Fatal(ab.Lost(), ba.Lost())
		}
		for _, r := range b.rails {
			net.Silence("b", r)
		}
		for seq := range uint64(20) { // more than what goes without an acknowledgement
			n[0].send(ab, seq+1, 0, 256<<10, 0)
		}
		if took := n[0].expectLost(ab, "unheard"); took > 2*time.Second || took < time.Second {
			t.Errorf("took %v", took)
		}
		n[1].expectLost(ba, "unheard")
		n[0].expectReleased(20, fault.ErrRankLost)
		for _, r := range b.rails {
			net.Heal("b", r)
		}
	})
}

// A process that was stopped, or cut off, for long is lost to others without its knowledge. It asks
// for the session that it knows, whoever dials, and is told what happened.
func TestAPeerThatWasGivenUpIsToldWhy(t *testing.T) {
	for _, victim := range []int{0, 1} { // a dials, b is dialed
		t.Run(fmt.Sprint(victim), func(t *testing.T) {
			virtual(t, 2, func(b *bed, _ *mem.Network) {
				n := b.start("a", "b")
				ab, ba := join(n[0], n[1])
				peers, other := []*Peer{ab, ba}, n[1-victim]
				other.fabric.mu.Lock()
				for i := range maxLosses {
					other.fabric.losses[fmt.Sprint(i)] = loss{}
				}
				other.fabric.mu.Unlock()
				peers[1-victim].lose("unheard for ages")
				n[victim].expectLost(peers[victim], fmt.Sprintf("of node %q has ended: node %q lost: unheard for ages", other.name, n[victim].name))
				<-peers[1-victim].ended
				other.fabric.mu.Lock()
				defer other.fabric.mu.Unlock()
				if len(other.fabric.losses) != maxLosses {
					t.Errorf("%d losses are remembered, the limit is %d", len(other.fabric.losses), maxLosses)
				}
			})
		})
	}
}

// It has lost the other one, which does not know of that yet. Its sessions are numbered anew after
// 2^24 of them.
func TestANodeThatStartsOverIsConnectedAtAnyNumberOfSessions(t *testing.T) {
	for _, before := range []uint64{0, 1<<(64-sessionBits) - 2} {
		for starter := range 2 { // a dials, b is dialed
			t.Run(fmt.Sprint(before, " ", starter), func(t *testing.T) {
				virtual(t, 2, func(b *bed, net *mem.Network) {
					n := b.start("a", "b")
					n[starter].fabric.sessions = before
					ab, ba := join(n[0], n[1])
					old := []*Peer{ab, ba}
					for _, rail := range b.rails { // nobody tells
						net.Silence("b", rail)
					}
					old[starter].lose("for the test")
					n[starter].expectLost(old[starter], "for the test")
					again := n[starter].connect(n[1-starter])
					for _, rail := range b.rails {
						net.Heal("b", rail)
					}
					<-old[1-starter].ended
					if err := again.Lost(); err != nil {
						t.Fatal(err)
					}
					for _, p := range []*Peer{again, n[1-starter].connect(n[starter])} {
						if err := p.WaitReady(b.t.Context()); err != nil {
							t.Fatal(err)
						}
					}
				})
			})
		}
	}
}

func TestASilentRailIsLeftAndTakenBack(t *testing.T) {
	virtual(t, 2, func(b *bed, net *mem.Network) {
		n := b.start("a", "b")
		ab, ba := join(n[0], n[1])
		net.Silence("b", "rail0")
		const frames = 100
		for seq := range uint64(frames) {
			n[0].send(ab, seq+1, int(seq)%2, 64<<10, 0)
			n[1].send(ba, seq+1, int(seq)%2, 64<<10, 0)
		}
		n[0].expect("b", frames)
		n[1].expect("a", frames)
		n[0].expectReleased(frames, nil)
		if s := n[0].fabric.Rails(); s[0].Up || !s[1].Up || s[1].Resent == 0 {
			t.Errorf("rails after the fault: %+v", s)
		}
		net.Heal("b", "rail0")
		<-time.After(20 * time.Second)
		if s := n[0].fabric.Rails(); !s[0].Up || s[0].Reconnects == 0 {
			t.Errorf("rails after the repair: %+v", s)
		}
		before := n[0].fabric.Rails()[0].BytesSent
		n[0].send(ab, frames+1, 0, 1000, 0)
		n[1].expect("a", frames+1)
		if after := n[0].fabric.Rails()[0].BytesSent; after != before+1000 {
			t.Errorf("the repaired rail carried %d bytes", after-before)
		}
	})
}

func TestANodeThatStandsStillDoesNotMissOthers(t *testing.T) {
	// In virtual time only a core can stand still: see collective/peer. Here: a busy reader
	// isn't taken for a dead peer.
	virtual(t, 1, func(b *bed, _ *mem.Network) {
		n := b.start("a", "b")
		ab, _ := join(n[0], n[1])
		n[1].land = func(from *Peer, h *wire.Header) (Landing, error) {
			<-time.After(10 * time.Second) // a kernel of the user's that takes long
			return Landing{}, nil
		}
		n[0].send(ab, 1, 0, 100, 0)
		n[0].expectReleased(1, nil)
	})
}

func TestAPeerThatNeverAnswersIsLost(t *testing.T) {
	virtual(t, 1, func(b *bed, net *mem.Network) {
		a := b.start("a")[0]
		// A stopped process: its kernel accepts, and nobody reads.
		d, err := net.Transport("b").Open("rail0")
		if err != nil {
			t.Fatal(err)
		}
		p, err := a.fabric.Connect(Remote{Node: "b", Incarnation: 1, Rails: []RailAddress{{"rail0", d.Addr()}}})
		if err != nil {
			t.Fatal(err)
		}
		a.send(p, 1, 0, 10, 0)
		if took := a.expectLost(p, "unheard"); took > 2*time.Second {
			t.Errorf("took %v", took)
		}
		if err := p.WaitReady(b.t.Context()); !errors.Is(err, fault.ErrRankLost) {
			t.Error(err)
		}
		a.expectReleased(1, fault.ErrRankLost)
		d.Close()
	})
}

func TestConnectWaitsForTheOtherSide(t *testing.T) {
	virtual(t, 2, func(b *bed, _ *mem.Network) {
		n := b.start("a", "b")
		ab := n[0].connect(n[1])
		n[0].send(ab, 1, 1, 1000, 0)
		<-time.After(30 * time.Second) // b is alive and doesn't care yet
		ctx, cancel := context.WithTimeout(b.t.Context(), time.Second)
		defer cancel()
		err := ab.WaitReady(ctx)
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), `"b"`) || !strings.Contains(err.Error(), "rail1") {
			t.Errorf("WaitReady: %v", err)
		}
		n[1].connect(n[0])
		if err := ab.WaitReady(b.t.Context()); err != nil {
			t.Error(err)
		}
		n[1].expect("a", 1)
	})
}

// Whoever waits for a node that is lost hears that, also where the time for it is over.
func TestALostNodeIsNotMistakenForOneThatTakesTooLong(t *testing.T) {
	virtual(t, 1, func(b *bed, _ *mem.Network) {
		n := b.start("a", "b")
		ab := n[0].connect(n[1])
		ab.lose("the test says so")
		<-ab.ended
		over, cancel := context.WithCancel(b.t.Context())
		cancel()
		for range 20 {
			if err := ab.WaitReady(over); !errors.Is(err, fault.ErrRankLost) || !strings.Contains(err.Error(), `"b"`) {
				t.Errorf("WaitReady: %v, want node b lost", err)
			}
		}
	})
}

func TestThreeNodesShareOnePeerEach(t *testing.T) {
	virtual(t, 2, func(b *bed, _ *mem.Network) {
		n := b.start("a", "b", "c")
		peers := map[string]*Peer{}
		for _, x := range n {
			for _, y := range n {
				if x != y {
					peers[x.name+y.name] = x.connect(y)
				}
			}
		}
		if n[0].connect(n[1]) != peers["ab"] {
			t.Error("a second Connect made a second peer")
		}
		n[0].fabric.Disconnect(peers["ab"])
		<-time.After(time.Minute)
		for _, p := range peers {
			if err := p.WaitReady(b.t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		n[0].send(peers["ab"], 1, 0, 5000, 0)
		n[0].send(peers["ac"], 1, 1, 70000, 0)
		n[1].expect("a", 1)
		n[2].expect("a", 1)
	})
}

func TestDisconnectIsNoLoss(t *testing.T) {
	virtual(t, 2, func(b *bed, _ *mem.Network) {
		n := b.start("a", "b")
		ab, ba := join(n[0], n[1])
		n[1].send(ba, 1, 0, 100<<10, 0)
		n[1].expectReleased(1, nil)
		n[0].fabric.Disconnect(ab)
		<-time.After(time.Second)
		if n[0].connect(n[1]) != ab {
			t.Error("a peer that lingers was not taken up again")
		}
		<-time.After(time.Minute)
		if ab.Lost() != nil {
			t.Fatal(ab.Lost())
		}
		n[0].fabric.Disconnect(ab)
		<-time.After(time.Minute)
		synctest.Wait()
		n[1].mu.Lock()
		told, left := n[1].lost["a"], n[1].left[ba]
		n[1].mu.Unlock()
		if told != nil || left != 1 || ba.Lost() == nil {
			t.Errorf("b was told %v, %d times that it has left, its peer says %v", told, left, ba.Lost())
		}
		n[1].send(ba, 2, 0, 10, 0)
		n[1].expectReleased(2, fault.ErrRankLost)
		n[1].await("the news that somebody still sends", func() bool { return n[1].left[ba] == 2 })

		ab, _ = join(n[0], n[1]) // and they may meet again
		n[0].send(ab, 1, 0, 10, 0)
		n[1].expect("a", 1)
	})
}

func TestARestartedProcessReplacesTheFormerOne(t *testing.T) {
	virtual(t, 1, func(b *bed, net *mem.Network) {
		n := b.start("a", "b")
		ab, _ := join(n[0], n[1])
		net.Kill("b")
		net.Revive("b")
		again := b.startNode("b", 2)
		n[0].expectLost(ab, "refuses")
		p := n[0].connect(again)
		again.connect(n[0])
		if err := p.WaitReady(b.t.Context()); err != nil {
			t.Fatal(err)
		}
		n[0].send(p, 1, 0, 10, 0)
		again.expect("a", 1)
	})
}

func TestALaterProcessDoesNotReplaceOneThatLives(t *testing.T) {
	virtual(t, 1, func(b *bed, net *mem.Network) {
		n := b.start("a", "b")
		ab, _ := join(n[0], n[1])
		again := b.startNode("b", 2)
		if p, err := n[0].fabric.Connect(again.remote()); err == nil || !strings.Contains(err.Error(), "incarnation 1 of it is not known to be gone") {
			t.Fatalf("got %v, %v", p, err)
		}
		n[0].send(ab, 1, 0, 10, 0)
		n[1].expect("a", 1)
	})
}

func TestANodeThatWasGivenUpHearsOfIt(t *testing.T) {
	virtual(t, 2, func(b *bed, net *mem.Network) {
		n := b.start("a", "b")
		ab, ba := join(n[0], n[1])
		ab.lose("for the test")
		n[0].expectLost(ab, "for the test")
		if took := n[1].expectLost(ba, "session"); took > 500*time.Millisecond {
			t.Errorf("took %v", took)
		}
		clear(n[0].lost)
		clear(n[1].lost)
		ab, _ = join(n[0], n[1])
		n[0].send(ab, 1, 1, 10, 0)
		n[1].expect("a", 1)
	})
}

func TestARestartOfAnActorCostsAConnectionAndNoFrame(t *testing.T) {
	virtual(t, 2, func(b *bed, _ *mem.Network) {
		n := b.start("a", "b")
		ab, ba := join(n[0], n[1])
		restart := func(pid *actor.PID) {
			proc, ok := n[0].sys.ProcessRegistry.Get(pid)
			if !ok {
				t.Fatalf("no actor %v", pid)
			}
			proc.SendSystemMessage(pid, &actor.Restart{})
		}
		ab.mu.Lock()
		pair := ab.pairs[1]
		ab.mu.Unlock()
		const frames = 100
		for seq := range uint64(frames) {
			n[0].send(ab, seq+1, int(seq)%2, 30<<10, 0)
			n[1].send(ba, seq+1, int(seq)%2, 30<<10, 0)
			switch seq {
			case 30:
				restart(pair)
			case 60:
				restart(n[0].fabric.rails[0].pid.Load())
			case 90:
				restart(n[0].fabric.office)
			}
		}
		n[0].expect("b", frames)
		n[1].expect("a", frames)
		<-time.After(5 * time.Second)
		for _, s := range n[0].fabric.Rails() {
			if !s.Up || s.Reconnects == 0 {
				t.Errorf("rail %+v", s)
			}
		}
	})
}

func TestConnectNamesARailThatOneSideLacks(t *testing.T) {
	virtual(t, 2, func(b *bed, _ *mem.Network) {
		n := b.start("a", "b")
		r := n[1].remote()
		for _, c := range []struct {
			rails []RailAddress
			want  string
		}{
			{r.Rails[:1], `rail "rail1", node "b"`},
			{append(r.Rails[:2:2], RailAddress{"extra", "x"}), `rail "extra", node "a"`},
		} {
			_, err := n[0].fabric.Connect(Remote{Node: "b", Incarnation: 1, Rails: c.rails})
			if !errors.Is(err, fault.ErrRail) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %s", err, c.want)
			}
		}
	})
}
