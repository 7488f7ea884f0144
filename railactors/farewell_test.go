package railactors

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/polyrail/polyrail/collective/fault"
	"github.com/polyrail/polyrail/railactors/transport"
	injected "github.com/polyrail/polyrail/railactors/transport/fault"
	"github.com/polyrail/polyrail/railactors/transport/mem"
)

// A node leaves when all that it sent has arrived. One that never connects gets the rank timeout
// for that. It may be dead where it is to dial, or live and not care. Close would wait for its
// context.
func TestWhoNeverConnectsHoldsNobodyUp(t *testing.T) {
	for _, c := range []struct{ leaves, never string }{
		{"b", "a"}, // which is to dial
		{"a", "b"},
	} {
		t.Run(c.never, func(t *testing.T) {
			virtual(t, 1, func(b *bed, _ *mem.Network) {
				n := b.start(c.leaves, c.never)
				p := n[0].connect(n[1])
				n[0].send(p, 1, 0, 10, 0)
				ctx, cancel := context.WithTimeout(b.t.Context(), time.Minute)
				defer cancel()
				start := time.Now()
				n[0].fabric.Disconnect(p)
				if err := n[0].fabric.Close(ctx); err != nil {
					t.Error(err)
				}
				if took := time.Since(start); took > 3*time.Second {
					t.Errorf("took %v", took)
				}
				n[0].expectReleased(1, fault.ErrClosed)
			})
		})
	}
}

// One that was not connected when it was left, and is used again, is not given up for that.
func TestWhoIsUsedAgainMayTakeItsTime(t *testing.T) {
	virtual(t, 1, func(b *bed, _ *mem.Network) {
		n := b.start("a", "b")
		ba := n[1].connect(n[0])
		n[1].send(ba, 1, 0, 10, 0)
		for range 2 {
			ba.leave()
			<-time.After(1500 * time.Millisecond)
			if again := n[1].connect(n[0]); again != ba {
				t.Fatal("it was given up before its time")
			}
		}
		<-time.After(10 * time.Second)
		n[0].connect(n[1])
		n[0].expect("b", 1)
	})
}

// A node leaves when all that it sent has arrived. What is on its way to it then is not delivered,
// and no sign that the node has failed.
func TestWhatIsOnItsWayToANodeThatLeavesMakesNoLoss(t *testing.T) {
	virtual(t, 1, func(b *bed, net *mem.Network) {
		open := b.open
		b.open = func(host string) transport.Transport {
			return injected.Wrap(open(host), injected.Options{Delay: 10 * time.Millisecond})
		}
		n := b.start("a", "b")
		ab, ba := join(n[0], n[1])
		ab.leave()
		ab.look() // its farewell takes 10 ms
		n[1].send(ba, 1, 0, 10, 0)
		n[1].expectReleased(1, fault.ErrRankLost)
		n[1].await("that a has left", func() bool { return n[1].left[ba] == 1 })
		synctest.Wait()
		n[1].mu.Lock()
		defer n[1].mu.Unlock()
		if err := n[1].lost["a"]; err != nil {
			t.Errorf("b was told %v", err)
		}
	})
}

// A farewell may be slower than a connection of another rail, which must not pass for a loss.
func TestAFarewellIsNotOvertakenByAnotherRailsConnection(t *testing.T) {
	virtual(t, 2, func(b *bed, net *mem.Network) {
		n := b.start("a", "b") // a dials
		ab, ba := join(n[0], n[1])
		net.Cut("b", "rail1")
		n[1].await("that rail1 is down", func() bool { return !n[1].fabric.Rails()[1].Up })
		net.Silence("b", "rail0")
		ba.leave()
		ba.look()
		net.Heal("b", "rail1")
		<-time.After(partTimeout / 2)
		net.Heal("b", "rail0")
		<-ab.ended
		n[0].await("that b has left", func() bool { return n[0].left[ab] == 1 })
		synctest.Wait()
		n[0].mu.Lock()
		defer n[0].mu.Unlock()
		if err := n[0].lost["b"]; err != nil {
			t.Errorf("a was told %v", err)
		}
	})
}

// A node leaves and is used again at once, by the same process. The new session does not dial before
// the farewell of the former one is over: it would pass for a process that has started over.
func TestTheNextSessionAwaitsTheFarewell(t *testing.T) {
	virtual(t, 1, func(b *bed, net *mem.Network) {
		open := b.open
		var ways []*injected.Transport
		b.open = func(host string) transport.Transport {
			ways = append(ways, injected.Wrap(open(host), injected.Options{Delay: time.Millisecond}))
			return ways[len(ways)-1]
		}
		n := b.start("a", "b") // a dials
		ab, ba := join(n[0], n[1])
		delay := func(d time.Duration) {
			for _, w := range ways {
				w.SetDelay(d)
			}
		}
		delay(partTimeout / 2)
		ab.leave()
		ab.look()
		synctest.Wait() // the farewell is on its way
		delay(time.Millisecond)
		again := n[0].connect(n[1])
		if again == ab {
			t.Fatal("the former session goes on")
		}
		<-time.After(partTimeout / 4)
		if c := net.Connections(); c != 1 || ab.Lost() != nil {
			t.Errorf("%d connections before the farewell is over, %v", c, ab.Lost())
		}
		n[1].await("that a has left", func() bool { return n[1].left[ba] == 1 || n[1].lost["a"] != nil })
		back := n[1].connect(n[0])
		for _, p := range []*Peer{again, back} {
			if err := p.WaitReady(b.t.Context()); err != nil {
				t.Error(err)
			}
		}
		n[1].mu.Lock()
		defer n[1].mu.Unlock()
		if err := n[1].lost["a"]; err != nil {
			t.Errorf("b was told %v", err)
		}
	})
}

// What gives up a node that never connected comes late where it has connected meanwhile, or is used again:
// all that was sent to it arrives.
func TestWhoHasConnectedOrIsUsedAgainIsNotGivenUp(t *testing.T) {
	for _, met := range []bool{false, true} {
		virtual(t, 1, func(b *bed, net *mem.Network) {
			n := b.start("a", "b")
			ba := n[1].connect(n[0])
			if met {
				ab := n[0].connect(n[1])
				n[1].await("the connection", func() bool { return ba.Whole() && ab.Whole() })
				net.Silence("a", "rail0")
			}
			n[1].send(ba, 1, 0, 10, 0)
			ba.leave()
			if !met && !ba.stay() {
				t.Fatal("it does not stay")
			}
			ba.unmet()
			if err := ba.Lost(); err != nil {
				t.Errorf("met %v: given up: %v", met, err)
			}
			net.Heal("a", "rail0")
			n[0].connect(n[1])
			n[0].expect("b", 1)
			n[1].expectReleased(1, nil)
		})
	}
}

// A session whose other side has said farewell is over, whoever asks for it.
func TestASessionThatTheOtherSideHasLeftIsNotTakenUp(t *testing.T) {
	virtual(t, 1, func(b *bed, _ *mem.Network) {
		n := b.start("a", "b")
		ab, _ := join(n[0], n[1])
		parted := func(is bool) {
			ab.mu.Lock()
			defer ab.mu.Unlock()
			ab.parted = is
		}
		for _, leaves := range []bool{false, true} {
			if leaves {
				ab.leave()
			}
			parted(true)
			if ab.stay() {
				t.Errorf("leaves %v: it stays", leaves)
			}
			parted(false)
		}
		if !ab.stay() {
			t.Error("it does not stay where nobody has left")
		}
	})
}

// Who says farewell to a node that does not hear it has left soon all the same, and has lost nobody.
func TestAFarewellThatNobodyHearsEnds(t *testing.T) {
	virtual(t, 1, func(b *bed, net *mem.Network) {
		n := b.start("a", "b")
		ab, _ := join(n[0], n[1])
		net.Silence("b", "rail0")
		start := time.Now()
		ab.leave()
		ab.look()
		<-ab.ended
		if took := time.Since(start); took > 2*partTimeout {
			t.Errorf("it took %v", took)
		}
		if n[0].lost["b"] != nil || n[0].left[ab] != 0 {
			t.Errorf("a was told %v, %v", n[0].lost, n[0].left)
		}
		n[0].send(ab, 1, 0, 10, 0) // who needs it after all is told
		if err := n[0].lost["b"]; !errors.Is(err, fault.ErrClosed) {
			t.Errorf("a was told %v", err)
		}
		net.Heal("b", "rail0")
	})
}

// A session that ends leaves the next one alone: hellos find that.
func TestASessionThatEndsIsForgottenAlone(t *testing.T) {
	virtual(t, 1, func(b *bed, _ *mem.Network) {
		n := b.start("a", "b")
		ab, _ := join(n[0], n[1])
		ab.leave()
		ab.look()
		again := n[0].connect(n[1])
		<-ab.ended
		n[0].fabric.mu.Lock()
		defer n[0].fabric.mu.Unlock()
		if p := n[0].fabric.peers["b"]; p != again || again == ab {
			t.Errorf("hellos find %p, want %p; the former one is %p", p, again, ab)
		}
	})
}

// Whoever comes back as the time of a peer that nobody used is up keeps it.
func TestAPeerInUseIsNotLeftByAClock(t *testing.T) {
	virtual(t, 1, func(b *bed, _ *mem.Network) {
		n := b.start("a", "b")
		ab, _ := join(n[0], n[1])
		n[0].fabric.lingered(ab)
		if !ab.usable() {
			t.Fatal("it is left")
		}
		n[0].send(ab, 1, 0, 10, 0)
		n[1].expect("a", 1)
	})
}
