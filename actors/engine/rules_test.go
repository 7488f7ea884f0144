package engine

import (
	"context"
	"errors"
	"math"
	"testing"

	"github.com/polyrail/polyrail/collective/fault"
	"github.com/polyrail/polyrail/collective/op"
	"github.com/polyrail/polyrail/collective/task"
	"github.com/polyrail/polyrail/messages/wire"
	"github.com/polyrail/polyrail/railactors"
)

// heard is operation 1 of a group, of which peers alone have spoken. It is locked.
func heard(t *testing.T, g *Group) *Operation {
	t.Helper()
	o, err := g.find(1)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// Anybody in the group can grant on any lane, as often as it likes.
func TestGrantsThatComeEarlyAreKeptOnceForEachLane(t *testing.T) {
	g := testGroup(t, 2)
	o := heard(t, g)
	defer o.mu.Unlock()
	for lane := range uint16(100) {
		for _, count := range []uint32{1, 3, 2} {
			o.keepGrant(1, &wire.Header{Lane: lane, Count: count, Digest: 7})
		}
	}
	if n := len(o.grants); n != 4 { // a lane for each rail, and for its repair
		t.Fatalf("%d grants are kept", n)
	}
	for lane, g := range o.grants {
		if int(g.header.Lane) != lane || g.header.Count != 3 {
			t.Errorf("lane %d has %d", g.header.Lane, g.header.Count)
		}
	}
	o.keepGrant(1, &wire.Header{Lane: 1, Count: 1, Digest: 8}) // of another operation: it is to be told
	if h := o.grants[1].header; h.Digest != 8 {
		t.Errorf("a grant that differs is not kept: %+v", h)
	}
}

func TestEarlyFramesAreLimitedAndKeepTheirCredit(t *testing.T) {
	g := testGroup(t, 1)
	o := heard(t, g)
	defer o.mu.Unlock()
	if _, err := o.landEarly(1, nil, 0, &wire.Header{Kind: wire.KindData}); err == nil {
		t.Error("data that was not granted is kept")
	}
	h := wire.Header{Kind: wire.KindData, Flags: wire.FlagEager}
	for i := range maxEarly * g.Size {
		if l, err := o.landEarly(1, nil, 0, &h); err != nil || !l.Keeps {
			t.Fatalf("frame %d: %+v, %v", i, l, err)
		}
	}
	if o.holds != maxEarly*g.Size {
		t.Errorf("%d frames hold the operation", o.holds)
	}
	if _, err := o.landEarly(1, nil, 0, &h); err == nil {
		t.Error("there is no limit")
	}
}

// A rank that closes its communicator has called what it says, and nothing after that.
func TestADepartureEndsWhatCannotFinishAndNothingElse(t *testing.T) {
	for numbered := uint64(0); numbered < 4; numbered++ {
		g := testGroup(t, 1)
		for seq := uint64(1); seq <= numbered; seq++ {
			if _, err := g.Number(seq); err != nil {
				t.Fatal(err)
			}
		}
		err := g.Depart(1, 2)
		var left *fault.AbortError
		if got := errors.As(err, &left); got != (numbered > 2) || got && (left.Rank != 1 || left.Node != "b") {
			t.Errorf("%d were called: %v", numbered, err)
		}
		if numbered > 2 {
			continue
		}
		for seq := numbered + 1; seq < 4; seq++ {
			if _, err := g.Number(seq); errors.As(err, &left) != (seq > 2) {
				t.Errorf("operation %d after %d: %v", seq, numbered, err)
			}
		}
	}
}

// A frame of an operation that is over may be late if it is no data and of the same operation. Any other
// one is of a rank that has called something else.
func TestAFrameAfterTheEndIsLateOrAMismatch(t *testing.T) {
	for _, c := range []struct {
		seq, digest    uint64
		asks, mismatch bool
	}{
		{1, 7, true, false}, {1, 8, true, true}, {1, 7, false, true}, {1, 8, false, true},
		{1 + remembered, 9, true, false}, {1 + remembered, 9, false, true}, // nobody knows any more
	} {
		g := testGroup(t, 1)
		g.past[1] = pastOperation{seq: 1, digest: 7}
		fail, failed := g.Fail, 0
		g.Fail = func(cause error, seq uint64) { failed++; fail(cause, seq) }
		h := wire.Header{Seq: c.seq, Digest: c.digest}
		g.late(1, &h, c.asks)
		var mismatch *fault.MismatchError
		if got := errors.As(g.Err(), &mismatch); got != c.mismatch || got && (mismatch.Rank != 1 || mismatch.Node != "b") {
			t.Errorf("%+v: %v", c, g.Err())
		}
		if g.late(1, &h, false); failed > 1 && c.mismatch {
			t.Errorf("%+v: it fails again after the group has", c)
		}
	}
}

// What ends one operation of a pool leaves its next life alone.
func TestAnAbortIsOfOneOperation(t *testing.T) {
	cause := errors.New("the first")
	g, other := testGroup(t, 1), testGroup(t, 1)
	o, err := g.Number(1)
	if err != nil {
		t.Fatal(err)
	}
	o.abort(other, 1, cause)
	o.abort(g, 2, cause)
	o.retired = true
	o.abort(g, 1, cause)
	o.retired = false
	if o.cause != nil {
		t.Fatal("another operation's end ends it")
	}
	o.abort(g, 1, cause)
	o.abort(g, 1, errors.New("the second"))
	if o.cause != cause || o.holds != 0 {
		t.Errorf("it ends with %v, %d hold it", o.cause, o.holds)
	}
}

func TestAPooledOperationBringsNothingAlong(t *testing.T) {
	g := testGroup(t, 1)
	memory := make([]byte, 1)
	o := &Operation{phase: phaseRunning, cause: errors.New("a"), givenUp: errors.New("b"), settled: true, retired: true,
		holds: 1, ticks: 1, early: make([]*earlyFrame, 1), grants: make([]earlyGrant, 1), wants: make([]*railactors.Peer, 1),
		trees: make([]*treePart, 1), called: make([]op.Rank, 1), kept: memory, lingers: true, unresolved: 1, unretired: 1,
		parts: []part{{active: true}}, repaired: true}
	o.shown.active = true
	o.early[0] = &earlyFrame{}
	o.wants[0] = new(railactors.Peer)
	early, wants := o.early, o.wants
	o.release()
	o.reuse(g, 2)
	if o.group != g || o.Seq != 2 || o.phase != phaseHeard || o.cause != nil || o.givenUp != nil || o.settled || o.retired ||
		o.holds+o.ticks+o.unresolved+o.unretired+len(o.early)+len(o.grants)+len(o.wants)+len(o.called)+len(o.trees) != 0 ||
		o.kept != nil || o.lingers || o.repaired || o.shown.active || o.parts[0].active {
		t.Errorf("%+v", o)
	}
	if early[0] != nil || wants[0] != nil {
		t.Error("it keeps alive what came early")
	}
}

func TestFramesOfAnotherShapeOrTableAreAMismatch(t *testing.T) {
	o := &Operation{group: testGroup(t, 1)}
	o.shape.digest, o.shape.table = 1, 1
	for h, same := range map[wire.Header]bool{{Digest: 1, Table: 1}: true, {Digest: 2, Table: 1}: false, {Digest: 1, Table: 2}: false} {
		err := o.compare(1, &h)
		if mismatch := (*fault.MismatchError)(nil); errors.As(err, &mismatch) == same || !same && mismatch.Node != "b" {
			t.Errorf("digest %d, table %d: %v", h.Digest, h.Table, err)
		}
	}
}

// What comes after an abort is late. What can't be placed otherwise is the fault of its sender.
func TestAFrameThatHasNoPlaceEndsTheOperationUnlessItIsLate(t *testing.T) {
	g := testGroup(t, 1)
	o := &Operation{group: g, Seq: 1}
	o.refuse(1, &wire.Header{}, task.ErrAborted)
	if g.Err() != nil || g.DroppedFrames.Load() != 1 {
		t.Errorf("a late frame: %v, %d dropped", g.Err(), g.DroppedFrames.Load())
	}
	o.refuse(1, &wire.Header{}, errors.New("no such span"))
	if !errors.Is(g.Err(), fault.ErrInternal) {
		t.Errorf("a frame without a place: %v", g.Err())
	}
}

func TestALaneOfAFrameIsOneThatCarriesSomething(t *testing.T) {
	o := &Operation{parts: []part{{active: true}, {}}}
	for lane, fits := range map[int]bool{-1: false, 0: true, 1: false, 2: false, math.MaxUint16: false} {
		if p, err := o.part(lane); (err == nil) != fits || fits && p != &o.parts[0] {
			t.Errorf("lane %d: %v", lane, err)
		}
	}
}

// A frame is revoked since its operation has ended, for a reason of its own.
func TestAFrameThatWasRevokedIsNoFailure(t *testing.T) {
	x := newScattered(t, op.Sum, op.F32, false)
	for _, f := range x.owner.frames {
		f.Owner.Released(f, railactors.ErrRevoked)
	}
	if err := x.group.Err(); err != nil {
		t.Error(err)
	}
}

// An operation ends while a reader fills an early frame of it. The frame goes when that is done.
func TestAnEarlyFrameThatArrivesAfterTheEndIsDropped(t *testing.T) {
	g := testGroup(t, 1)
	o := heard(t, g)
	h := wire.Header{Kind: wire.KindData, Flags: wire.FlagEager | wire.FlagUncredited, Length: 1000}
	l, err := o.landEarly(1, nil, 0, &h)
	o.mu.Unlock()
	if err == nil {
		_, err = g.Number(1) // Launch, which does not come, forgets it
	}
	if err != nil {
		t.Fatal(err)
	}
	o.abort(g, 1, errors.New("the end"))
	if g.engine.Pool.Stats().InUse == 0 {
		t.Fatal("its memory is given away while a reader writes it")
	}
	l.Receiver.Arrived(l.Tag, nil)
	if use := g.engine.Pool.Stats().InUse; use != 0 || len(o.early) != 0 || o.holds != 0 {
		t.Errorf("%d bytes are in use, %d frames are kept, %d hold it", use, len(o.early), o.holds)
	}
}

func TestABrokenGroupSaysSoToEverybody(t *testing.T) {
	g := testGroup(t, 1)
	if _, err := g.Number(1); err != nil {
		t.Fatal(err)
	}
	first, second := g.Quiet(), g.Quiet() // two may wait
	cause := errors.New("the end")
	open, _ := g.fail(1, cause)
	if len(open) != 1 || open[0].seq != 1 {
		t.Errorf("%d operations to end", len(open))
	}
	select {
	case <-g.Ended:
	default:
		t.Error("who waits for its end waits on")
	}
	if _, again := g.fail(2, errors.New("another")); again || !errors.Is(g.Err(), cause) {
		t.Errorf("it is broken again, %v", g.Err())
	}
	g.mu.Lock()
	g.deactivate()
	g.mu.Unlock()
	for _, quiet := range []<-chan struct{}{first, second, g.Quiet()} {
		select {
		case <-quiet:
		default:
			t.Error("it is quiet, and somebody waits on")
		}
	}
}

func TestAGroupOfAClosedNodeTakesNoCalls(t *testing.T) {
	g := testGroup(t, 1)
	g.engine.Closed = func() error { return fault.ErrClosed }
	if _, err := g.Number(1); !errors.Is(err, fault.ErrClosed) || !errors.Is(g.Usable(), fault.ErrClosed) {
		t.Errorf("it takes calls: %v, %v", err, g.Usable())
	}
}

// An error may name a rank, and a node, of another communicator.
func TestARankHasItsNodeAndNoOther(t *testing.T) {
	g := testGroup(t, 1)
	for _, c := range []struct {
		rank op.Rank
		node string
		has  bool
	}{{0, "a", true}, {1, "b", true}, {0, "b", false}, {-1, "", false}, {2, "", false}, {2, "a", false}, {-1, "b", false}} {
		if got := g.Has(c.rank, c.node); got != c.has {
			t.Errorf("rank %d of node %q: %v", c.rank, c.node, got)
		}
	}
}

func TestWhatHasComeCountsWhereTheContextHasEndedToo(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	come := make(chan struct{})
	if Came(ctx, come) {
		t.Error("it has not come")
	}
	close(come)
	for range 100 { // select takes either
		if !Came(ctx, come) {
			t.Fatal("it has come")
		}
	}
}

// An operation that ends takes its memory back from readers and writers: a rail may be silent.
func TestAnOperationThatIsAbortedTakesItsMemoryBack(t *testing.T) {
	x := newScattered(t, op.Sum, op.F32, false)
	var revoked []any
	g := x.group
	g.engine.Revoke = func(owner any) { revoked = append(revoked, owner) }
	g.Fail(errors.New("the end"), 1)
	if len(revoked) != 1 || revoked[0] != any(x.Operation) {
		t.Errorf("%v is revoked", revoked)
	}
}
