package railactors

import (
	"errors"
	"runtime"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/polyrail/polyrail/messages"
	"github.com/polyrail/polyrail/messages/wire"
	"github.com/polyrail/polyrail/railactors/transport/tcp"
)

// slow takes as long over each frame as a caller may take over three of them.
type slow struct{ *arrival }

func (s slow) Arrived(tag uint64, b *Batch) {
	for began := time.Now(); time.Since(began) < longestTake/3; {
	}
	s.arrival.Arrived(tag, b)
}

// A caller that looks for its own frames is not kept by a stream of others', and what it leaves is
// handled though nothing more arrives.
func TestAPollThatFindsAStreamLeavesMostOfIt(t *testing.T) {
	defer goleak.VerifyNone(t)
	b := onLoopback(t, 1)
	defer b.close()
	n := b.start("a", "b")
	n[1].land = func(_ *Peer, h *wire.Header) (Landing, error) {
		a := &arrival{node: n[1], header: *h, dst: make([]byte, h.Length)}
		return Landing{Dst: a.dst, Receiver: slow{a}}, nil
	}
	ab, ba := join(n[0], n[1])
	const frames = 50
	ba.Attend(0)
	for seq := range uint64(frames) {
		n[0].send(ab, seq+1, 0, 1000, 0)
	}
	for !ba.Poll(0) {
		runtime.Gosched()
	}
	n[1].mu.Lock()
	taken := len(n[1].frames)
	n[1].mu.Unlock()
	ba.Leave(0)
	if taken > 20 {
		t.Errorf("one Poll took %d frames of %d", taken, frames)
	}
	n[1].expect("a", frames)
}

// A caller that has begun to read a frame returns when the frame's memory is revoked, though the
// other node is silent in the middle of it.
func TestAPollReturnsInTheMiddleOfAFrame(t *testing.T) {
	defer goleak.VerifyNone(t)
	b := onLoopback(t, 1)
	defer b.close()
	n := b.start("b")[0]
	c := dialOver(t, tcp.New(tcp.Options{}), "127.0.0.1", n)
	defer c.Close()
	hello := &messages.Hello{Version: wire.Version, Cluster: "test", Node: "a", Incarnation: 1, To: "b",
		Rail: n.fabric.RailName(0), Generation: 1, Session: 1, CreditBytes: 1 << 20}
	p, err := n.fabric.Connect(Remote{Node: "a", Incarnation: 1,
		Rails: []RailAddress{{n.fabric.RailName(0), c.LocalAddr().String()}}})
	if err != nil {
		t.Fatal(err)
	}
	if err := writeMessage(c, wire.KindHello, hello); err != nil {
		t.Fatal(err)
	}
	answer, err := readHello(c)
	if err != nil {
		t.Fatal(err)
	}
	const length, first = 256 << 10, 10_000
	revoked := &arrival{node: n, dst: make([]byte, length)}
	n.land = func(_ *Peer, h *wire.Header) (Landing, error) {
		if h.Seq > 1 {
			return Landing{Dst: make([]byte, h.Length), Receiver: &arrival{node: n, header: *h}}, nil
		}
		time.AfterFunc(10*time.Millisecond, func() { n.fabric.Revoke(revoked) })
		return Landing{Dst: revoked.dst, Receiver: revoked}, nil
	}
	write := func(number, seq uint64, length int, payload []byte) {
		var header [wire.Size]byte
		h := wire.Header{Kind: wire.KindData, Number: number, Comm: 1, Seq: seq, Length: uint32(length),
			Count: 1, Desc: dataDescriptor, Generation: uint8(answer.Generation)}
		h.Encode(header[:])
		if _, err := c.Write(header[:], payload); err != nil {
			t.Fatal(err)
		}
	}
	for !p.Pollable(0) {
		runtime.Gosched()
	}
	p.Attend(0)
	write(1, 1, length, make([]byte, first))
	for !p.Poll(0) {
		runtime.Gosched()
	}
	p.Leave(0)
	n.mu.Lock()
	if len(n.torn) != 1 || !errors.Is(n.torn[0], ErrRevoked) {
		t.Errorf("torn with %v", n.torn)
	}
	n.mu.Unlock()
	if err := p.Lost(); err != nil {
		t.Fatalf("Poll returned when the node was lost: %v", err)
	}
	if _, err := c.Write(make([]byte, length-first), nil); err != nil { // the stream is in step
		t.Fatal(err)
	}
	write(2, 2, 8, make([]byte, 8))
	n.await("the next frame", func() bool { return n.arrivals[2] == 1 })
}
