package communicator

import (
	"sync/atomic"
	"time"

	"github.com/polyrail/polyrail/actors/engine"
	"github.com/polyrail/polyrail/collective/op"
	"github.com/polyrail/polyrail/collective/table"
	"github.com/polyrail/polyrail/messages"
)

// The messages between the actors of this package. They are immutable once sent.

// startOperation is a call between its caller and the coordinator: it asks for a seq. Sent by the
// caller's goroutine; answered on ready with operation set, or err.
type startOperation struct {
	work *engine.Work // with its request
	// Called by the coordinator before anything is sent; may be nil.
	entered   func(seq uint64, inForce *table.Table)
	ready     chan struct{}     // answered by the coordinator
	operation *engine.Operation // the answer …
	err       error             // … or why there is none
	// Taken by the coordinator, which answers for sure then, or by a caller that waits no longer.
	taken atomic.Bool
	// When it was made; set where operations have a timeout.
	called time.Time
}

// beginOperation hands a numbered operation that has a timeout to its operation actor. Sent by the
// coordinator before it answers the caller.
type beginOperation struct {
	operation *engine.Operation
	timeout   time.Duration
}

// handingFailed: a frame could not be handed to a peer. Sent to the worker of its rail by whoever
// carried out a Send action.
type handingFailed struct{ reason any }

// operationEnded: nothing refers to the operation any more. Sent by the goroutine that
// saw its last event to the operation actor.
type operationEnded struct {
	operation *engine.Operation
	timed     *engine.Timed // nil: nothing to report
}

// Control is a message from another rank about one communicator. From the fabric to the
// communicator actor.
type Control struct {
	From op.Rank
	Body *messages.Control
}

// closeCommunicator starts the farewell. said is closed when it is on its way; answered on done when
// every member has acknowledged.
type closeCommunicator struct {
	said chan struct{}
	done chan error
}

// MemberGone says that a rank's node is lost or has left, and answers no farewell. From the node to
// the communicator actor.
type MemberGone op.Rank

// Rendezvous is what a node says that aggregates. From gossip to the communicator actor, and by
// that one to the trees actor.
type Rendezvous struct {
	From    string
	Message *messages.Rendezvous
}

// TreeDown says that this rank can't reach a group's aggregation node over the group's rail, or
// that the node serves the group no more. From the fabric through the communicator actor to the
// trees actor.
type TreeDown struct {
	Group  uint64
	Reason string
}

// treesWake is the trees actor's own timer.
type treesWake struct{}

// treeConnected: this rank's connection to a tree's node is there, or err says why not. Sent by the
// goroutine that waits for it to the trees actor.
type treeConnected struct {
	group uint64
	err   error
}

// treeQuiet: nothing here holds memory of a fenced group. From whoever let go last to the trees
// actor.
type treeQuiet struct {
	group, settled uint64
}

// proposeTree asks the coordinator of rank 0 to have the table name a rail's group, or none. Sent
// by the trees actor.
type proposeTree struct {
	rail  int
	group uint64
}

// tableCommitted: another table was agreed on, with these trees by rail. Named are those that
// operations to come may be given to, by this table or by earlier ones. From the coordinator to the
// trees actor.
type tableCommitted struct{ trees, named []uint64 }

// What may still be on its way when its receiver has ended: no news for the log. Who waits for an
// answer waits for the receiver's end too.
func (MemberGone) IgnoreDeadLetterLogging()         {}
func (*operationEnded) IgnoreDeadLetterLogging()    {}
func (*Control) IgnoreDeadLetterLogging()           {}
func (*startOperation) IgnoreDeadLetterLogging()    {}
func (*closeCommunicator) IgnoreDeadLetterLogging() {}
func (*Rendezvous) IgnoreDeadLetterLogging()        {}
func (*TreeDown) IgnoreDeadLetterLogging()          {}
func (treesWake) IgnoreDeadLetterLogging()          {}
func (*treeConnected) IgnoreDeadLetterLogging()     {}
func (*treeQuiet) IgnoreDeadLetterLogging()         {}
func (proposeTree) IgnoreDeadLetterLogging()        {}
func (tableCommitted) IgnoreDeadLetterLogging()     {}
