package actors

import (
	"time"

	"github.com/polyrail/polyrail/collective/balance"
	"github.com/polyrail/polyrail/collective/op"
	"github.com/polyrail/polyrail/collective/table"
	"github.com/polyrail/polyrail/messages"
	"github.com/polyrail/polyrail/railactors"
)

// The messages between the actors of this package. They are immutable once sent.

// startOperation asks the coordinator for a seq. Sent by a caller's goroutine; answered
// on request.ready with request.op set, or request.err.
type startOperation struct{ request *Request }

// beginOperation hands a numbered operation to a pooled operation actor. Sent by the
// coordinator before it answers the caller.
type beginOperation struct {
	operation *operation
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
	operation *operation
	actor     *operationActor
}

// operationExpired is the operation's own timer.
type operationExpired struct{ seq uint64 }

// railFinished: a rail has nothing more to do for the operation, and took what its entry says. Sent by the operation
// actor to the rail's worker, by that one to the balancer, which joins what belongs together and gives both back to their pools.
type railFinished struct {
	operation *operationTimed
	index     int // in operation.rails
}

// operationTimed is what the rails took for an operation.
type operationTimed struct {
	family    table.Family
	table     uint32
	bytes     int // the operation's size
	standsFor int // how many operations it is one of
	rails     []balance.RailTime
	finished  int // the balancer's: how many of rails were reported
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
