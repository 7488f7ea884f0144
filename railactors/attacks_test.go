package railactors

import (
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/polyrail/polyrail/messages"
	"github.com/polyrail/polyrail/messages/wire"
	"github.com/polyrail/polyrail/railactors/transport"
	"github.com/polyrail/polyrail/railactors/transport/mem"
)

// The tests in this file do what an attacker without a key can do. What it costs is the attacker's
// connection.

// claimed says hello to n on its first rail in node a's name, and returns the connection and
// whether that was taken: nil, or the refusal.
func claimed(b *bed, net *mem.Network, n *testNode, h *messages.Hello) (c transport.Conn, taken func() error) {
	b.t.Helper()
	h.Version, h.Cluster, h.To, h.Rail = wire.Version, "test", n.name, "rail0"
	c = stranger(b.t, net, n)
	if err := writeMessage(c, wire.KindHello, h); err != nil {
		b.t.Fatal(err)
	}
	_, err := readHello(c)
	return c, func() error { return err }
}

func TestAClaimLosesNoLivingPeer(t *testing.T) {
	for name, claim := range map[string]*messages.Hello{
		"a later process":             {Incarnation: 2, Session: 1},
		"the last process ever":       {Incarnation: math.MaxUint64, Session: 1},
		"it has started over":         {Incarnation: 1, Session: math.MaxInt64},
		"a later process that probes": {Incarnation: 2, Session: 1, Probe: true},
	} {
		t.Run(name, func(t *testing.T) {
			virtual(t, 2, func(b *bed, net *mem.Network) {
				n := b.start("a", "b")
				ab, ba := join(n[0], n[1])
				claim.Node, claim.Generation = "a", 1
				c, taken := claimed(b, net, n[1], claim)
				defer c.Close()
				err := taken()
				if r := (*refusal)(nil); !errors.As(err, &r) || r.code != messages.Refuse_BUSY && r.code != messages.Refuse_OTHER {
					t.Errorf("answered with %v", err)
				}
				if err := errors.Join(ab.Lost(), ba.Lost()); err != nil {
					t.Fatal(err)
				}
				n[0].send(ab, 1, 0, 100, 0)
				n[1].expect("a", 1)
				if again := n[1].fabric.Rails()[0].Reconnects; again != 0 {
					t.Errorf("connected again %d times", again)
				}
			})
		})
	}
}

func TestASecondConnectionInAPeersNameDeliversNothing(t *testing.T) {
	for _, generation := range []uint64{1, 2, 100, math.MaxUint64} {
		t.Run(fmt.Sprint(generation), func(t *testing.T) {
			virtual(t, 2, func(b *bed, net *mem.Network) {
				n := b.start("a", "b")
				ab, ba := join(n[0], n[1])
				// Whoever listens on the network knows all of this.
				c, taken := claimed(b, net, n[1], &messages.Hello{Node: "a", Incarnation: 1, Generation: generation,
					Session: ab.session, ToSession: ba.session})
				defer c.Close()
				if err := taken(); err == nil || !strings.HasPrefix(err.Error(), "refused: ") {
					t.Errorf("answered with %v", err)
				}
				forge(c, generation)
				n[0].send(ab, 2, 0, 100, 0)
				n[1].await("the peer's own frame", func() bool { return n[1].frames[2] != nil })
				if len(n[1].frames) != 1 {
					t.Errorf("%d frames were delivered", len(n[1].frames))
				}
				// The rail goes on, and comes back after a cut.
				breakRail(ab, 0)
				n[0].send(ab, 3, 0, 100, 0)
				n[1].await("a frame after a cut", func() bool { return n[1].frames[3] != nil })
				<-time.After(5 * time.Second)
				if s := n[1].fabric.Rails()[0]; s.Reconnects != 1 {
					t.Errorf("%+v", s)
				}
			})
		})
	}
}

// forge writes a data frame as the first one of a connection.
func forge(c transport.Conn, generation uint64) {
	var header [wire.Size]byte
	h := wire.Header{Kind: wire.KindData, Number: 1, Seq: 1, Comm: 1, Count: 1, Length: 10,
		Generation: uint8(generation), Desc: dataDescriptor}
	h.Encode(header[:])
	_, _ = c.Write(header[:], make([]byte, 10)) // it may be closed by now
}

func TestARailThatWasCutIsNotTakenWithoutItsSession(t *testing.T) {
	virtual(t, 2, func(b *bed, net *mem.Network) {
		n := b.start("a", "b")
		ab, _ := join(n[0], n[1])
		net.Cut("a", "rail0")
		n[0].await("the cut", func() bool { return !ab.connectedOn(0) })
		for _, session := range []uint64{1, 1 << sessionBits, ab.session - 1, ab.session + 1, ab.session + 1<<sessionBits} {
			c, taken := claimed(b, net, n[1], &messages.Hello{Node: "a", Incarnation: 1, Generation: 2, Session: session})
			if taken() == nil {
				t.Errorf("session %d was taken for %d", session, ab.session)
			}
			forge(c, 2)
			c.Close()
		}
		// The answers do not tell whether a guess was too high or too low.
		for bit := range sessionBits {
			c, taken := claimed(b, net, n[1], &messages.Hello{Node: "a", Incarnation: 1, Generation: 2,
				Session: ab.session ^ 1<<bit})
			err := taken()
			if r := (*refusal)(nil); !errors.As(err, &r) || r.code != messages.Refuse_OTHER {
				t.Errorf("bit %d of the session guessed wrong: %v", bit, err)
			}
			c.Close()
		}
		net.Heal("a", "rail0")
		n[0].send(ab, 2, 0, 100, 0)
		n[1].await("the peer's own frame", func() bool { return n[1].frames[2] != nil })
		if len(n[1].frames) != 1 {
			t.Errorf("%d frames were delivered", len(n[1].frames))
		}
	})
}

// Whoever sees the traffic knows the session. It does not end the rail for good.
func TestAGenerationThatJumpsIsNotTaken(t *testing.T) {
	virtual(t, 2, func(b *bed, net *mem.Network) {
		n := b.start("a", "b")
		ab, ba := join(n[0], n[1])
		net.Cut("a", "rail0")
		n[0].await("the cut", func() bool { return !ab.connectedOn(0) })
		c, taken := claimed(b, net, n[1], &messages.Hello{Node: "a", Incarnation: 1, Generation: math.MaxUint64,
			Session: ab.session, ToSession: ba.session})
		defer c.Close()
		if err := taken(); err == nil || !strings.Contains(err.Error(), "does not follow") {
			t.Errorf("answered with %v", err)
		}
		net.Heal("a", "rail0")
		n[0].await("the rail", func() bool { return ab.connectedOn(0) })
	})
}

// A dormant peer has no connection that could outweigh a claim. Whoever answers at its address does.
// The claim may be in a hello, or in what members of another communicator are told.
func TestAClaimLosesNoDormantPeerThatLives(t *testing.T) {
	claims := map[string]func(b *bed, net *mem.Network, n []*testNode) error{
		"of a hello": func(b *bed, net *mem.Network, n []*testNode) error {
			c, taken := claimed(b, net, n[1], &messages.Hello{Node: "a", Incarnation: 2, Generation: 1, Session: 1})
			b.t.Cleanup(func() { c.Close() })
			return taken()
		},
		"of a member": func(_ *bed, _ *mem.Network, n []*testNode) error {
			other := n[0].remote()
			other.Incarnation = 2
			_, err := n[1].fabric.Connect(other)
			return err
		},
	}
	for name, killed := range map[string]bool{"it lives": false, "it is gone": true} {
		for what, claim := range claims {
			t.Run(name+", claim "+what, func(t *testing.T) {
				virtual(t, 2, func(b *bed, net *mem.Network) {
					n := b.start("a", "b")
					ba, err := n[1].fabric.Introduce(n[0].remote())
					if err != nil {
						t.Fatal(err)
					}
					if _, err := n[0].fabric.Introduce(n[1].remote()); err != nil {
						t.Fatal(err)
					}
					if killed {
						net.Kill("a")
					}
					if claim(b, net, n) == nil {
						t.Error("the claim was taken")
					}
					<-time.After(4 * n[1].fabric.cfg.RankTimeout)
					if lost := ba.Lost() != nil; lost != killed {
						t.Errorf("it is lost: %v", ba.Lost())
					}
				})
			})
		}
	}
}

// A node that has no room for a connection lives, and has given up nobody.
func TestWhoIsBusyIsNotLost(t *testing.T) {
	virtual(t, 1, func(b *bed, net *mem.Network) {
		n := b.start("a", "b")
		full := func(by int) {
			f := n[1].fabric
			f.mu.Lock()
			f.held += by
			f.mu.Unlock()
		}
		full(maxHeld)
		ab, err := n[0].fabric.Introduce(n[1].remote())
		if err != nil {
			t.Fatal(err)
		}
		ab.Agreed()
		ab.Wake()
		<-time.After(4 * n[0].fabric.cfg.RankTimeout)
		if err := ab.Lost(); err != nil {
			t.Fatal(err)
		}
		full(-maxHeld)
		n[1].connect(n[0])
		if err := ab.WaitReady(b.t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestClaimsThatAreLookedIntoAreLimited(t *testing.T) {
	virtual(t, 1, func(b *bed, net *mem.Network) {
		n := b.start("a", "b")
		ab, _ := join(n[0], n[1])
		net.Silence("a", "rail0") // it does not answer for now
		for range 2 * maxHeldPerHost {
			h := &messages.Hello{Node: "a", Incarnation: 2, Generation: 1, Session: 1,
				Version: wire.Version, Cluster: "test", To: "b", Rail: "rail0"}
			c := stranger(b.t, net, n[1])
			defer c.Close()
			if err := writeMessage(c, wire.KindHello, h); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		f := n[1].fabric
		f.mu.Lock()
		held, shaking := f.held, len(f.shaking)
		f.mu.Unlock()
		if held == 0 || held > maxHeldPerHost || shaking > maxHeldPerHost {
			t.Errorf("%d claims are looked into, %d connections wait", held, shaking)
		}
		net.Heal("a", "rail0")
		n[0].send(ab, 1, 0, 100, 0)
		n[1].expect("a", 1)
	})
}

// Silent connections come from many addresses, that of an honest node among them.
func TestSilentConnectionsKeepNobodyOut(t *testing.T) {
	virtual(t, 1, func(b *bed, net *mem.Network) {
		n := b.start("a", "b")
		entrance := &n[1].fabric.rails[0].entrance
		var conns []transport.Conn
		silent := func(host string) { // as many as come, all the time
			conns = append(conns, strangerAt(b.t, net, host, n[1]))
			synctest.Wait()
		}
		for range 2 * maxPerHost {
			silent("a")
		}
		if left := entrance.size(); left != maxPerHost {
			t.Errorf("%d connections of one address are waited for, want %d", left, maxPerHost)
		}
		for i := range 2 * maxUnidentified {
			silent(fmt.Sprint("stranger", i%4))
		}
		if left := entrance.size(); left != maxUnidentified {
			t.Errorf("%d connections are waited for, want %d", left, maxUnidentified)
		}
		for range maxPerHost {
			silent("a")
		}
		ab, _ := join(n[0], n[1])
		for seq := range uint64(3) {
			breakRail(ab, 0)
			n[0].send(ab, seq+1, 0, 100, 0)
			n[1].await("a frame after a cut", func() bool { return n[1].frames[seq+1] != nil })
			silent("a")
		}
		refused := 0
		for _, c := range conns {
			_ = c.SetReadDeadline(time.Now().Add(time.Millisecond))
			_, err := readHello(c)
			if r := (*refusal)(nil); errors.As(err, &r) {
				refused++
			}
			if errors.Is(err, io.EOF) {
				t.Fatal("closed without a word")
			}
			c.Close()
		}
		if refused < len(conns)-maxUnidentified {
			t.Errorf("%d of %d were told that they are refused", refused, len(conns))
		}
	})
}

func TestHellosInNewNamesLeaveNothingBehind(t *testing.T) {
	virtual(t, 1, func(b *bed, net *mem.Network) {
		n := b.start("a", "b")
		join(n[0], n[1])
		for i := range 2000 {
			h := &messages.Hello{Node: fmt.Sprint("x", i, strings.Repeat("y", i%2*3000)), Incarnation: 1, Generation: 1, Session: 1,
				Version: wire.Version, Cluster: "test", To: "b", Rail: "rail0"}
			c := stranger(b.t, net, n[1])
			defer c.Close()
			if err := writeMessage(c, wire.KindHello, h); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			if f := n[1].fabric; i == 1999 {
				f.mu.Lock()
				if f.held > maxHeldPerHost || len(f.awaited) > maxHeldPerHost {
					t.Errorf("%d connections wait, for %d names", f.held, len(f.awaited))
				}
				for node := range f.awaited {
					if len(node) > maxNameBytes {
						t.Errorf("a name of %d bytes", len(node))
					}
				}
				f.mu.Unlock()
			}
		}
		<-time.After(time.Second)
		f := n[1].fabric
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.held != 0 || len(f.awaited) != 0 || len(f.heldOf) != 0 || len(f.losses) != 0 {
			t.Errorf("left: %d, %v, %v", f.held, f.awaited, f.heldOf)
		}
	})
}

func TestEagerDataBeyondTheCreditCostsTheConnection(t *testing.T) {
	eitherWay(t, func(t *testing.T, b *bed) {
		b.also(func(c *Config) { c.CreditBytes = 10_000 })
		n := b.start("b")[0]
		n.keep = true
		c, p := violator(b, n)
		defer c.Close()
		for i := range uint64(10) {
			var header [wire.Size]byte
			h := wire.Header{Kind: wire.KindData, Flags: wire.FlagEager, Number: i + 1, Seq: i + 1, Comm: 1, Count: 1, Length: 4000,
				Generation: 1, Desc: dataDescriptor}
			h.Encode(header[:])
			if _, err := c.Write(header[:], make([]byte, 4000)); err != nil {
				break
			}
		}
		n.expectLost(p, "refuses")
		n.mu.Lock()
		defer n.mu.Unlock()
		if len(n.frames) != 2 {
			t.Errorf("%d frames of 4000 bytes came on a credit of 10000", len(n.frames))
		}
	})
}

func TestWhoAsksAndTakesNoAnswersLosesTheConnection(t *testing.T) {
	eitherWay(t, func(t *testing.T, b *bed) {
		n := b.start("b")[0]
		c, p := violator(b, n)
		defer c.Close()
		for i := range uint64(20 * maxControlQueue) {
			payload, err := proto.Marshal(&messages.Control{Body: &messages.Control_RailClosed{
				RailClosed: &messages.RailClosed{Rail: "rail0", Generation: 2 + i}}})
			if err != nil {
				t.Fatal(err)
			}
			var header [wire.Size]byte
			h := wire.Header{Kind: wire.KindControl, Number: i + 1, Generation: 1, Length: uint32(len(payload))}
			h.Encode(header[:])
			if _, err := c.Write(header[:], payload); err != nil {
				break
			}
			if i%1024 == 0 {
				p.mu.Lock()
				waiting := p.core.QueuedAhead()
				p.mu.Unlock()
				if waiting > 3*maxControlQueue {
					t.Fatalf("%d answers wait", waiting)
				}
			}
		}
		n.expectLost(p, "refuses")
	})
}

// What waits for evidence is counted, and no more once it is answered: else claims would keep others out.
func TestClaimsThatWereLookedIntoTakeNoRoom(t *testing.T) {
	virtual(t, 2, func(b *bed, net *mem.Network) {
		n := b.start("a", "b")
		ab, ba := join(n[0], n[1])
		for _, claim := range []*messages.Hello{
			{Incarnation: 2, Session: 1},
			{Incarnation: 1, Session: math.MaxInt64},
			{Incarnation: 1, Session: ab.session, ToSession: ba.session}, // of a rail that is connected
		} {
			claim.Node, claim.Generation = "a", 2
			c, taken := claimed(b, net, n[1], claim)
			if taken() == nil {
				t.Errorf("%+v was taken", claim)
			}
			c.Close()
		}
		synctest.Wait()
		n[1].fabric.mu.Lock()
		defer n[1].fabric.mu.Unlock()
		if n[1].fabric.held != 0 || len(n[1].fabric.heldOf) != 0 {
			t.Errorf("%d are still counted, of %v", n[1].fabric.held, n[1].fabric.heldOf)
		}
	})
}
