package railactors

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/polyrail/polyrail/collective/fault"
	"github.com/polyrail/polyrail/messages"
	"github.com/polyrail/polyrail/messages/wire"
	"github.com/polyrail/polyrail/railactors/transport/mem"
)

func TestControlMessagesArriveInOrderAndAreLimited(t *testing.T) {
	virtual(t, 2, func(b *bed, net *mem.Network) {
		n := b.start("a", "b")
		ab, _ := join(n[0], n[1])
		for i := range 100 {
			if err := ab.SendControl(&messages.Control{Comm: uint64(i), Body: &messages.Control_LeaveAck{}}); err != nil {
				t.Fatal(err)
			}
		}
		n[1].await("100 messages", func() bool { return len(n[1].controls) == 100 })
		for i, m := range n[1].controls {
			if m.Comm != uint64(i) {
				t.Fatalf("message %d is of communicator %d", i, m.Comm)
			}
		}
		long := &messages.Control{Body: &messages.Control_Abort{Abort: &messages.Abort{Reason: strings.Repeat("x", wire.MaxControl)}}}
		if err := ab.SendControl(long); !errors.Is(err, fault.ErrLimit) {
			t.Errorf("a long message: %v", err)
		}
		for _, r := range b.rails {
			net.Silence("b", r)
		}
		var err error
		for i := 0; err == nil && i < 10*maxControlQueue; i++ {
			err = ab.SendControl(&messages.Control{Comm: 1, Body: &messages.Control_Leave{Leave: &messages.Leave{Last: 1}}})
		}
		if !errors.Is(err, fault.ErrLimit) {
			t.Errorf("a queue without end: %v", err)
		}
		if err := ab.SendControl(&messages.Control{Comm: 1,
			Body: &messages.Control_Abort{Abort: &messages.Abort{}}}); err != nil {
			t.Errorf("an abort, without which the others wait: %v", err)
		}
		for _, r := range b.rails {
			net.Heal("b", r)
		}
		n[0].await("", func() bool { return true })
	})
}

func TestAFrameThatIsTooLongIsItsOwnersAgain(t *testing.T) {
	virtual(t, 1, func(b *bed, _ *mem.Network) {
		n := b.start("a", "b")
		ab, _ := join(n[0], n[1])
		n[0].send(ab, 1, 0, wire.MaxPayload+1, 0)
		n[0].expectReleased(1, fault.ErrLimit)
		n[0].send(ab, 2, 0, wire.MaxPayload, 0)
		n[0].expectReleased(2, nil)
		n[1].await("the other one", func() bool { return n[1].arrivals[2] == 1 })
		if again := n[0].fabric.Rails()[0].Reconnects; again != 0 {
			t.Errorf("connected again %d times", again)
		}
	})
}

func TestAPeerThatTakesNoControlMessagesIsLost(t *testing.T) {
	virtual(t, 1, func(b *bed, net *mem.Network) {
		n := b.start("a", "b")
		ab, _ := join(n[0], n[1])
		net.Silence("b", b.rails[0]) // no time passes: it is lost for nothing else
		fill := func(m *messages.Control) (k int, err error) {
			for ; err == nil && k < 10*maxControlQueue; k++ {
				err = ab.SendControl(m)
			}
			return k, err
		}
		if k, err := fill(&messages.Control{Comm: 1,
			Body: &messages.Control_Ready{}}); !errors.Is(err, fault.ErrLimit) {
			t.Fatalf("after %d messages: %v", k, err)
		}
		if err := ab.Lost(); err != nil {
			t.Fatalf("lost before its time: %v", err)
		}
		k, err := fill(&messages.Control{Comm: 1, Body: &messages.Control_Abort{}})
		if !errors.Is(err, fault.ErrLimit) || k < maxControlQueue/2 {
			t.Errorf("%d messages of another kind went: %v", k, err)
		}
		if err := ab.Lost(); !errors.Is(err, fault.ErrRankLost) || !strings.Contains(err.Error(), `"b"`) {
			t.Errorf("the peer's end: %v", err)
		}
		net.Heal("b", b.rails[0])
	})
}

func TestUnacknowledgedBytesInFlightAreLimited(t *testing.T) {
	virtual(t, 1, func(b *bed, net *mem.Network) {
		n := b.start("a", "b")
		// Less than the configuration allows: the stream's own buffer must not be the limit.
		n[0].fabric.cfg.InFlightBytes = 100 << 10
		ab, _ := join(n[0], n[1])
		release := make(chan struct{})
		arrived := 0
		n[1].land = func(from *Peer, h *wire.Header) (Landing, error) {
			arrived++
			<-release
			return Landing{}, nil
		}
		for seq := range uint64(50) {
			n[0].send(ab, seq+1, 0, 20<<10, 0)
		}
		synctest.Wait()
		ab.mu.Lock()
		flight := ab.core.InFlight(0)
		ab.mu.Unlock()
		if frame := 20<<10 + wire.Size; flight > 100<<10 || flight < 100<<10-frame {
			t.Errorf("%d bytes in flight", flight)
		}
		close(release)
		n[0].expectReleased(50, nil)
		if arrived != 50 {
			t.Errorf("%d frames arrived", arrived)
		}
	})
}

func TestEagerFramesWaitForCreditOrAGrant(t *testing.T) {
	virtual(t, 2, func(b *bed, _ *mem.Network) {
		b.tune = func(c *Config) { c.CreditBytes = 10_000 }
		n := b.start("a", "b")
		ab, ba := join(n[0], n[1])
		n[1].keep = true
		for seq := range uint64(5) {
			n[0].send(ab, seq+1, int(seq)%2, 4000, wire.FlagEager)
		}
		n[1].await("two frames and three wants", func() bool { return len(n[1].frames) == 2 && len(n[1].wants) == 3 })
		<-time.After(time.Second)
		if len(n[1].frames) != 2 {
			t.Fatalf("%d frames went on credit for two", len(n[1].frames))
		}
		for _, w := range n[1].wants {
			if w.Comm != 1 || w.Seq < 3 || w.Seq > 5 {
				t.Errorf("wants %+v", w)
			}
		}
		ba.GrantEager(1, 4)
		n[1].await("the frame that was granted", func() bool { return n[1].frames[4] != nil })
		ba.ReturnCredit(4000)
		n[1].await("the frame that got its credit", func() bool { return n[1].frames[3] != nil })
		ba.ReturnCredit(4000)
		n[1].expect("a", 5)
		ba.GrantEager(1, 5) // too late, and no harm
		ba.ReturnCredit(4000)
		ba.ReturnCredit(4000)
		n[0].expectReleased(5, nil)
		<-time.After(time.Second)
		for seq := range uint64(2) {
			n[0].send(ab, seq+6, 0, 4000, wire.FlagEager)
		}
		n[1].expect("a", 7)
	})
}

func TestTheCreditOfSunkFramesGoesBackByItself(t *testing.T) {
	virtual(t, 1, func(b *bed, _ *mem.Network) {
		b.tune = func(c *Config) { c.CreditBytes = 10_000 }
		n := b.start("a", "b")
		ab, _ := join(n[0], n[1])
		n[1].land = func(*Peer, *wire.Header) (Landing, error) { return Landing{}, nil }
		for seq := range uint64(50) {
			n[0].send(ab, seq+1, 0, 4000, wire.FlagEager)
		}
		n[0].expectReleased(50, nil)
	})
}

func TestGrantsArrive(t *testing.T) {
	virtual(t, 2, func(b *bed, _ *mem.Network) {
		n := b.start("a", "b")
		ab, _ := join(n[0], n[1])
		f := n[0].send(ab, 1, 0, 10, 0)
		grant := &Frame{Header: f.Header}
		grant.Header.Kind, grant.Header.Count, grant.Header.Length = wire.KindGrant, 7, 0
		ab.Send(grant)
		n[1].await("a grant", func() bool { return len(n[1].grants) == 1 })
		if g := n[1].grants[0]; g.Count != 7 || g.Seq != 1 {
			t.Errorf("%+v", g)
		}
		if h := ab.LastHeard(); time.Since(h) > 2*time.Second {
			t.Errorf("last heard %v", h)
		}
		if s := fmt.Sprintln(ab.Node(), ab.Incarnation(), ab.Lost()); s != "b 1 <nil>\n" {
			t.Error(s)
		}
	})
}
