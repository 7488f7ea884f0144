package communicator

import (
	"errors"
	"sync"

	"github.com/polyrail/polyrail/collective/fault"
)

// This file is about how communicators end, on whatever goroutine notices it: no ending
// depends on an actor's mailbox.

// ending is what a group's callers wait on beside the answer to their request, and beside the
// group's Closing and Ended. An actor that is gone gives no answer.
type ending struct {
	gone     chan struct{} // closed when the communicator's actors have stopped, which is last
	goneOnce sync.Once
}

func newEnding() ending { return ending{gone: make(chan struct{})} }

// stopped: the communicator actor has stopped, and all below it.
func (g *Group) stopped() { g.goneOnce.Do(func() { close(g.gone) }) }

// End ends all operations of a communicator with the first cause, and tells the other ranks. It may
// be called on any goroutine that holds no lock of this package or of a peer, and doesn't
// depend on any actor's health. tell is false where the others know already; where they don't, it
// is Fail.
func (g *Group) End(cause error, seq uint64, tell bool) {
	g.Break(cause, seq, func() {
		if tell {
			g.tellConnected(g.abortMessage(seq, cause)) // and they those that they are connected to
		}
		if !errors.Is(cause, fault.ErrClosed) {
			g.node.Log.Warn("communicator broken", "communicator", g.Name, "seq", seq, "cause", cause)
		}
		if g.Announced() {
			g.node.Registry.Broken(g, cause)
		}
	})
}
