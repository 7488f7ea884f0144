package railactors

import (
	"fmt"
	"testing"

	"go.uber.org/goleak"

	"github.com/polyrail/polyrail/messages/wire"
	"github.com/polyrail/polyrail/railactors/transport"
	"github.com/polyrail/polyrail/railactors/transport/tcp"
)

// onLoopback is a bed on real sockets; rail k is 127.0.0.k+1.
func onLoopback(t testing.TB, rails int) *bed {
	b := &bed{t: t, open: func(string) transport.Transport { return tcp.New(tcp.Options{}) }}
	for i := range rails {
		b.rails = append(b.rails, fmt.Sprintf("127.0.0.%d", i+1))
	}
	return b
}

func TestFramesOverLoopback(t *testing.T) {
	defer goleak.VerifyNone(t)
	b := onLoopback(t, 2)
	defer b.close()
	n := b.start("a", "b", "c")
	ab, ba := join(n[0], n[1])
	bc, cb := join(n[1], n[2])
	const frames = 300
	sizes := []int{0, 8, 1000, 16 << 10, 64 << 10, 256 << 10}
	for seq := range uint64(frames) {
		n[0].send(ab, seq+1, int(seq)%2, sizes[seq%6], wire.FlagEager)
		n[2].send(cb, seq+1+frames, int(seq+1)%2, sizes[(seq+1)%6], 0)
		n[1].send(ba, seq+1, int(seq)%2, sizes[(seq+2)%6], wire.FlagAckNow)
		n[1].send(bc, seq+1+frames, int(seq)%2, sizes[(seq+3)%6], 0)
		if seq%100 == 50 {
			breakRail(ab, int(seq/100)%2)
			breakRail(bc, int(seq/100)%2)
		}
	}
	n[0].expect("b", frames)
	n[0].expectReleased(frames, nil)
	n[1].await("frames of both neighbours", func() bool { return len(n[1].frames) == 2*frames })
	n[1].expectReleased(2*frames, nil)
	n[2].await("frames", func() bool { return len(n[2].frames) == frames })
}

// BenchmarkRoundTrip is a frame there and one back, each sent by the reader of the other.
func BenchmarkRoundTrip(b *testing.B) {
	for _, size := range []int{8, 64 << 10} {
		b.Run(fmt.Sprintf("bytes=%d", size), func(b *testing.B) {
			bed := onLoopback(b, 1)
			defer bed.close()
			n := bed.start("a", "b")
			ab, ba := join(n[0], n[1])
			done := make(chan struct{}, 1)
			bounce := func(at *testNode, to *Peer, then func()) *bouncer {
				r := &bouncer{dst: make([]byte, size), then: then, to: to}
				r.frame.Header = wire.Header{Kind: wire.KindData, Comm: 1, Seq: 1, Length: uint32(size), Count: 1, Desc: dataDescriptor}
				r.frame.Payload = make([]byte, size)
				at.land = func(*Peer, *wire.Header) (Landing, error) { return Landing{Dst: r.dst, Receiver: r}, nil }
				return r
			}
			home := bounce(n[0], ab, func() { done <- struct{}{} })
			bounce(n[1], ba, nil)
			b.SetBytes(int64(2 * size))
			b.ReportAllocs()
			for b.Loop() {
				frame := home.frame // the former one may not be acknowledged yet
				ab.Send(&frame)
				<-done
			}
		})
	}
}

// bouncer is a Receiver that sends a frame back.
type bouncer struct {
	dst   []byte
	frame Frame
	to    *Peer
	then  func()
}

func (r *bouncer) Torn(uint64, error) {}
func (r *bouncer) Arrived(uint64, *Batch) {
	if r.then != nil {
		r.then()
		return
	}
	frame := r.frame
	r.to.Send(&frame)
}
