package aggregation

import (
	"github.com/polyrail/polyrail/collective/op"
	"github.com/polyrail/polyrail/messages/wire"
)

// This file is about operations in which a rank has another part than the others: of a broadcast only
// the root has an operand, of a reduce only the root gets the result. All take part in each fragment,
// with an empty frame where they have nothing: what is settled follows from that.

// fragmentBytes is how long a fragment is, of which a child may send nothing.
func fragmentBytes(h *wire.Header) int {
	if h.Desc.Kind.Rooted() {
		return int(h.Count)
	}
	return int(h.Length)
}

// gives says whether a child may send an operand, and whether it must. Which child of a node's
// children has the root below it is not known above.
func (g *group) gives(child int, d op.Descriptor) (may, must bool) {
	if d.Kind != op.KindBroadcast {
		return true, true
	}
	return g.ranks[child] < 0 || g.ranks[child] == int(d.Root), g.ranks[child] == int(d.Root)
}

// gets reports whether a child is sent the result.
func (g *group) gets(child int, d op.Descriptor) bool {
	isRoot := g.ranks[child] == int(d.Root)
	switch d.Kind {
	case op.KindReduce:
		return isRoot || g.ranks[child] < 0
	case op.KindBroadcast:
		return !isRoot
	}
	return true
}

// passedOn is the child whose operand is a broadcast's value; the first one where none has sent any.
func (f *fragment) passedOn() (child int) {
	for c, b := range f.operands {
		if len(b) > 0 {
			return c
		}
	}
	return 0
}
