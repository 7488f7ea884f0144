package railactors

import (
	"context"
	"io"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/polyrail/polyrail/messages/wire"
	"github.com/polyrail/polyrail/railactors/transport"
	"github.com/polyrail/polyrail/railactors/transport/mem"
)

// counted is a transport whose connections count their writes.
type counted struct {
	transport.Transport
	writes *atomic.Int64
}

func (t counted) Open(device string) (transport.Device, error) {
	d, err := t.Transport.Open(device)
	return countedDevice{d, t.writes}, err
}

type countedDevice struct {
	transport.Device
	writes *atomic.Int64
}

func (d countedDevice) Accept() (transport.Conn, error) {
	c, err := d.Device.Accept()
	return d.count(c), err
}

func (d countedDevice) Dial(ctx context.Context, addr string) (transport.Conn, error) {
	c, err := d.Device.Dial(ctx, addr)
	return d.count(c), err
}

func (d countedDevice) count(c transport.Conn) transport.Conn {
	if c == nil {
		return nil
	}
	return countedConn{c, d.writes}
}

type countedConn struct {
	transport.Conn
	writes *atomic.Int64
}

func (c countedConn) Write(bufs ...[]byte) (int64, error) {
	c.writes.Add(1)
	return c.Conn.Write(bufs...)
}

func (c countedConn) TryWrite(bufs ...[]byte) (int64, error) {
	c.writes.Add(1)
	return c.Conn.TryWrite(bufs...)
}

// countWrites has the named node's connections count their writes.
func (b *bed) countWrites(net *mem.Network, name string) *atomic.Int64 {
	var writes atomic.Int64
	b.open = func(node string) transport.Transport {
		if node == name {
			return counted{net.Transport(node), &writes}
		}
		return net.Transport(node)
	}
	return &writes
}

// hold is a batch that holds what goes to a peer by its first rail.
func hold(p *Peer) *Batch {
	b := new(Batch)
	b.Hold(p, 0)
	return b
}

// echo answers each frame with one of the same seq, and has the reader hold the answers.
type echo struct {
	arrival
	to *Peer
}

func (e *echo) Arrived(tag uint64, b *Batch) {
	e.arrival.Arrived(tag, b)
	b.Hold(e.to, 0)
	e.node.send(e.to, e.header.Seq, 0, 8, wire.FlagEager)
}

func TestABatchIsOneWrite(t *testing.T) {
	for name, c := range map[string]struct {
		frames int
		writes int64
	}{
		"few":                         {3, 1},
		"more than one write carries": {2*(maxBatchFrames-1) + 1, 3},
	} {
		t.Run(name, func(t *testing.T) {
			virtual(t, 1, func(b *bed, net *mem.Network) {
				writes := b.countWrites(net, "a")
				n := b.start("a", "b")
				ab, _ := join(n[0], n[1])
				synctest.Wait()
				before := writes.Load()
				batch := hold(ab)
				for seq := range uint64(c.frames) {
					n[0].send(ab, seq+1, 0, 8, wire.FlagEager)
				}
				synctest.Wait()
				if got := writes.Load() - before; got != 0 {
					t.Errorf("%d writes though the batch is not flushed", got)
				}
				batch.Flush()
				if got := writes.Load() - before; got != c.writes {
					t.Errorf("%d frames took %d writes, want %d", c.frames, got, c.writes)
				}
				n[1].expect("a", uint64(c.frames))
				n[0].send(ab, uint64(c.frames)+1, 0, 8, wire.FlagEager) // nothing is held any more
				n[1].expect("a", uint64(c.frames)+1)
			})
		})
	}
}

// What is answered to frames that arrived together goes out together, once the reader has nothing
// more at hand.
func TestAReaderFlushesWhatIsHeldWhileFramesAreAtHand(t *testing.T) {
	virtual(t, 1, func(b *bed, net *mem.Network) {
		writes := b.countWrites(net, "b")
		n := b.start("a", "b")
		ab, ba := join(n[0], n[1])
		n[1].land = func(_ *Peer, h *wire.Header) (Landing, error) {
			e := &echo{arrival{node: n[1], header: *h, dst: make([]byte, h.Length)}, ba}
			return Landing{Dst: e.dst, Receiver: e}, nil
		}
		synctest.Wait()
		before := writes.Load()
		const frames = 8
		batch := hold(ab)
		for seq := range uint64(frames) {
			n[0].send(ab, seq+1, 0, 8, wire.FlagEager)
		}
		batch.Flush()
		n[0].expect("b", frames)
		if got := writes.Load() - before; got != 1 {
			t.Errorf("%d answers took %d writes", frames, got)
		}
	})
}

// A rail that breaks under a batch loses nothing: what was held goes by the other one.
func TestWhatABatchHoldsOutlivesItsRail(t *testing.T) {
	virtual(t, 2, func(b *bed, _ *mem.Network) {
		n := b.start("a", "b")
		ab, _ := join(n[0], n[1])
		batch := hold(ab)
		n[0].send(ab, 1, 0, 8, wire.FlagEager)
		breakRail(ab, 0)
		n[1].expect("a", 1)
		n[0].send(ab, 2, 0, 8, wire.FlagEager)
		batch.Flush()
		n[1].expect("a", 2)
	})
}

// What a reader holds is written whatever ends its turn.
func TestAReaderWhoseTurnEndsHoldsNothing(t *testing.T) {
	for _, end := range []error{nil, io.ErrUnexpectedEOF} {
		virtual(t, 1, func(b *bed, _ *mem.Network) {
			n := b.start("a", "b")
			ab, _ := join(n[0], n[1])
			synctest.Wait()
			r := &reader{connection: ab.conns[0]}
			if err := r.guard(func() error {
				r.batch.Hold(ab, 0)
				n[0].send(ab, 1, 0, 8, wire.FlagEager)
				return end
			}); err != end {
				t.Error(err)
			}
			ab.mu.Lock()
			if held := ab.holds[0]; held != 0 { // a heartbeat would take along what is held
				t.Errorf("after %v it holds %d", end, held)
			}
			ab.mu.Unlock()
			n[1].expect("a", 1)
		})
	}
}

// A reader that waits for the rest of a header has written what it answers to the frames before.
func TestAReaderAnswersBeforeItWaitsForAHeader(t *testing.T) {
	n, c, p, generation := acquainted(t)
	connection := p.pollable[0].Load()
	n.land = func(_ *Peer, h *wire.Header) (Landing, error) {
		e := &echo{arrival{node: n, header: *h, dst: make([]byte, h.Length)}, p}
		return Landing{Dst: e.dst, Receiver: e}, nil
	}
	h := wire.Header{Kind: wire.KindData, Count: 1, Generation: generation, Desc: dataDescriptor}
	var stream []byte
	for i := range uint64(3) {
		h.Number, h.Seq = i+1, i+1
		stream = append(stream, encode(h, make([]byte, 8))...)
	}
	const whole = 2 * (wire.Size + 8)
	if _, err := c.Write(stream[:whole+wire.Size/2]); err != nil {
		t.Fatal(err)
	}
	n.await("two frames", func() bool { return n.arrivals[2] == 1 })
	for held := 1; held > 0; runtime.Gosched() {
		p.mu.Lock()
		held = p.holds[0]
		p.mu.Unlock()
	}
	if err, _ := connection.reason(); err != nil {
		t.Errorf("the answers were held until it was closed: %v", err)
	}
}
