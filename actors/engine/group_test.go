package engine

import (
	"errors"
	"slices"
	"testing"

	"github.com/polyrail/polyrail/collective/op"
	"github.com/polyrail/polyrail/collective/table"
	"github.com/polyrail/polyrail/collective/view"
	"github.com/polyrail/polyrail/messages/wire"
	"github.com/polyrail/polyrail/railactors"
)

// testGroup is rank 0's group of nodes a and b, whose communicator does no more than break.
func testGroup(t *testing.T, rails int) *Group {
	t.Helper()
	e := New(Config{MemoryLimit: 1 << 20, Measured: true})
	e.Rails, e.Revoke, e.Closed = rails, func(any) {}, func() error { return nil }
	g := e.NewGroup(7, "train", 0, []string{"a", "b"}, nil, nil)
	g.Fail = func(cause error, seq uint64) { g.Break(cause, seq, func() {}) }
	t.Cleanup(func() { // what a test leaves in flight is not asked after: there are no peers
		g.mu.Lock()
		defer g.mu.Unlock()
		g.broken = errors.New("the test is over")
	})
	return g
}

// A peer's frame opens operation 1, it is called here, and before its caller launches it the
// communicator breaks.
func TestAnOperationThatWasCalledIsItsCallersToEnd(t *testing.T) {
	g := testGroup(t, 1)
	heard, err := g.find(1)
	if err != nil {
		t.Fatal(err)
	}
	heard.mu.Unlock() // find locks it for its caller
	o, err := g.Number(1)
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
	g := testGroup(t, 1)
	pool := g.engine.Pool
	o, err := g.find(1)
	if err != nil {
		t.Fatal(err)
	}
	h := wire.Header{Kind: wire.KindData, Flags: wire.FlagEager | wire.FlagUncredited, Length: 1000}
	landing, err := o.landEarly(1, nil, 0, &h)
	o.mu.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	landing.Receiver.Arrived(landing.Tag, nil)
	if pool.Stats().InUse == 0 {
		t.Fatal("the early frame takes no memory")
	}
	if _, err := g.Number(1); err != nil {
		t.Fatal(err)
	}
	o.request = &Request{Kind: op.KindAllReduce, DType: op.F32,
		Batch: &Batch{Buffers: [][]byte{make([]byte, 1000)}}}
	o.request.gather(pool)
	o.work = g.NewWork(o.request, make(chan struct{}, 1))
	o.work.slot <- struct{}{}
	o.cause = errors.New("not defined on float32")
	work := o.work
	o.Launch()
	if work.Err() == nil {
		t.Errorf("the call ended with %v", work.Err())
	}
	if s := pool.Stats(); s.InUse != 0 {
		t.Errorf("%d bytes are still in use", s.InUse)
	}
}

// What keeping a frame takes counts beside its data: frames without any are limited, too.
func TestEarlyDataWithoutCreditIsLimited(t *testing.T) {
	for _, length := range []uint32{0, 1, wire.MaxPayload} {
		g := testGroup(t, 1)
		h := wire.Header{Kind: wire.KindData, Flags: wire.FlagEager | wire.FlagUncredited, Length: length}
		most := maxUncredited / (int(length) + wire.EagerCost)
		var landings []railactors.Landing
		var refusal error
		for i := 0; refusal == nil && i <= most; i++ {
			o, err := g.find(uint64(1 + i%maxAhead))
			if err != nil {
				t.Fatal(err)
			}
			l, err := o.landEarly(1, nil, 0, &h)
			o.mu.Unlock()
			if refusal = err; err == nil {
				landings = append(landings, l)
			}
		}
		if n := len(landings); n != most || refusal == nil {
			t.Errorf("%d frames of %d bytes came, want %d: %v", n, length, most, refusal)
		}
		for _, l := range landings {
			l.Receiver.Torn(l.Tag, errors.New("cut"))
		}
		if left := g.uncredited[1].Load(); left != 0 {
			t.Errorf("%d bytes are still counted", left)
		}
	}
}

// A rail breaks while an early frame comes, and its memory goes to another one.
func TestAnEarlyFrameThatWasTornIsNoLongerTheOperations(t *testing.T) {
	g := testGroup(t, 1)
	h := wire.Header{Kind: wire.KindData, Flags: wire.FlagEager | wire.FlagUncredited, Length: 8}
	var landed [2]railactors.Landing
	o, err := g.find(1)
	if err != nil {
		t.Fatal(err)
	}
	for i := range landed {
		if landed[i], err = o.landEarly(1, nil, 0, &h); err != nil {
			t.Fatal(err)
		}
	}
	o.mu.Unlock()
	landed[0].Receiver.Torn(landed[0].Tag, errors.New("cut"))
	landed[1].Receiver.Arrived(landed[1].Tag, nil)
	o.mu.Lock()
	defer o.mu.Unlock()
	if whole, _ := o.drain(); len(whole) != 1 || whole[0] != landed[1].Receiver || len(o.early) != 0 {
		t.Errorf("the operation has %v, and waits for %v; want the frame that arrived", whole, o.early)
	}
}

// A rank that asks again and again takes one place, and leaves that of another rank free: each gets
// one grant when the operation is called here.
func TestARankThatWantsOftenIsKeptOnce(t *testing.T) {
	g := testGroup(t, 1)
	often, other := new(railactors.Peer), new(railactors.Peer)
	g.Attach(1, often)
	g.ranks[other] = 2
	h := wire.Header{Kind: wire.KindWant, Seq: 1}
	for range 2 * maxEarly {
		if err := g.Wanted(often, &h); err != nil {
			t.Fatal(err)
		}
	}
	if err := g.Wanted(other, &h); err != nil {
		t.Fatal(err)
	}
	o, err := g.find(1)
	if err != nil {
		t.Fatal(err)
	}
	defer o.mu.Unlock()
	if _, wants := o.drain(); !slices.Equal(wants, []*railactors.Peer{often, other}) {
		t.Errorf("%d grants are to be given, want one to each of two ranks", len(wants))
	}
}

func TestACallerLooksForFramesInTheOrderOfItsSum(t *testing.T) {
	ranks := []op.Rank{1, 2, 4}
	for own, want := range map[op.Rank][]op.Rank{0: {1, 2, 4}, 3: {4, 1, 2}, 5: {1, 2, 4}} {
		for i := range ranks {
			if got := inTurn(ranks, own, i); got != want[i] {
				t.Errorf("rank %d looks for rank %d as number %d, want %d", own, got, i, want[i])
			}
		}
	}
}

// Where all ranks share memory, operations of four times the size go without a grant.
func TestOperationsGoWithoutGrantsUpToALimit(t *testing.T) {
	here := view.Host{Name: "h", Memory: "m"}
	first := &table.Table{Version: 1, Entries: []table.Entry{{Weights: []uint32{1}}}}
	for _, c := range []struct {
		hosts       []view.Host
		limit, want int
	}{
		{nil, 256 << 10, 256 << 10},
		{nil, 0, 0},
		{[]view.Host{here, {Name: "i", Memory: "m"}}, 256 << 10, 256 << 10},
		{[]view.Host{here, here}, 256 << 10, 1 << 20},
		{[]view.Host{here, here}, 0, 0},
	} {
		e := New(Config{MemoryLimit: 1 << 20, EagerBytes: c.limit})
		e.Rails = 1
		g := e.NewGroup(7, "train", 0, []string{"a", "b"}, c.hosts, first)
		if got := g.eagerBytes(); got != c.want {
			t.Errorf("limit %d on hosts %v: without grants up to %d bytes, want %d", c.limit, c.hosts, got, c.want)
		}
	}
}
