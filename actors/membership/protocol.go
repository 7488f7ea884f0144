package membership

import (
	"time"

	"github.com/polyrail/polyrail/actors/communicator"
	"github.com/polyrail/polyrail/cluster"
	"github.com/polyrail/polyrail/collective/view"
	"github.com/polyrail/polyrail/messages"
)

// The messages to the node actor. They are immutable once sent.

// communicatorCall is a caller's wait. Sent by the caller's goroutine; answered on done.
type communicatorCall struct {
	name string
	size int
	old  *communicator.Group // what is to be shrunk; nil otherwise
	id   uint64
	done chan formed

	began, told time.Time // told: when the log said last that it waits
}

// title is the name of the communicator that is asked for.
func (c *communicatorCall) title() string {
	if c.old != nil {
		return c.old.Name
	}
	return c.name
}

// formed answers a communicatorCall.
type formed struct {
	communicator *communicator.Communicator
	uneven       view.SeqRange // of what was shrunk
	err          error
}

// cancelCall: the caller's context ended.
type cancelCall struct {
	call   *communicatorCall
	reason string
}

// gossipStarted hands the gossip to the node actor.
type gossipStarted struct{ gossip *cluster.Gossip }

// gossipFailed: the cluster turned this node down. From the goroutine that watches gossip.
type gossipFailed struct{ err error }

// gossipEvent and gossipMessage are what gossip says.
type gossipEvent cluster.Event
type gossipMessage struct {
	from    string
	message *messages.Rendezvous
}

// peerLost: a node is lost. From the fabric.
type peerLost struct {
	node string
	err  error
}

// reached: a pair to a member is up, and the others have had their grace (err nil), or none can be.
// From the goroutine that waited.
type reached struct {
	id   uint64
	node string
	err  error
}

// barrierDone: a view's committing barrier has ended. From the goroutine that ran it.
type barrierDone struct {
	id  uint64
	err error
}

// wake is the alarm that the core asked for.
type wake struct{}

// What may still be on its way when its receiver has ended: no news for the log. Who waits for an
// answer waits for the receiver's end too.
func (peerLost) IgnoreDeadLetterLogging()          {}
func (*communicatorCall) IgnoreDeadLetterLogging() {}
func (*cancelCall) IgnoreDeadLetterLogging()       {}
func (*reached) IgnoreDeadLetterLogging()          {}
func (*barrierDone) IgnoreDeadLetterLogging()      {}
func (wake) IgnoreDeadLetterLogging()              {}
