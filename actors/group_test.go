package actors

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/asynkron/protoactor-go/actor"
	"google.golang.org/protobuf/proto"

	"github.com/polyrail/polyrail/collective/fault"
	"github.com/polyrail/polyrail/collective/op"
	"github.com/polyrail/polyrail/collective/table"
	"github.com/polyrail/polyrail/messages"
	"github.com/polyrail/polyrail/messages/wire"
	"github.com/polyrail/polyrail/railactors"
	"github.com/polyrail/polyrail/railactors/memory"
	"github.com/polyrail/polyrail/railactors/transport/mem"
)

// A peer's frame opens operation 1, it is called here, and before its caller launches it the
// communicator breaks.
func TestAnOperationThatWasCalledIsItsCallersToEnd(t *testing.T) {
	n := &node{rails: 1}
	n.operations.New = func() any { return new(operation) }
	g := newGroup(n, 1, "train", 0, []string{"a", "b"})
	heard, err := g.find(1)
	if err != nil {
		t.Fatal(err)
	}
	heard.mu.Unlock() // find locks it for its caller
	o, err := g.number(1)
	if err != nil || o != heard {
		t.Fatalf("operation %p, %v; want the one that was heard of, %p", o, err, heard)
	}
	cause := errors.New("another rank called something else")
	open, first := g.fail(1, cause)
	if !first || len(open) != 1 {
		t.Fatalf("%d operations to end, first %v", len(open), first)
	}
	o.abort(g, 1, cause)
	if o.group != g || o.retired || o.cause != cause {
		t.Errorf("pooled under its caller's hands: group %p, retired %v, cause %v", o.group, o.retired, o.cause)
	}
}

// A frame came before its operation, and the batch that it was for can't be run.
func TestACallThatCannotRunGivesItsMemoryBack(t *testing.T) {
	pool := memory.NewPool(1 << 20)
	n := &node{rails: 1, pool: pool, log: slog.New(slog.DiscardHandler)}
	n.groups.Store(&map[uint64]*member{})
	n.operations.New = func() any { return new(operation) }
	g := newGroup(n, 1, "train", 0, []string{"a", "b"})
	o, err := g.find(1)
	if err != nil {
		t.Fatal(err)
	}
	h := wire.Header{Kind: wire.KindData, Flags: wire.FlagEager | wire.FlagUncredited, Length: 1000}
	landing, err := o.landEarly(1, nil, &h)
	o.mu.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	landing.Receiver.Arrived(landing.Tag)
	if pool.Stats().InUse == 0 {
		t.Fatal("the early frame takes no memory")
	}
	if _, err := g.number(1); err != nil {
		t.Fatal(err)
	}
	o.request = &Request{Kind: op.KindAllReduce, DType: op.F32, Batch: &Batch{Buffers: [][]byte{make([]byte, 1000)}}}
	o.request.gather(pool)
	o.work = &Work{group: g, done: make(chan struct{}), slot: make(chan struct{}, 1)}
	o.work.slot <- struct{}{}
	o.cause = errors.New("not defined on float32")
	work := o.work
	o.launch()
	if work.Err() == nil {
		t.Errorf("the call ended with %v", work.Err())
	}
	if s := pool.Stats(); s.InUse != 0 {
		t.Errorf("%d bytes are still in use", s.InUse)
	}
}

// Nobody takes what is sent to node b, and it is not lost yet.
func TestAControlMessageThatFindsNoRoomBreaksTheCommunicator(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := mem.NewNetwork()
		network.Silence("a", "eth0")
		quiet := slog.New(slog.DiscardHandler)
		system := actor.NewActorSystem(actor.WithLoggerFactory(func(*actor.ActorSystem) *slog.Logger { return quiet }))
		n := &node{rails: 1, log: quiet, system: system}
		n.groups.Store(&map[uint64]*member{})
		fabric, err := railactors.Start(system, railactors.Config{Node: "a", Incarnation: 1, Cluster: "test", Logger: quiet,
			Rails: []railactors.RailConfig{{Name: "rail0", Transport: network.Transport("a"), Device: "eth0"}}}, n)
		if err != nil {
			t.Fatal(err)
		}
		peer, err := fabric.Connect(railactors.Remote{Node: "b", Incarnation: 1, Rails: []railactors.RailAddress{{Name: "rail0", Addr: "mem:b/eth0#9"}}})
		if err != nil {
			t.Fatal(err)
		}
		g := newGroup(n, 1, "train", 0, []string{"a", "b"})
		g.attach(1, peer)
		for g.err() == nil {
			if err := peer.SendControl(&messages.Control{Body: &messages.Control_Ready{}}); err != nil {
				g.control(1, &messages.Control{Body: &messages.Control_Windows{Windows: &messages.Windows{}}})
				if g.err() != nil {
					t.Errorf("timings without room broke it: %v", g.err())
				}
				g.control(1, &messages.Control{Body: &messages.Control_Ready{}})
				break
			}
		}
		if err := g.err(); !errors.Is(err, fault.ErrLimit) || !strings.Contains(err.Error(), `rank 1: node "b"`) {
			t.Errorf("it is broken by %v", err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		fabric.Close(ctx) // what waits is not sent any more
		system.Shutdown()
	})
}

// A Prepare takes the committed table along.
func TestTwoOfTheLargestTablesFitAControlFrame(t *testing.T) {
	large := &table.Table{Version: math.MaxUint32}
	for i := range table.MaxEntries {
		large.Entries = append(large.Entries, table.Entry{MaxBytes: math.MaxInt64, Algorithm: math.MaxUint8})
		for range table.MaxRails {
			large.Entries[i].Weights = append(large.Entries[i].Weights, table.MaxWeight)
		}
	}
	m := &messages.Control{Comm: math.MaxUint64, Body: &messages.Control_Prepare{Prepare: prepareMessage(&table.Prepare{
		Table: large, Committed: large, Effective: math.MaxUint64, CommittedEffective: math.MaxUint64})}}
	if n := proto.Size(m); n > wire.MaxControl {
		t.Errorf("%d bytes, the limit is %d", n, wire.MaxControl)
	}
}
