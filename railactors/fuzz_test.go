package railactors

import (
	"bytes"
	"encoding/binary"
	"log/slog"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/polyrail/polyrail/messages"
	"github.com/polyrail/polyrail/messages/wire"
	"github.com/polyrail/polyrail/railactors/transport"
	"github.com/polyrail/polyrail/railactors/transport/mem"
)

// hears fails the test when a node logs a panic: a reader survives one, and that must not hide it.
type hears struct{ t testing.TB }

func (h hears) Write(b []byte) (int, error) {
	if strings.Contains(string(b), "panicked") {
		h.t.Errorf("%s", b)
	}
	return len(b), nil
}

// fuzzed runs f with a node b, which must be able to serve another node, c, in the end. It takes
// real time: of the many thousands of bubbles that a fuzzing process would make, the runtime once
// in a while takes one for another (Go 1.26).
func fuzzed(t *testing.T, f func(b *bed, net *mem.Network, n *testNode)) {
	net := mem.NewNetwork()
	b := &bed{t: t, rails: []string{"rail0"}, open: net.Transport, as: net.Transport, tune: func(c *Config) {
		c.RankTimeout = time.Second
		c.Logger = slog.New(slog.NewTextHandler(hears{t}, nil))
	}}
	n := b.startNode("b", 1)
	f(b, net, n)
	cb, _ := join(n, b.startNode("c", 1))
	n.send(cb, 1, 0, 100, 0)
	b.nodes[1].expect("b", 1)
	b.close()
}

func encode(h wire.Header, payload []byte) []byte {
	h.Length = uint32(len(payload))
	b := make([]byte, wire.Size, wire.Size+len(payload))
	h.Encode(b)
	return append(b, payload...)
}

func marshal(t testing.TB, m proto.Message) []byte {
	t.Helper()
	b, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// end closes a connection that the node has closed, or to which it has said nothing for a while.
func end(c transport.Conn) {
	_ = c.SetReadDeadline(time.Now().Add(5 * time.Millisecond))
	for {
		if _, err := c.ReadFull(make([]byte, 1)); err != nil {
			break
		}
	}
	c.Close()
}

// FuzzFirstFrame: whatever the first frame of a connection says, to the side that accepts and to
// the one that dialed, it costs the node no more than that connection.
func FuzzFirstFrame(f *testing.F) {
	fits := func() *messages.Hello {
		return &messages.Hello{Version: wire.Version, Cluster: "test", Node: "a", Incarnation: 1,
			To: "b", Rail: "rail0", Generation: 1, Session: 1, CreditBytes: 1 << 20}
	}
	for _, change := range []func(*messages.Hello){
		func(*messages.Hello) {},
		func(h *messages.Hello) { h.Probe = true },
		func(h *messages.Hello) { h.Version = 9 },
		func(h *messages.Hello) { h.Rail = "rail9" },
		func(h *messages.Hello) { h.Node = "c" },
		func(h *messages.Hello) { h.Incarnation = 0 },
		func(h *messages.Hello) { h.Generation = 1 << 63 },
		func(h *messages.Hello) { h.Session, h.ToSession = 1<<63, 1<<63 },
		func(h *messages.Hello) { h.CreditBytes = 1 << 63 },
		func(h *messages.Hello) { h.Node = "d"; h.To = "c" },
	} {
		h := fits()
		change(h)
		f.Add(uint8(wire.KindHello), marshal(f, h), true)
	}
	f.Add(uint8(wire.KindHello), marshal(f, &messages.Hello{Version: wire.Version, Cluster: "test", Node: "d", Incarnation: 1, To: "b", Rail: "rail0",
		Generation: 1, Session: 1}), false)
	for code := range messages.Refuse_Code_name {
		f.Add(uint8(wire.KindRefuse), marshal(f, &messages.Refuse{Code: messages.Refuse_Code(code), Reason: strings.Repeat("no", 1000)}), false)
	}
	f.Add(uint8(wire.KindHello), []byte{0xff}, true)
	f.Add(uint8(wire.KindData), []byte("data"), true)
	f.Fuzz(func(t *testing.T, kind uint8, payload []byte, accepts bool) {
		if len(payload) > wire.MaxControl {
			return
		}
		var h messages.Hello
		if proto.Unmarshal(payload, &h) == nil && h.Node == "c" && h.Incarnation > 1 {
			return // the node that is to be served in the end would have been started anew
		}
		frame := encode(wire.Header{Kind: wire.Kind(kind)}, payload)
		fuzzed(t, func(b *bed, net *mem.Network, n *testNode) {
			if accepts {
				if _, err := n.fabric.Connect(Remote{Node: "a", Incarnation: 1, Rails: []RailAddress{{"rail0", "mem:a/rail0#9"}}}); err != nil {
					t.Fatal(err)
				}
				c := stranger(t, net, n)
				_, _ = c.Write(frame)
				end(c)
				return
			}
			d, err := net.Transport("d").Open("rail0")
			if err != nil {
				t.Fatal(err)
			}
			if _, err := n.fabric.Connect(Remote{Node: "d", Incarnation: 1, Rails: []RailAddress{{"rail0", d.Addr()}}}); err != nil {
				t.Fatal(err)
			}
			c, err := d.Accept()
			if err != nil {
				t.Fatal(err)
			}
			d.Close()
			_, _ = c.Write(frame)
			end(c)
		})
	})
}

// FuzzFrames: whatever frames come on a connection, in whatever order, it costs the node no more
// than that connection. Of each frame the input has a header, of which only the fields count, and
// the payload.
func FuzzFrames(f *testing.F) {
	control := func(m *messages.Control) []byte { return encode(wire.Header{Kind: wire.KindControl}, marshal(f, m)) }
	closed := func(rail string, generation, received uint64) []byte {
		return control(&messages.Control{Body: &messages.Control_RailClosed{RailClosed: &messages.RailClosed{
			Rail: rail, Generation: generation, Received: received}}})
	}
	data := encode(wire.Header{Kind: wire.KindData, Flags: wire.FlagEager, Comm: 1, Seq: 1, Count: 1, Desc: dataDescriptor}, []byte("payload"))
	for _, frames := range [][]byte{
		data, append(data, data...),
		closed("rail0", 1, 0), closed("rail0", 1, 99), closed("rail0", 7, 0), closed("rail7", 1, 0), append(closed("rail0", 3, 1), data...),
		control(&messages.Control{Comm: 1, Body: &messages.Control_Abort{Abort: &messages.Abort{Seq: 1, Reason: "no"}}}),
		encode(wire.Header{Kind: wire.KindGrant, Comm: 1, Seq: 1, Count: 1, Lane: 2, Table: 3, Step: 4,
			Round: 5, Block: 6, Group: 7, Running: 8, Digest: 9, Desc: dataDescriptor}, nil),
		encode(wire.Header{Kind: wire.KindGrant, Comm: 1, Seq: 1, Flags: wire.FlagEager | wire.FlagUncredited}, nil),
		encode(wire.Header{Kind: wire.KindWant, Comm: 1, Seq: 1}, nil),
		encode(wire.Header{Kind: wire.KindVoid}, nil),
		encode(wire.Header{Kind: wire.KindAck, Ack: 1}, nil),
		encode(wire.Header{Kind: wire.KindAck, Credit: 1 << 40}, nil),
		append(encode(wire.Header{Kind: wire.KindPing}, nil), encode(wire.Header{Kind: wire.KindPong}, nil)...),
		encode(wire.Header{Kind: wire.KindRefuse}, marshal(f, &messages.Refuse{Code: messages.Refuse_LEAVING, Reason: "bye"})),
		encode(wire.Header{Kind: wire.KindHello}, []byte("again")),
		encode(wire.Header{Kind: wire.KindAck, Generation: 1}, nil), // not the connection's: nextFrame adds one
	} {
		f.Add(frames)
		number := uint64(1)
		made, _ := nextFrame(frames, &number)
		if !sameFields(made, frames) {
			f.Errorf("a frame becomes another one:\n%x\n%x", frames[:wire.Size], made[:wire.Size])
		}
	}
	f.Fuzz(func(t *testing.T, frames []byte) {
		if len(frames) > 64<<10 {
			return
		}
		fuzzed(t, func(b *bed, net *mem.Network, n *testNode) {
			c, p := violator(b, n)
			n.send(p, 1, 0, 1000, 0)
			for number := uint64(1); len(frames) >= wire.Size; number++ {
				var frame []byte
				frame, frames = nextFrame(frames, &number)
				if _, err := c.Write(frame); err != nil {
					break
				}
			}
			end(c)
		})
	})
}

// sameFields compares what nextFrame takes from the bytes. Generation, number and checksum are its
// own.
func sameFields(a, b []byte) bool {
	const offGeneration, offLane, offNumber, offAck, offChecksum = 5, 6, 40, 48, wire.Size - 4
	return bytes.Equal(a[:offGeneration], b[:offGeneration]) &&
		bytes.Equal(a[offLane:offNumber], b[offLane:offNumber]) &&
		bytes.Equal(a[offAck:offChecksum], b[offAck:offChecksum])
}

// nextFrame makes a frame that a node will look into out of any bytes: with the number that is due,
// the connection's generation where the bytes have 0, and a right checksum.
func nextFrame(b []byte, number *uint64) (frame, rest []byte) {
	const offKind, offComm, offSeq, offDigest, offAck, offCredit = 3, 8, 16, 24, 48, 56
	const offGroup, offRunning, offTable, offStep, offRound = 64, 72, 80, 84, 88
	const offBlock, offCount, offLength = 92, 96, 100
	le := binary.LittleEndian
	h := wire.Header{Kind: wire.Kind(b[offKind]), Flags: wire.Flags(b[4] & 7), Generation: 1 + b[5],
		Lane: le.Uint16(b[6:]), Comm: le.Uint64(b[offComm:]), Seq: le.Uint64(b[offSeq:]),
		Digest: le.Uint64(b[offDigest:]), Ack: le.Uint64(b[offAck:]), Credit: le.Uint64(b[offCredit:]),
		Group: le.Uint64(b[offGroup:]), Running: le.Uint64(b[offRunning:]),
		Table: le.Uint32(b[offTable:]), Step: le.Uint32(b[offStep:]),
		Round: le.Uint32(b[offRound:]), Block: le.Uint32(b[offBlock:]), Count: le.Uint32(b[offCount:])}
	if h.Kind == wire.KindData || h.Kind == wire.KindGrant && h.Flags&wire.FlagUncredited == 0 {
		h.Desc = dataDescriptor
	}
	if h.Kind.Numbered() {
		h.Number = *number
	} else {
		*number--
	}
	payload := b[wire.Size:]
	payload = payload[:min(len(payload), int(le.Uint32(b[offLength:])%4096))]
	return encode(h, payload), b[wire.Size+len(payload):]
}
