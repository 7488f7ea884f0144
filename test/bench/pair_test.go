package bench

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/polyrail/polyrail/collective/op"
	"github.com/polyrail/polyrail/messages"
	"github.com/polyrail/polyrail/messages/wire"
	"github.com/polyrail/polyrail/railactors"
	"github.com/polyrail/polyrail/railactors/transport"
	"github.com/polyrail/polyrail/railactors/transport/mem"
	"github.com/polyrail/polyrail/railactors/transport/tcp"
)

// end is one node with one rail. It answers a frame with a frame from the reader's goroutine, as an
// operation does, or tells that it is there.
type end struct {
	fabric  *railactors.Fabric
	peer    *railactors.Peer
	payload []byte // of what it sends
	room    []byte // for what it receives
	arrived chan struct{}
	frames  sync.Pool
}

func (e *end) Land(_ *railactors.Peer, _ int, h *wire.Header) (railactors.Landing, error) {
	return railactors.Landing{Dst: e.room[:h.Length], Receiver: e}, nil
}

func (e *end) Arrived(uint64, *railactors.Batch) {
	if e.arrived == nil {
		e.send()
		return
	}
	e.arrived <- struct{}{}
}

func (e *end) send() {
	f := e.frames.Get().(*railactors.Frame)
	*f = railactors.Frame{Payload: e.payload, Owner: e, Header: wire.Header{
		Kind: wire.KindData, Comm: 1, Seq: 1, Count: 1, Length: uint32(len(e.payload)),
		Desc: op.Descriptor{Kind: op.KindAllReduce, DType: op.Uint8, Code: op.CodeSum, Algorithm: op.Ring, Elements: uint64(len(e.payload))},
	}}
	e.peer.Send(f)
}

func (e *end) Released(f *railactors.Frame, _ error)      { e.frames.Put(f) }
func (*end) Torn(uint64, error)                           {}
func (*end) Granted(*railactors.Peer, *wire.Header) error { return nil }
func (*end) Wanted(*railactors.Peer, *wire.Header) error  { return nil }
func (*end) Control(*railactors.Peer, *messages.Control)  {}
func (*end) PeerLost(*railactors.Peer, error)             {}
func (*end) PeerLeft(*railactors.Peer, error)             {}
func (e *end) closing(ctx context.Context, sys *actor.ActorSystem) {
	_ = e.fabric.Close(ctx)
	sys.Shutdown()
}

// ends makes two connected nodes.
func ends(b *testing.B, open func(node string) (transport.Transport, string), bytes int) (x, y *end) {
	b.Helper()
	both := make([]*end, 2)
	remotes := make([]railactors.Remote, 2)
	for i, node := range []string{"a", "b"} {
		e := &end{payload: make([]byte, bytes), room: make([]byte, bytes)}
		e.frames.New = func() any { return new(railactors.Frame) }
		sys := actor.NewActorSystem(actor.WithLoggerFactory(func(*actor.ActorSystem) *slog.Logger { return quiet }))
		tr, device := open(node)
		var err error
		e.fabric, err = railactors.Start(sys, railactors.Config{Node: node, Incarnation: 1, Cluster: "bench", Logger: quiet,
			Rails: []railactors.RailConfig{{Name: "rail", Transport: tr, Device: device}}}, e)
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() {
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			defer cancel()
			e.closing(ctx, sys)
		})
		both[i] = e
		remotes[i] = railactors.Remote{Node: node, Incarnation: 1, Rails: []railactors.RailAddress{{Name: "rail", Addr: e.fabric.Rails()[0].Addr}}}
	}
	for i, e := range both {
		var err error
		if e.peer, err = e.fabric.Connect(remotes[1-i]); err != nil {
			b.Fatal(err)
		}
	}
	for _, e := range both {
		if err := e.peer.WaitReady(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
	return both[0], both[1]
}

// BenchmarkPairPingPong is a frame there and one back, through peers, pairs and transport. Nobody
// polls: each wait is for a reader to be woken.
func BenchmarkPairPingPong(b *testing.B) {
	network := mem.NewNetwork()
	loopback := func(string) (transport.Transport, string) { return tcp.New(tcp.Options{}), "127.0.0.1" }
	for _, c := range []struct {
		name string
		open func(node string) (transport.Transport, string)
	}{
		{"transport=mem", func(node string) (transport.Transport, string) { return network.Transport(node), "eth0" }},
		{"transport=tcp", loopback},
	} {
		for _, bytes := range []int{8, 4 << 10, 64 << 10, 256 << 10} {
			b.Run(fmt.Sprintf("%s/bytes=%d", c.name, bytes), func(b *testing.B) {
				x, _ := ends(b, c.open, bytes)
				x.arrived = make(chan struct{}, 1)
				b.SetBytes(2 * int64(bytes))
				b.ReportAllocs()
				for b.Loop() {
					x.send()
					<-x.arrived
				}
			})
		}
	}
}
