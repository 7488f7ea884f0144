package engine

import (
	"errors"
	"testing"

	"github.com/polyrail/polyrail/collective/fault"
	"github.com/polyrail/polyrail/collective/op"
)

// The frames of a lost node are given back before its loss is told. Rails know nodes, and no ranks.
func TestAnOperationWhoseFramesALossGivesBackNamesTheRank(t *testing.T) {
	x := newScattered(t, op.Sum, op.F32, false)
	if len(x.owner.frames) == 0 {
		t.Fatal("nothing is on its way")
	}
	for _, f := range x.owner.frames {
		f.Owner.Released(f, &fault.RankLostError{Rank: -1, Node: "b", Reason: "it is gone"})
	}
	var lost *fault.RankLostError
	if err := x.work.Err(); !errors.As(err, &lost) || lost.Rank != 1 || lost.Node != "b" {
		t.Errorf("it ended with %v, want rank 1, node b, lost", err)
	}
}

// An operation comes to its end as its caller gives it up. It has ended well and the group lives, or it
// has failed and the group is broken.
func TestAnOperationThatIsGivenUpAtItsEndFailsWithItsGroupOrNotAtAll(t *testing.T) {
	cause := errors.New("its context has ended")
	for _, late := range []bool{false, true} {
		g := testGroup(t, 1)
		o, err := g.Number(1)
		if err != nil {
			t.Fatal(err)
		}
		o.request = &Request{Kind: op.KindBarrier}
		o.work = g.NewWork(o.request, make(chan struct{}, 1))
		fail := g.Fail
		if late {
			o.resolve()
		} else {
			g.Fail = func(cause error, seq uint64) { g.Fail = fail; o.resolve() } // before the group breaks
		}
		g.giveUp(1, cause)
		if got := o.work.Err(); late != (got == nil) || late == errors.Is(got, cause) {
			t.Errorf("given up late %v: it ended with %v", late, got)
		}
		if broken := g.Err(); late != (broken == nil) {
			t.Errorf("given up late %v: the group is left with %v", late, broken)
		}
	}
}
