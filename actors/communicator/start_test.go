package communicator

import (
	"context"
	"errors"
	"testing"

	"github.com/polyrail/polyrail/actors/engine"
	"github.com/polyrail/polyrail/collective/fault"
)

// What the ranks agree on comes as mail, and may come on a rail that is quiet between operations. A
// call that it holds back has it read at once.
func TestACallThatATableHoldsBackListens(t *testing.T) {
	n := quietNode(1)
	defer n.System.Shutdown()
	listening := make(chan int32, 2)
	n.Engine.Listening = func(d int32) { listening <- d }
	c := &Communicator{Group: n.NewGroup(1, "train", 0, []string{"a", "b"}, nil, nil)}
	enough := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	ended := make(chan error)
	go func() { ended <- c.numbered(ctx, &engine.Request{}, n.newStart()) }()
	if d := <-listening; d != 1 {
		t.Errorf("listening changed by %d", d)
	}
	cancel(enough)
	if err := <-ended; !errors.Is(err, enough) {
		t.Errorf("got %v", err)
	}
	if d := <-listening; d != -1 {
		t.Errorf("listening changed by %d in the end", d)
	}
}

// Close waits for what is in flight. A call that came too late does not end that.
func TestACallOnAClosedCommunicatorBreaksNothing(t *testing.T) {
	n := quietNode(1)
	defer n.System.Shutdown()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for range 50 { // where two things are true, chance decides which one is seen
		c := &Communicator{Group: n.NewGroup(1, "train", 0, []string{"a", "b"}, nil, nil),
			slots: make(chan struct{})}
		c.Group.Shut()
		if err := c.slot(ctx); !errors.Is(err, fault.ErrClosed) {
			t.Fatalf("waiting for room: %v", err)
		}
		if err := c.numbered(ctx, &engine.Request{}, n.newStart()); !errors.Is(err, fault.ErrClosed) {
			t.Fatalf("waiting for a number: %v", err)
		}
		if _, cause := c.Group.Cause(); cause != nil {
			t.Fatalf("the communicator broke: %v", cause)
		}
	}
}

// A table that is in force is no failure, whatever ended meanwhile.
func TestATableThatWasAgreedOnIsNoFailure(t *testing.T) {
	n := quietNode(1)
	defer n.System.Shutdown()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	g := n.NewGroup(1, "train", 0, []string{"a", "b"}, nil, nil)
	for range 50 { // chance again
		done := make(chan error, 1)
		done <- nil
		if err := g.Balance.Agreed(ctx, done); err != nil {
			t.Fatal(err)
		}
	}
}
