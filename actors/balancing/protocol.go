package balancing

import (
	"github.com/polyrail/polyrail/actors/engine"
	"github.com/polyrail/polyrail/collective/balance"
	"github.com/polyrail/polyrail/collective/op"
	"github.com/polyrail/polyrail/collective/table"
	"github.com/polyrail/polyrail/messages"
)

// The messages to and from the balancer. They are immutable once sent, but for RailFinished.

// RailFinished says that a rail has nothing more to do for the operation, and took what its entry
// says. Sent by the operation actor to the rail's worker, and by that one to the balancer. All rails
// of an operation have one message: the balancer counts how often it comes, and gives it back to its
// pool.
type RailFinished engine.Timed

// RailChanged says that a rail to another member was lost, or has come back. From the fabric
// through the communicator actor.
type RailChanged struct{}

// Timings are another rank's. Sent by the communicator actor.
type Timings struct {
	From    op.Rank
	Windows *messages.Windows
}

// Propose asks the coordinator of rank 0 to publish a table. Sent by a caller's goroutine, or by
// the balancer to the communicator actor, its parent, which passes it on. Answered on Done.
type Propose struct {
	Entries  []table.Entry
	Balanced bool       // the balancer's: not followed once a caller has set a table
	Done     chan error // has room for the answer
}

// TableSwitched tells rank 0's balancer that another table is in force. Sent by the coordinator.
type TableSwitched struct{}

// TablePinned tells rank 0's balancer that a caller has set the table: it measures, and changes
// nothing any more. Sent by the coordinator.
type TablePinned struct{}

// probed are the times of each rail alone. Sent by the goroutine that formed the communicator, on
// rank 0.
type probed struct {
	timings []probeTiming
	saved   *balance.Saved // what the tuning file says; nil: nothing
	done    chan error     // has room for the answer: a table made of them is agreed on
}

// saveBalance asks rank 0's balancer for what it has learned. Sent by the goroutine that writes the
// tuning file. Answered on done.
type saveBalance struct{ done chan learned }

// learned answers saveBalance; ok: there is something new since the last time.
type learned struct {
	saved balance.Saved
	ok    bool
}

// explainBalance asks rank 0's balancer for what it knows. Answered on done.
type explainBalance struct{ done chan balance.Report }

// What may still be on its way when its receiver has ended: no news for the log. Who waits for an
// answer waits for the receiver's end too.
func (*RailFinished) IgnoreDeadLetterLogging()   {}
func (RailChanged) IgnoreDeadLetterLogging()     {}
func (*Timings) IgnoreDeadLetterLogging()        {}
func (*Propose) IgnoreDeadLetterLogging()        {}
func (*probed) IgnoreDeadLetterLogging()         {}
func (*saveBalance) IgnoreDeadLetterLogging()    {}
func (*explainBalance) IgnoreDeadLetterLogging() {}
