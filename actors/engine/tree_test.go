package engine

import (
	"errors"
	"slices"
	"testing"

	"github.com/polyrail/polyrail/collective/op"
	"github.com/polyrail/polyrail/collective/table"
	"github.com/polyrail/polyrail/messages/wire"
	"github.com/polyrail/polyrail/railactors"
	"github.com/polyrail/polyrail/test/bubble"
)

// treed is rank 0's part of an allreduce of two fragments over a tree.
type treed struct {
	*Operation
	group *Group
	tree  *Tree
	owner alone
}

// withTreed runs a test with one that is ready to be launched.
func withTreed(t *testing.T, run func(*testing.T, *treed)) {
	t.Helper()
	bubble.Test(t, func(t *testing.T) {
		x := &treed{group: testGroup(t, 1)}
		var err error
		x.tree, err = x.group.OpenTree(TreeConfig{Group: 5, Window: 1, FragmentBytes: 1 << 10,
			Node: new(railactors.Peer), Down: func(reason string) { t.Error(reason) }})
		if err != nil {
			t.Fatal(err)
		}
		if x.Operation, err = x.group.Number(1); err != nil {
			t.Fatal(err)
		}
		memory := make([]byte, 2<<10)
		w := x.group.NewWork(&Request{Kind: op.KindAllReduce, DType: op.F32, Op: op.Sum,
			Algorithm: op.Ring, Src: memory, Dst: memory}, make(chan struct{}, 1))
		w.slot <- struct{}{}
		x.Configure(w, &table.Table{Version: 1, Trees: []uint64{5},
			Entries: []table.Entry{{Weights: []uint32{1}, Route: table.Treed}}}, &x.owner)
		if x.cause != nil || len(x.tree.parts) != 1 {
			t.Fatalf("%d parts go over the tree: %v", len(x.tree.parts), x.cause)
		}
		run(t, x)
	})
}

// lands lands the response to a fragment.
func (x *treed) lands(t *testing.T, number uint64) railactors.Receiver {
	t.Helper()
	h := x.header(wire.KindData)
	h.Group, h.Running, h.Length = 5, number, 1<<10
	l, err := x.tree.land(x.tree.Node, 0, &h)
	if err != nil || l.Receiver == nil {
		t.Fatalf("landing %+v, %v", l, err)
	}
	return l.Receiver
}

// released gives back what was sent.
func (x *treed) released() {
	for _, f := range x.owner.frames {
		f.Owner.Released(f, nil)
	}
	x.owner.frames = nil
}

// A communicator breaks between a call and its launch.
func TestAnOperationThatIsNeverLaunchedLeavesNothingInItsTree(t *testing.T) {
	for _, closedFirst := range []bool{false, true} {
		withTreed(t, func(t *testing.T, x *treed) {
			x.group.Fail(errors.New("another rank called something else"), 1)
			if closedFirst {
				x.group.CloseTree(x.tree)
			}
			x.Launch()
			if !closedFirst {
				x.group.CloseTree(x.tree)
			}
			if len(x.owner.frames) != 0 {
				t.Error("it was sent")
			}
			if s := x.group.engine.Pool.Stats(); s.InUse != 0 {
				t.Errorf("tree closed first %v: %d bytes are still in use", closedFirst, s.InUse)
			}
		})
	}
}

// What the ranks tell of a fenced group decides which fragments are made again. No reader may
// write results then.
func TestAFencedTreeIsQuietOnceNobodyHoldsItsMemory(t *testing.T) {
	for name, end := range map[string]func(railactors.Receiver){
		"arrives": func(r railactors.Receiver) { r.Arrived(0, nil) },
		"torn":    func(r railactors.Receiver) { r.Torn(0, errors.New("cut")) },
	} {
		t.Run(name, func(t *testing.T) {
			withTreed(t, func(t *testing.T, x *treed) {
				x.Launch()
				lands := x.lands(t, 0)
				var quiet []uint64
				x.tree.Fence(func(settled uint64) { quiet = append(quiet, settled) })
				x.released()
				if quiet != nil {
					t.Error("quiet while a response lands")
				}
				end(lands)
				if len(quiet) != 1 || quiet[0] != 0 {
					t.Errorf("quiet with %v, want once with nothing settled", quiet)
				}
				if n := x.tree.leaf.Received(); n != 0 {
					t.Errorf("%d responses count that came after the fence", n)
				}
			})
		})
	}
}

// A rail breaks while a response lands: the response comes again over the next connection.
func TestAResponseThatWasTornComesAgain(t *testing.T) {
	withTreed(t, func(t *testing.T, x *treed) {
		x.Launch()
		x.released()
		x.lands(t, 0).Torn(0, errors.New("cut"))
		if n := x.tree.leaf.Received(); n != 0 {
			t.Errorf("%d responses are here", n)
		}
		x.lands(t, 0).Arrived(0, nil)
		x.lands(t, 1)
		if n := x.tree.leaf.Received(); n != 1 {
			t.Errorf("%d responses are here, want the one that came again", n)
		}
	})
}

// What comes for an operation that has failed is not written to its caller's memory. What was
// landing then ends before the operation does.
func TestAResponseAfterAnAbortIsSunk(t *testing.T) {
	withTreed(t, func(t *testing.T, x *treed) {
		x.Launch()
		lands := x.lands(t, 0)
		var revoked []any
		x.group.engine.Revoke = func(owner any) { revoked = append(revoked, owner) }
		x.group.Fail(errors.New("rank 1 is lost"), 1)
		if !slices.Contains(revoked, lands.(any)) {
			t.Error("the memory is not taken back from who fills it")
		}
		x.released()
		if x.work.over() {
			t.Error("it is over while a response lands")
		}
		lands.Torn(0, errors.New("revoked"))
		if !x.work.over() || x.work.Err() == nil {
			t.Errorf("it is not over, or has not failed: %v", x.work.Err())
		}
	})
	withTreed(t, func(t *testing.T, x *treed) {
		x.Launch()
		h := x.header(wire.KindData)
		h.Group, h.Length = 5, 1<<10
		x.group.Fail(errors.New("rank 1 is lost"), 1) // its frame is still held
		if l, err := x.tree.land(x.tree.Node, 0, &h); err != nil || l.Receiver != nil {
			t.Errorf("landing %+v, %v", l, err)
		}
		x.released()
	})
}

// Only who aggregates a group speaks of its fragments.
func TestAnotherNodesWordOnAGroupIsRefused(t *testing.T) {
	withTreed(t, func(t *testing.T, x *treed) {
		x.Launch()
		x.released()
		x.lands(t, 0).Arrived(0, nil)
		for settled, node := range []*railactors.Peer{new(railactors.Peer), x.tree.Node} {
			err := x.tree.settledTo(node, &wire.Header{Running: 1})
			if got := x.tree.leaf.Settled(); got != uint64(settled) || (err == nil) != (settled == 1) {
				t.Errorf("%d fragments are settled, want %d: %v", got, settled, err)
			}
		}
	})
}
