package cluster

import (
	"errors"
	"testing"
	"time"

	"github.com/polyrail/polyrail/cluster/memnet"
	"github.com/polyrail/polyrail/collective/fault"
	"github.com/polyrail/polyrail/collective/view"
	"github.com/polyrail/polyrail/test/bubble"
)

func TestMessagesArriveOnceAndNamed(t *testing.T) {
	bubble.Nodes(t, func(t *testing.T) {
		peers := startAll(t, memnet.New(), 2)
		const k = 200
		for i := range k {
			m := RendezvousOf(&view.Withdraw{Name: "x", Ask: uint64(i)}, 7)
			if err := peers[0].Send("n2", m); err != nil {
				t.Fatal(err)
			}
		}
		peers[1].until(t, "all messages", func() bool { return len(peers[1].msgs) == k })
		seen := map[uint64]bool{} // one may overtake another: each has a stream of its own
		for _, m := range peers[1].msgs {
			got, incarnation, err := ViewMessage(m)
			if err != nil || m.From != "n1" || incarnation != 7 {
				t.Fatalf("%v, %v", m, err)
			}
			seen[got.(*view.Withdraw).Ask] = true
		}
		if len(seen) != k {
			t.Errorf("%d different messages of %d", len(seen), k)
		}
		closeAll(t, peers...)
	})
}

func TestAFullOutboxIsAnErrorAndHoldsUpNobodyElse(t *testing.T) {
	bubble.Nodes(t, func(t *testing.T) {
		network := memnet.New()
		peers := startAll(t, network, 3)
		network.Partition([]string{"10.0.0.2:7946"}) // n1 does not know it yet
		var err error
		sent := 0
		for m := RendezvousOf(&view.Withdraw{Name: "x", Ask: 1}, 7); err == nil && sent < 2*maxOutbox; sent++ {
			err = peers[0].Send("n2", m)
		}
		if !errors.Is(err, fault.ErrLimit) || sent > maxOutbox+2 {
			t.Errorf("after %d messages: %v", sent, err)
		}
		if err := peers[0].Send("n3", RendezvousOf(&view.Withdraw{Name: "y", Ask: 1}, 7)); err != nil {
			t.Error(err)
		}
		sentAt := time.Now()
		peers[2].until(t, "the message to n3", func() bool { return len(peers[2].msgs) == 1 })
		if d := time.Since(sentAt); d > 100*time.Millisecond {
			t.Errorf("held up for %v", d)
		}
		pass(peers[0].cfg.StreamTimeout)
		closeAll(t, peers...)
		if peers[0].Stats().Unsent == 0 {
			t.Error("lost messages were not counted")
		}
	})
}

func TestHostileMessagesAreCounted(t *testing.T) {
	bubble.Nodes(t, func(t *testing.T) {
		peers := startAll(t, memnet.New(), 2)
		to, _ := peers[0].roster.member("n2")
		for _, b := range [][]byte{{0xff}, []byte("hello"), {0x0a, 0x01, 'x'}} {
			if err := peers[0].outbox.put(to, b); err != nil {
				t.Fatal(err)
			}
		}
		// For an older process of n2.
		old := to
		old.Incarnation--
		if err := peers[0].sendTo(old, RendezvousOf(&view.Withdraw{Name: "x", Ask: 1}, 7)); err != nil {
			t.Fatal(err)
		}
		pass(time.Second)
		if s := peers[1].Stats(); s.Undecodable != 3 || s.Stale != 1 {
			t.Errorf("%+v", s)
		}
		if len(peers[1].msgs) != 0 {
			t.Errorf("delivered %v", peers[1].msgs)
		}
		closeAll(t, peers...)
	})
}
