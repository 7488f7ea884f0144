package actors

import (
	"errors"
	"testing"

	"github.com/polyrail/polyrail/railactors/memory"
)

// A peer's frame opens operation 1, it is called here, and before its caller launches it the
// communicator breaks.
func TestAnOperationThatWasCalledIsItsCallersToEnd(t *testing.T) {
	n := &node{}
	n.operations.New = func() any { return &operation{scratch: memory.NewArena(memory.NewPool(1 << 20))} }
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
