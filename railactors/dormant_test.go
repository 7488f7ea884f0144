package railactors

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/polyrail/polyrail/messages"
	"github.com/polyrail/polyrail/messages/wire"
	"github.com/polyrail/polyrail/railactors/supervise"
	"github.com/polyrail/polyrail/railactors/transport/mem"
)

// A hello that no connection follows, of a probe or of a node that dies, leaves a dormant peer as it
// was: what is sent to it arrives, or the node is lost.
func TestAHelloLeavesADormantPeerToBeWoken(t *testing.T) {
	for what, c := range map[string]struct{ probe, dies bool }{
		"probe": {probe: true}, "hello and death": {dies: true}, "probe and death": {true, true},
	} {
		t.Run(what, func(t *testing.T) {
			virtual(t, 1, func(b *bed, net *mem.Network) {
				n := b.start("a", "b")
				if _, err := n[0].fabric.Introduce(n[1].remote()); err != nil {
					t.Fatal(err)
				}
				ba, err := n[1].fabric.Introduce(n[0].remote())
				if err != nil {
					t.Fatal(err)
				}
				conn := strangerAt(b.t, net, "a", n[1])
				hello := &messages.Hello{Version: wire.Version, Cluster: "test", Node: "a", Incarnation: 1,
					To: "b", Rail: "rail0", Generation: 1, Session: 7, Probe: c.probe}
				if err := writeMessage(conn, wire.KindHello, hello); err != nil {
					t.Fatal(err)
				}
				if c.probe { // a itself may have come in between, which makes the answer a refusal
					_, _ = readHello(conn)
				}
				conn.Close()
				<-time.After(time.Second)
				synctest.Wait()
				if !ba.Awake() {
					t.Fatal("the hello has not come to the peer")
				}
				if c.dies {
					net.Kill("a")
					over, cancel := context.WithCancel(b.t.Context())
					cancel()
					_ = n[0].fabric.Close(over) // it can tell nobody what it has to say
					b.nodes = n[1:]
				}
				n[1].send(ba, 1, 0, 100, 0)
				<-time.After(30 * time.Second)
				synctest.Wait()
				n[0].mu.Lock()
				arrived := n[0].arrivals[1] == 1
				n[0].mu.Unlock()
				if lost := ba.Lost() != nil; lost != c.dies || arrived == c.dies {
					t.Errorf("after 30 s: arrived %v, lost %v", arrived, lost)
				}
				ba.end(ba.closedError(), false)
			})
		})
	}
}

// Nobody watches a node that is to dial and has not yet.
func TestALaterProcessReplacesOneThatNeverDialed(t *testing.T) {
	virtual(t, 2, func(b *bed, net *mem.Network) {
		n := b.start("a", "b")
		ba := n[1].connect(n[0])
		net.Kill("a")
		net.Revive("a")
		again := b.startNode("a", 2)
		if p, err := n[1].fabric.Connect(again.remote()); err == nil {
			t.Fatalf("%v replaces what has not been looked for", p)
		}
		n[1].expectLost(ba, "refuses")
		join(again, n[1])
	})
}

// The actors that a panic restarts find the peers that there are.
func TestAPanicWakesNoDormantPeer(t *testing.T) {
	virtual(t, 1, func(b *bed, net *mem.Network) {
		n := b.start("a", "b")
		synctest.Wait()
		for i := range n {
			if _, err := n[i].fabric.Introduce(n[1-i].remote()); err != nil {
				t.Fatal(err)
			}
		}
		panics := new(supervise.Panics)
		panics.Bind(n[0].sys)
		for _, kind := range []string{"peers", "rails", "rail"} {
			if panics.Throw(kind) == 0 {
				t.Fatalf("no actor %s", kind)
			}
			<-time.After(time.Second)
			if c := net.Connections(); c > 0 {
				t.Errorf("after a panic of %s: %d connections", kind, c)
			}
		}
	})
}
