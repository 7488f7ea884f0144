package membership

import (
	"context"
	"encoding/binary"
	"errors"
	"testing"
	"time"

	"github.com/polyrail/polyrail/actors/engine"
	"github.com/polyrail/polyrail/collective/op"
	"github.com/polyrail/polyrail/collective/p2p"
	"github.com/polyrail/polyrail/messages/wire"
	"github.com/polyrail/polyrail/railactors"
	"github.com/polyrail/polyrail/railactors/transport/mem"
)

// FuzzTransferFrames: whatever headers a member sends under the wire id of messages, nothing panics
// or hangs, no landing is longer than its frame, and all memory is given back. The input is a
// sequence of headers as on the wire, each after a byte that says what becomes of its landing.
func FuzzTransferFrames(f *testing.F) {
	header := func(fate byte, change func(*wire.Header)) []byte {
		h := wire.Header{Kind: wire.KindData, Seq: 1, Number: 1,
			Desc: op.Descriptor{Kind: op.KindSendRecv, DType: op.Uint8}}
		change(&h)
		b := make([]byte, wire.Size)
		h.Encode(b)
		return append([]byte{fate}, b...)
	}
	eager := func(h *wire.Header) { h.Step, h.Length, h.Desc.Elements = uint32(p2p.Eager), 64, 64 }
	ask := func(h *wire.Header) { h.Step, h.Desc.Elements = uint32(p2p.Ask), 100_000 }
	part := func(h *wire.Header) { h.Step, h.Length, h.Desc.Elements = uint32(p2p.Part), 65536, 100_000 }
	rest := func(h *wire.Header) { part(h); h.Running, h.Length = 65536, 100_000-65536 }
	beyond := func(h *wire.Header) { part(h); h.Running = 1 << 62 }
	grant := func(h *wire.Header) { h.Kind, h.Step = wire.KindGrant, uint32(p2p.Grant) }
	drop := func(h *wire.Header) { h.Step = uint32(p2p.Drop) }
	cancel := func(h *wire.Header) { h.Step = uint32(p2p.Cancel) }
	verb := func(h *wire.Header) { h.Step = 1 << 24 }
	for _, seed := range [][][]byte{
		{header(0, eager)}, {header(1, eager), header(0, eager)},
		{header(0, ask), header(0, part), header(0, rest)},
		{header(0, ask), header(1, part), header(0, part), header(0, part)},
		{header(0, ask), header(0, beyond)},
		{header(0, grant)}, {header(0, drop), header(0, grant)},
		{header(0, cancel), header(0, ask)}, {header(0, ask), header(0, cancel)},
		{header(0, verb)}, {header(0, ask), header(2, part)},
	} {
		var b []byte
		for _, s := range seed {
			b = append(b, s...)
		}
		f.Add(b, true)
		f.Add(b, false)
	}
	f.Fuzz(func(t *testing.T, input []byte, receives bool) {
		network := mem.NewNetwork()
		silent, err := network.Transport("b").Open("rail0") // accepts, and says nothing
		if err != nil {
			t.Fatal(err)
		}
		defer silent.Close()
		n, c, other := half(t, 0, railactors.RailAddress{Name: "rail0", Addr: silent.Addr()}, network)
		var all []*engine.Transfer
		for range 2 {
			m := engine.Message{Rank: 1, Tag: 0, DType: op.Uint8, Buf: make([]byte, 100_000)}
			start := c.Transfers().Send
			if receives {
				start = c.Transfers().Recv
			}
			x, err := start(t.Context(), m)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, x)
		}
		comm := engine.TransferID(1)
		for ; len(input) > wire.Size; input = input[1+wire.Size:] {
			feed(t, n, other, input[0], input[1:1+wire.Size], comm)
		}
		all[0].Cancel(errors.New("enough"))
		c.Group.Fail(errors.New("enough"), 0)
		ctx, stop := context.WithTimeout(t.Context(), time.Millisecond)
		defer stop()
		_ = c.Close(ctx) // the other rank doesn't answer
		_ = n.fabric.Close(ctx)
		for _, x := range all {
			<-x.Done()
		}
		if s := n.shared.Engine.Pool.Stats(); s.InUse != 0 {
			t.Errorf("%d bytes are still in use", s.InUse)
		}
		n.shared.Stop(n.pid)
		n.system.Shutdown()
		n.warm.Close()
		n.shared.Engine.Pool.Close()
	})
}

// feed plays a reader that got this header. What Decode refuses never comes so far.
func feed(t *testing.T, n *node, other *railactors.Peer, fate byte, raw []byte, comm uint64) {
	b := append([]byte(nil), raw...)
	var h wire.Header
	if wire.Decode(b, &h) != nil {
		// Repair what a fuzzer cannot guess: the fields that follow from the others.
		h = wire.Header{Kind: wire.KindData, Number: 1, Seq: binary.LittleEndian.Uint64(raw[16:]) % 8,
			Step: uint32(raw[84]) % 10, Running: binary.LittleEndian.Uint64(raw[72:]),
			Length: binary.LittleEndian.Uint32(raw[100:]) % (wire.MaxPayload + 1),
			Digest: binary.LittleEndian.Uint64(raw[24:]),
			Desc: op.Descriptor{Kind: op.KindSendRecv, DType: op.DType(raw[109] % 12),
				Elements: binary.LittleEndian.Uint64(raw[32:]) % wire.MaxElements}}
		if wire.Kind(raw[3]) == wire.KindGrant {
			h.Kind, h.Length = wire.KindGrant, 0
		}
	}
	h.Comm = comm
	if h.Kind == wire.KindGrant {
		_ = n.Granted(other, &h) // an error closes the connection
		return
	}
	l, err := n.Land(other, 0, &h)
	if err != nil || l.Receiver == nil {
		return
	}
	if len(l.Dst) != int(h.Length) {
		t.Fatalf("%d bytes of room for a frame of %d", len(l.Dst), h.Length)
	}
	switch fate % 3 {
	case 0:
		l.Receiver.Arrived(l.Tag, nil)
	case 1:
		l.Receiver.Torn(l.Tag, errors.New("cut"))
	default: // it never ends before the connection does
		defer l.Receiver.Torn(l.Tag, errors.New("closed"))
	}
}
