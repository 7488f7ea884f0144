package actors

import (
	"sync/atomic"
	"time"

	"github.com/polyrail/polyrail/actors/engine"
	"github.com/polyrail/polyrail/collective/balance"
	"github.com/polyrail/polyrail/collective/op"
	"github.com/polyrail/polyrail/collective/table"
	"github.com/polyrail/polyrail/messages"
	"github.com/polyrail/polyrail/railactors"
)

// The messages between the actors of this package. They are immutable once sent.

// startOperation is a call between its caller and the coordinator: it asks for a seq. Sent by the caller's goroutine;
// answered on ready with operation set, or err.
type startOperation struct {
	request   *engine.Request
	work      *engine.Work
	entered   func(seq uint64, inForce *table.Table) // called by the coordinator before anything is sent; may be nil
	ready     chan struct{}                          // answered by the coordinator
	operation *engine.Operation                      // the answer …
	err       error                                  // … or why there is none
	taken     atomic.Bool                            // by the coordinator, which answers for sure then, or by a caller that waits no longer
	called    time.Time                              // when it was made; set where operations have a timeout
}

// beginOperation hands a numbered operation to a pooled operation actor. Sent by the
// coordinator before it answers the caller.
type beginOperation struct {
	operation *engine.Operation
	timeout   time.Duration // 0: none
}

// transmit asks a worker to send one frame. Sent by whoever carries out a Send action.
type transmit struct {
	frame *railactors.Frame
	to    *railactors.Peer
}

// operationEnded: nothing refers to the operation any more. Sent by the goroutine that
// saw its last event to the operation actor, by that one to the coordinator.
type operationEnded struct {
	operation *engine.Operation
	actor     *operationActor
}

// operationExpired is the operation's own timer.
type operationExpired struct{ seq uint64 }

// railFinished: a rail has nothing more to do for the operation, and took what its entry says. Sent by the operation
// actor to the rail's worker, by that one to the balancer, which joins what belongs together and gives both back to their pools.
type railFinished struct {
	operation *engine.Timed
	index     int // in operation.Rails
}

// railChanged: a rail to another member was lost, or has come back. From the fabric through the communicator
// actor to the balancer.
type railChanged struct{}

// controlMessage is a message from another node about one communicator.
type controlMessage struct {
	from op.Rank
	body *messages.Control
}

// proposeTable asks the coordinator of rank 0 to publish a table. Sent by a caller's goroutine, or by the
// balancer through the communicator. Answered on done.
type proposeTable struct {
	entries  []table.Entry
	balanced bool       // the balancer's: not followed once a caller has set a table
	done     chan error // has room for the answer
}

// tablePinned tells rank 0's balancer that a caller has set the table: it measures, and changes nothing any more.
type tablePinned struct{}

// probed are the times of each rail alone. Sent by the goroutine that formed the communicator, on rank 0.
type probed struct {
	timings []probeTiming
	saved   *balance.Saved // what the tuning file says; nil: nothing
	done    chan error     // has room for the answer: a table made of them is agreed on
}

// saveBalance asks rank 0's balancer for what it has learned. Sent by the goroutine that writes the tuning
// file. Answered on done.
type saveBalance struct{ done chan learned }

// learned answers saveBalance; ok: there is something new since the last time.
type learned struct {
	saved balance.Saved
	ok    bool
}

// explainBalance asks rank 0's balancer for what it knows. Answered on done.
type explainBalance struct{ done chan balance.Report }

// closeCommunicator starts the farewell. Answered on done when every member has acknowledged.
type closeCommunicator struct{ done chan error }

// memberLost: a rank's node is lost, and will not answer a farewell. From the fabric to the communicator actor.
type memberLost op.Rank

// What may still be on its way when its receiver has ended: no news for the log. Who waits for an answer waits for
// the receiver's end too.
func (memberLost) IgnoreDeadLetterLogging()         {}
func (*operationEnded) IgnoreDeadLetterLogging()    {}
func (*railFinished) IgnoreDeadLetterLogging()      {}
func (railChanged) IgnoreDeadLetterLogging()        {}
func (*controlMessage) IgnoreDeadLetterLogging()    {}
func (*saveBalance) IgnoreDeadLetterLogging()       {}
func (*explainBalance) IgnoreDeadLetterLogging()    {}
func (*proposeTable) IgnoreDeadLetterLogging()      {}
func (*probed) IgnoreDeadLetterLogging()            {}
func (*startOperation) IgnoreDeadLetterLogging()    {}
func (*closeCommunicator) IgnoreDeadLetterLogging() {}
func (peerLost) IgnoreDeadLetterLogging()           {}
func (*communicatorCall) IgnoreDeadLetterLogging()  {}
func (*cancelCall) IgnoreDeadLetterLogging()        {}
func (*reached) IgnoreDeadLetterLogging()           {}
func (*barrierDone) IgnoreDeadLetterLogging()       {}
func (wake) IgnoreDeadLetterLogging()               {}
