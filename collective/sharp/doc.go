// Package sharp holds the pure cores of aggregation trees (SHArP, §III and §IV): Node is an
// aggregation node's part in one group, Leaf a rank's.
//
// An operation's part of a tree lane is cut into fragments, which are numbered through the group's
// life, the same on all ranks. Each rank sends its operand of a fragment to its node as a request.
// A node folds what all its children sent, in a fixed order, and sends that up; the root's value
// comes down as the response. There are no grants: a rank sends fragment N when it has the
// responses of all fragments up to N - window. So a response to N tells each rank that all of them
// have those up to N - window. That bounds a node's memory, and it settles fragments: what is
// settled need never be folded again, and its operand may be overwritten (docs/decisions/034).
//
// The package touches no byte: whoever delivers an event carries out the actions. Nothing here is
// safe for concurrent use.
package sharp

import (
	"fmt"

	"github.com/polyrail/polyrail/collective/op"
)

// Request is what a child says of a fragment. Those of all children must be equal.
type Request struct {
	Seq    uint64 // of the operation
	Table  uint32 // version of its table
	Digest uint64 // of everything that shapes the operation
	Desc   op.Descriptor
	Block  int // whose part it is: the order of its operands follows from it
	Bytes  int
}

// DisagreeError says that two children called different operations.
type DisagreeError struct {
	Number uint64
	A, B   int // children
	OfA    Request
	OfB    Request
}

func (e *DisagreeError) Error() string {
	return fmt.Sprintf("fragment %d is of %v (seq %d, table %d, block %d, %d bytes) for child %d, and of %v "+
		"(seq %d, table %d, block %d, %d bytes) for child %d", e.Number, e.OfA.Desc, e.OfA.Seq, e.OfA.Table,
		e.OfA.Block, e.OfA.Bytes, e.A, e.OfB.Desc, e.OfB.Seq, e.OfB.Table, e.OfB.Block, e.OfB.Bytes, e.B)
}

// ActionKind says what a node wants done.
type ActionKind uint8

// The kinds of action.
const (
	Fold    ActionKind = iota // fold the children's operands of the fragment; answered by Folded
	Forward                   // send the value to the parent; answered by Returned and Released
	Respond                   // send the result to Child; answered by Released
	Cast                      // send the result to many at once; answered by Released, and CastFailed before
	Free                      // nothing reads the fragment's memory any more
	Hold                      // tell the parent that everybody below has the responses below Number
	Settle                    // tell Child that everybody has the responses below Number
)

// Action is what is to be done.
type Action struct {
	Kind   ActionKind
	Number uint64 // of the fragment; Hold, Settle: all below it
	Child  int    // Respond, Settle
}

// Limits of a group's shape.
const (
	MaxWindow    = 1 << 10   // fragments
	FragmentUnit = 256       // bytes, of which a fragment's longest length is a multiple
	MaxFragment  = 256 << 10 // bytes: what a frame carries
)

// CheckShape reports what can't be the window of a group, in fragments, or its longest fragment, in
// bytes.
func CheckShape(window, fragmentBytes int) error {
	switch {
	case window < 1 || window > MaxWindow:
		return fmt.Errorf("a window of %d fragments is not in 1 to %d", window, MaxWindow)
	case fragmentBytes < FragmentUnit || fragmentBytes > MaxFragment || fragmentBytes%FragmentUnit != 0:
		return fmt.Errorf("fragments of %d bytes: needs a multiple of %d from %d to %d", fragmentBytes,
			FragmentUnit, FragmentUnit, MaxFragment)
	}
	return nil
}
