package membership

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/polyrail/polyrail/actors/engine"
	"google.golang.org/protobuf/encoding/protodelim"

	"github.com/polyrail/polyrail/actors/communicator"
	"github.com/polyrail/polyrail/collective/balance"
	"github.com/polyrail/polyrail/collective/op"
	"github.com/polyrail/polyrail/collective/table"
	"github.com/polyrail/polyrail/messages"
	"github.com/polyrail/polyrail/railactors"
	"github.com/polyrail/polyrail/railactors/dispatch"
	"github.com/polyrail/polyrail/railactors/transport/mem"
)

// hears fails the test when an actor panics: its supervisor would hide it.
type hears struct{ t testing.TB }

func (h hears) Write(b []byte) (int, error) {
	if strings.Contains(string(b), "panicked") {
		h.t.Errorf("%s", b)
	}
	return len(b), nil
}

// half is a node with a communicator of two ranks, of which the other one has never answered.
func half(t testing.TB, rank op.Rank, silent railactors.RailAddress, network *mem.Network) (n *node,
	c *communicator.Communicator, other *railactors.Peer) {
	t.Helper()
	log := slog.New(slog.NewTextHandler(hears{t}, nil))
	first, err := balance.Static([]uint32{1}, 1<<10, nil)
	if err != nil {
		t.Fatal(err)
	}
	n = &node{log: log, warm: dispatch.NewWarm(8), first: first,
		config: Config{Node: "a", Logger: log,
			Engine: engine.Config{EagerBytes: 64 << 10, MaxInFlight: 4, BcubeBase: 2,
				MemoryLimit: 1 << 20, Measured: true}}}
	n.groups.Store(&map[uint64]*member{})
	n.system = newSystem(log)
	n.shared = n.share()
	n.pid = n.system.Root.Spawn(actor.PropsFromFunc(func(actor.Context) {}))
	n.fabric, err = railactors.Start(n.system, railactors.Config{Node: "a", Incarnation: 1, Cluster: "test", RankTimeout: time.Hour, Logger: log,
		Rails: []railactors.RailConfig{{Name: "rail0", Transport: network.Transport("a"), Device: "rail0"}}}, n)
	if err != nil {
		t.Fatal(err)
	}
	n.connect(1)
	other, err = n.fabric.Connect(railactors.Remote{Node: "b", Incarnation: 1, Rails: []railactors.RailAddress{silent}})
	if err != nil {
		t.Fatal(err)
	}
	g := n.shared.NewGroup(1, "train", rank, []string{"a", "b"}, nil, first)
	g.Attach(1-rank, other)
	n.Register(g)
	return n, n.Open(g), other
}

// FuzzControl: whatever control messages a member sends, the others neither panic nor hang: a call
// ends, with an error if the communicator broke. The input is a sequence of messages, each after
// its length.
func FuzzControl(f *testing.F) {
	entry := &messages.TableEntry{Weights: []uint32{1}}
	prepare := func(version uint32, effective uint64, entries ...*messages.TableEntry) *messages.Control {
		return &messages.Control{Body: &messages.Control_Prepare{Prepare: &messages.Prepare{
			Table: &messages.Table{Version: version, Entries: entries}, Effective: effective}}}
	}
	commit := func(version uint32, effective uint64) *messages.Control {
		return &messages.Control{Body: &messages.Control_Commit{Commit: &messages.Commit{Version: version, Effective: effective}}}
	}
	for _, seed := range [][]*messages.Control{
		{{}}, {prepare(2, 5, entry), commit(2, 5)}, {prepare(2, 0, entry)}, {commit(9, 1)}, {prepare(2, 1)},
		{{Body: &messages.Control_Prepare{Prepare: &messages.Prepare{}}}},
		{prepare(2, 5, entry, entry)}, {prepare(1<<31, 1<<63, entry), prepare(3, 4, entry), commit(1<<31, 1<<63)},
		{prepare(2, 5, &messages.TableEntry{Algorithm: 99, MaxBytes: -1, Weights: []uint32{0, 0}})},
		{{Body: &messages.Control_Ready{Ready: &messages.Ready{Version: 2}}}},
		{{Body: &messages.Control_TooLate{TooLate: &messages.TooLate{Version: 2, Next: 1 << 63}}}},
		{{Body: &messages.Control_Windows{Windows: &messages.Windows{Disturbed: true}}}, {Body: &messages.Control_Windows{Windows: &messages.Windows{
			Windows: []*messages.Window{{Rail: 0, SizeClass: 20, Split: 1, Operations: 10, Bytes: 1 << 20, ElapsedNs: 1}, {Rail: 9, SizeClass: 99, Bytes: -1, ElapsedNs: -1}}}}}},
		{{Body: &messages.Control_Abort{Abort: &messages.Abort{Seq: 1, Rank: 99, Code: 99, LostRank: 7, LostNode: "b", Operation: &messages.Descriptor{Kind: 999, Name: "x"}}}}},
		{{Body: &messages.Control_Abort{Abort: &messages.Abort{Seq: 1 << 63, Rank: 1, Code: 1, Reason: strings.Repeat("no", 1000)}}}},
		{{Body: &messages.Control_Leave{Leave: &messages.Leave{Last: 1 << 63}}}, {Body: &messages.Control_LeaveAck{LeaveAck: &messages.LeaveAck{}}}},
		{{Comm: 77, Body: &messages.Control_Leave{Leave: &messages.Leave{}}}, {Body: &messages.Control_RailClosed{RailClosed: &messages.RailClosed{Rail: "rail9"}}}},
	} {
		var b bytes.Buffer
		for _, m := range seed {
			if _, err := protodelim.MarshalTo(&b, m); err != nil {
				f.Fatal(err)
			}
		}
		f.Add(b.Bytes(), true)
		f.Add(b.Bytes(), false)
	}
	f.Fuzz(func(t *testing.T, input []byte, leads bool) {
		network := mem.NewNetwork()
		silent, err := network.Transport("b").Open("rail0") // accepts, and says nothing
		if err != nil {
			t.Fatal(err)
		}
		defer silent.Close()
		rank := op.Rank(1)
		if leads {
			rank = 0
		}
		n, c, other := half(t, rank, railactors.RailAddress{Name: "rail0", Addr: silent.Addr()}, network)
		if leads { // an agreement is under way
			ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			// The other rank doesn't answer.
			_ = c.SetTable(ctx, []table.Entry{{Weights: []uint32{1}}})
			cancel()
		}
		for r := bytes.NewReader(input); ; {
			m := new(messages.Control)
			if protodelim.UnmarshalFrom(r, m) != nil {
				break
			}
			if m.Comm == 0 {
				m.Comm = 1
			}
			n.Control(other, m)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		buf := make([]byte, 64)
		if w, err := c.Start(ctx, &engine.Request{Kind: op.KindAllReduce, DType: op.Uint8,
			Op: op.Sum, Src: buf, Dst: buf}); err == nil {
			if err := w.Wait(ctx); err == nil {
				t.Error("an operation succeeded without the other rank")
			}
		}
		_ = c.Close(ctx) // the other rank doesn't answer
		_ = n.fabric.Close(ctx)
		n.shared.Stop(n.pid)
		n.system.Shutdown()
		n.warm.Close()
		n.shared.Engine.Pool.Close()
	})
}
