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
