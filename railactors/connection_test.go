package railactors

import (
	"errors"
	"testing"
	"testing/synctest"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/polyrail/polyrail/collective/fault"
	"github.com/polyrail/polyrail/railactors/transport/mem"
)

// A pair's actor that stops after the next one has begun takes nothing of that one's along.
func TestAPairThatStopsLateLeavesTheNextOne(t *testing.T) {
	virtual(t, 1, func(b *bed, _ *mem.Network) {
		n := b.start("a", "b")
		ab, _ := join(n[0], n[1])
		pid := func() *actor.PID {
			ab.mu.Lock()
			defer ab.mu.Unlock()
			return ab.pairs[0]
		}
		next := pid()
		ab.unbind(0, actor.NewPID(next.Address, "former"))
		if got := pid(); got != next {
			t.Errorf("the next one's id is %v now", got)
		}
		n[0].send(ab, 1, 0, 10, 0)
		n[1].expect("a", 1)
	})
}

// A handshake that ends after its peer leaves no connection behind.
func TestAConnectionToAPeerThatHasEndedIsClosed(t *testing.T) {
	virtual(t, 1, func(b *bed, net *mem.Network) {
		n := b.start("a", "b")
		ab, _ := join(n[0], n[1])
		ab.lose("unheard for ages")
		<-ab.ended
		c := stranger(t, net, n[1])
		if err := ab.connected(0, 1<<20, c); !errors.Is(err, fault.ErrRankLost) {
			t.Errorf("it was connected: %v", err)
		}
		if _, err := c.Write(make([]byte, 1)); err == nil {
			t.Error("the connection is open")
		}
	})
}

// The writer goroutine writes nothing while somebody else does: frames would mix.
func TestAConnectionHasOneWriterAtATime(t *testing.T) {
	virtual(t, 1, func(b *bed, _ *mem.Network) {
		n := b.start("a", "b")
		ab, _ := join(n[0], n[1])
		synctest.Wait()
		c := ab.conns[0]
		writing := func(is bool) {
			ab.mu.Lock()
			defer ab.mu.Unlock()
			c.writing = is
		}
		writing(true) // in pump
		n[0].send(ab, 1, 0, 10, 0)
		if c.writeBatch() {
			t.Error("two write at a time")
		}
		writing(false)
		c.pump()
		n[1].expect("a", 1)
	})
}

func TestAFabricThatHasEndedConnectsNobody(t *testing.T) {
	failed := errors.New("it has failed")
	for _, want := range []error{failed, fault.ErrClosed} {
		virtual(t, 1, func(b *bed, _ *mem.Network) {
			n := b.start("a", "b")
			if want == failed {
				n[0].fabric.mu.Lock()
				n[0].fabric.failed = failed
				n[0].fabric.mu.Unlock()
			} else if err := n[0].fabric.Close(b.t.Context()); err != nil {
				t.Fatal(err)
			}
			if _, err := n[0].fabric.Introduce(Remote{Node: "b", Incarnation: 1, Rails: n[1].remote().Rails}); !errors.Is(err, want) {
				t.Errorf("a peer is made: %v", err)
			}
			n[0].fabric.mu.Lock()
			defer n[0].fabric.mu.Unlock()
			n[0].fabric.failed = nil
			if len(n[0].fabric.all) != 0 {
				t.Error("a peer is left")
			}
		})
	}
}

// A rail that is idle and dead is left, and the node is not lost for it.
func TestAnIdleRailThatIsUnheardIsLeft(t *testing.T) {
	virtual(t, 2, func(b *bed, net *mem.Network) {
		n := b.start("a", "b")
		ab, ba := join(n[0], n[1])
		net.Silence("b", "rail0")
		n[0].await("that rail0 is down", func() bool { return !n[0].fabric.Rails()[0].Up })
		if err := errors.Join(ab.Lost(), ba.Lost()); err != nil {
			t.Error(err)
		}
		net.Heal("b", "rail0")
	})
}
