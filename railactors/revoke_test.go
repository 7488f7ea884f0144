package railactors

import (
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/polyrail/polyrail/collective/fault"
	"github.com/polyrail/polyrail/messages/wire"
	"github.com/polyrail/polyrail/railactors/transport/mem"
)

// owner is a FrameOwner of its own, whose frames can be revoked apart from the node's.
type owner struct {
	mu       sync.Mutex
	released []error
}

func (o *owner) Released(_ *Frame, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.released = append(o.released, err)
}

// settled lists what the owner was told when everything is at rest.
func (o *owner) settled() []error {
	synctest.Wait()
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.released)
}

func (o *owner) expect(t *testing.T, want ...error) {
	t.Helper()
	got := o.settled()
	if !slices.EqualFunc(got, want, errors.Is) {
		t.Errorf("released with %v, want %v", got, want)
	}
}

func TestRevokedFramesDontArriveUnlessTheyWereWritten(t *testing.T) {
	virtual(t, 1, func(b *bed, net *mem.Network) {
		n := b.start("a", "b")
		ab, _ := join(n[0], n[1])
		written, queued := &owner{}, &owner{}
		net.Silence("b", "rail0")
		f := n[0].send(ab, 1, 0, 10, 0)
		synctest.Wait()
		mine := *f
		mine.Owner = written
		ab.Send(&mine) // fits into the stream's buffer
		for range 20 {
			another := *f
			another.Payload = make([]byte, 200<<10)
			another.Header.Length, another.Owner = 200<<10, queued
			ab.Send(&another)
		}
		synctest.Wait()
		n[0].fabric.Revoke(written)
		written.expect(t, ErrRevoked)

		// Of these, some are written, one is being written, most are queued.
		n[0].fabric.Revoke(queued)
		if n := len(queued.settled()); n == 0 || n == 20 {
			t.Errorf("%d of 20 were released at once, want all but those in a writer's hands", n)
		}
		<-time.After(revokeGrace)
		queued.expect(t, slices.Repeat([]error{ErrRevoked}, 20)...)
		net.Heal("b", "rail0")
		n[0].send(ab, 2, 0, 1000, 0)
		n[0].expectReleased(2, nil)
		if len(written.settled()) != 1 || len(queued.settled()) != 20 {
			t.Error("a frame was released again")
		}
	})
}

func TestARevocationInMidWriteThatEndsInTimeKeepsTheConnection(t *testing.T) {
	virtual(t, 1, func(b *bed, net *mem.Network) {
		n := b.start("a", "b")
		ab, _ := join(n[0], n[1])
		o := &owner{}
		net.Silence("b", "rail0")
		f := n[0].send(ab, 1, 0, 10, 0)
		for range 4 {
			another := *f
			another.Payload = make([]byte, 200<<10)
			another.Header.Length, another.Owner = 200<<10, o
			ab.Send(&another)
		}
		synctest.Wait()
		n[0].fabric.Revoke(o)
		net.Heal("b", "rail0")
		n[0].send(ab, 2, 0, 300, 0)
		n[0].expectReleased(2, nil)
		o.expect(t, ErrRevoked, ErrRevoked, ErrRevoked, ErrRevoked)
		<-time.After(10 * revokeGrace) // the deadline is gone with the write
		n[0].send(ab, 3, 0, 100<<10, 0)
		n[0].expectReleased(3, nil)
		if s := n[0].fabric.Rails()[0]; s.Reconnects != 0 {
			t.Errorf("the connection was given up: %+v", s)
		}
	})
}

// halfIn returns when half of frame 2 has arrived at the second node and the rest never will: rail0
// is silent. A stream's buffer holds 256 KiB, and frame 1 was in front.
func halfIn(n []*testNode, ab *Peer, net *mem.Network) (second *arrival) {
	landed, goOn := make(chan *arrival, 8), make(chan struct{})
	n[1].land = func(from *Peer, h *wire.Header) (Landing, error) {
		if h.Seq == 1 {
			<-goOn
		}
		a := &arrival{node: n[1], header: *h, dst: make([]byte, h.Length)}
		landed <- a
		return Landing{Dst: a.dst, Receiver: a}, nil
	}
	n[0].send(ab, 1, 0, 200<<10, 0)
	n[0].send(ab, 2, 0, 200<<10, 0)
	synctest.Wait()
	net.Silence(n[1].name, "rail0")
	close(goOn)
	<-landed
	second = <-landed
	synctest.Wait()
	return second
}

func TestALandingInMidReadIsTornAndTheStreamGoesOn(t *testing.T) {
	virtual(t, 1, func(b *bed, net *mem.Network) {
		n := b.start("a", "b")
		ab, _ := join(n[0], n[1])
		second := halfIn(n, ab, net)
		n[1].fabric.Revoke(second)
		synctest.Wait()
		if len(n[1].torn) != 1 || !errors.Is(n[1].torn[0], ErrRevoked) {
			t.Fatalf("torn: %v", n[1].torn)
		}
		n[1].fabric.Revoke(second) // twice is once
		net.Heal("b", "rail0")
		n[0].send(ab, 3, 0, 70<<10, 0)
		n[0].expectReleased(3, nil)
		if len(n[1].torn) != 1 || n[1].arrivals[1] != 1 || n[1].arrivals[2] != 0 || n[1].arrivals[3] != 1 {
			t.Errorf("torn %v, arrived %v", n[1].torn, n[1].arrivals)
		}
		if s := n[0].fabric.Rails()[0]; s.Reconnects != 0 {
			t.Errorf("the connection was given up: %+v", s)
		}
	})
}

func TestALandingRevokedWhileTheReaderAsksIsTorn(t *testing.T) {
	virtual(t, 1, func(b *bed, net *mem.Network) {
		n := b.start("a", "b")
		ab, _ := join(n[0], n[1])
		n[1].land = func(from *Peer, h *wire.Header) (Landing, error) {
			a := &arrival{node: n[1], header: *h, dst: make([]byte, h.Length)}
			n[1].fabric.Revoke(a)
			return Landing{Dst: a.dst, Receiver: a}, nil
		}
		n[0].send(ab, 1, 0, 100<<10, 0)
		n[0].expectReleased(1, nil)
		if len(n[1].torn) != 1 || !errors.Is(n[1].torn[0], ErrRevoked) {
			t.Errorf("torn: %v", n[1].torn)
		}
	})
}

func TestAFrameTornByALostConnectionComesAgain(t *testing.T) {
	virtual(t, 2, func(b *bed, net *mem.Network) {
		n := b.start("a", "b")
		ab, ba := join(n[0], n[1])
		halfIn(n, ab, net)
		breakRail(ba, 0)
		n[1].expect("a", 2)
		n[0].expectReleased(2, nil)
		if len(n[1].torn) != 1 || errors.Is(n[1].torn[0], ErrRevoked) {
			t.Errorf("torn: %v", n[1].torn)
		}
		net.Heal("b", "rail0")
	})
}

func TestARevocationWhileTheReaderAsksIsNobodyElses(t *testing.T) {
	virtual(t, 1, func(b *bed, net *mem.Network) {
		n := b.start("a", "b")
		ab, _ := join(n[0], n[1])
		n[1].land = func(from *Peer, h *wire.Header) (Landing, error) {
			n[1].fabric.Revoke(&arrival{}) // another operation's
			a := &arrival{node: n[1], header: *h, dst: make([]byte, h.Length)}
			return Landing{Dst: a.dst, Receiver: a}, nil
		}
		n[0].send(ab, 1, 0, 100<<10, 0)
		n[0].expectReleased(1, nil)
		if len(n[1].torn) != 0 || n[1].arrivals[1] != 1 {
			t.Errorf("torn: %v", n[1].torn)
		}
	})
}

// Its receiver has begun to count on the frame.
func TestALandingOfAnotherLengthIsTorn(t *testing.T) {
	virtual(t, 1, func(b *bed, _ *mem.Network) {
		n := b.start("b")[0]
		n.land = func(_ *Peer, h *wire.Header) (Landing, error) {
			return Landing{Dst: make([]byte, h.Length+1), Receiver: &arrival{node: n, header: *h}}, nil
		}
		c, _ := violator(b, n)
		defer c.Close()
		h := wire.Header{Kind: wire.KindData, Number: 1, Seq: 1, Count: 1, Generation: 1, Desc: dataDescriptor}
		if _, err := c.Write(encode(h, make([]byte, 8))); err != nil {
			t.Fatal(err)
		}
		n.await("the end", func() bool { return n.lost["a"] != nil })
		if len(n.torn) != 1 || !errors.Is(n.torn[0], fault.ErrInternal) || n.arrivals[1] != 0 {
			t.Errorf("torn: %v, arrived %v", n.torn, n.arrivals)
		}
	})
}
