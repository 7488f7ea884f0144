package railactors

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/polyrail/polyrail/railactors/transport"
	"github.com/polyrail/polyrail/railactors/transport/mem"
)

// flipping is a transport that changes a bit of some of what is written to the connections it dialed.
type flipping struct {
	transport.Transport
	every int64 // bytes
	bytes atomic.Int64
	flips atomic.Int64
}

func (f *flipping) Open(name string) (transport.Device, error) {
	d, err := f.Transport.Open(name)
	return flippingDevice{d, f}, err
}

type flippingDevice struct {
	transport.Device
	f *flipping
}

func (d flippingDevice) Dial(ctx context.Context, addr string) (transport.Conn, error) {
	c, err := d.Device.Dial(ctx, addr)
	if err != nil {
		return nil, err
	}
	return flippingConn{c, d.f}, nil
}

type flippingConn struct {
	transport.Conn
	f *flipping
}

func (c flippingConn) Write(bufs ...[]byte) (int64, error) {
	return c.Conn.Write(c.f.changed(bufs)...)
}

func (c flippingConn) TryWrite(bufs ...[]byte) (int64, error) {
	return c.Conn.TryWrite(c.f.changed(bufs)...)
}

// changed is what is written in place of some buffers.
func (f *flipping) changed(bufs [][]byte) [][]byte {
	b := slices.Concat(bufs...)
	before := f.bytes.Add(int64(len(b))) - int64(len(b))
	if at := f.every - before%f.every; at < int64(len(b)) {
		b[at] ^= 0x10
		f.flips.Add(1)
	}
	return [][]byte{b}
}

// A rail changes a bit now and then: with checks each costs a connection, and all data arrives right.
// Without them it is data that is wrong, or nonsense that ends the peer.
func TestFlippedBitsCostConnectionsAndNoData(t *testing.T) {
	virtual(t, 2, func(b *bed, net *mem.Network) {
		flip := &flipping{Transport: net.Transport("a"), every: 300_000}
		b.also(func(c *Config) {
			if c.Integrity = true; c.Node == "a" {
				c.Rails[0].Transport = flip
			}
		})
		n := b.start("a", "b")
		ab, ba := join(n[0], n[1])
		const frames = 200
		for seq := uint64(1); seq <= frames; seq++ {
			n[0].send(ab, seq, int(seq)%2, 32<<10, 0)
			n[1].send(ba, seq, int(seq)%2, 32<<10, 0)
			if seq%20 == 0 {
				n[0].expect("b", seq)
				n[1].expect("a", seq)
				<-time.After(100 * time.Millisecond) // the rail is connected again
			}
		}
		n[0].expectReleased(frames, nil)
		s := n[0].fabric.Rails()[0]
		if flip.flips.Load() < 3 || s.Reconnects == 0 || s.Protocol != "mem+crc" {
			t.Errorf("%d bits were flipped, and %+v", flip.flips.Load(), s)
		}
	})
}
