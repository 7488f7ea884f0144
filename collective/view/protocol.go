package view

import "time"

// Event is what a Core is told.
type Event interface{ event() }

// The events.
type (
	// Ask: a caller of this node wants a communicator. It ends with Formed or Failed of the same Call.
	Ask struct {
		Call  uint64 // the caller's token, echoed in Formed and Failed
		Name  string
		Size  int    // members, this node included
		Nonce uint64 // random; distinguishes this call's views from all others ever
		// Settings are those that all members need alike, in words: "probe on". The same ones in the same
		// order on all nodes.
		Settings []string
	}
	// Shrink: a caller of this node wants the communicator of those who are left of an old one. It ends
	// with Formed or Failed of the same Call. Lost follows for members that are lost already.
	Shrink struct {
		Call  uint64
		Nonce uint64 // as in Ask
		Old   Old
	}
	// Cancel: the caller gave up. Answered by Failed, unless the call has ended already.
	Cancel struct {
		Call   uint64
		Name   string
		Reason string
	}
	// Received: a message of another node's Core came.
	Received struct {
		From        string
		Incarnation uint64 // of the sender
		Message     Message
	}
	// MemberUp: gossip says that this node lives.
	MemberUp struct {
		Node        string
		Incarnation uint64
	}
	// MemberDown: gossip says that it left, or that it failed. That it failed is a hint: the pairs of a
	// large ballot know better.
	MemberDown struct {
		Node        string
		Incarnation uint64
		Failed      bool
	}
	// Lost: the pairs say that this process is gone for good. For those who shrink.
	Lost struct {
		Node        string
		Incarnation uint64
		Reason      string
	}
	// Moved: this node's rails are reached at other addresses: a device that was absent is there.
	Moved struct{ Rails []Rail }
	// Stranger: instead of Received, where a node announces that it shrinks (ShrinkOf its Name) a
	// communicator that this node doesn't have: it closed it, shrank it or never formed it.
	Stranger struct{ From, Name string }
	// Reached: a pair to this member of the view, asked for by Connect, is up.
	Reached struct {
		ID   uint64
		Node string
	}
	// Unreachable: no pair to this member of the view could be made, or the member was lost.
	Unreachable struct {
		ID     uint64
		Node   string
		Reason string
	}
	// BarrierDone: the barrier asked for by Barrier ended. Exactly once per Barrier, in bounded
	// time; after an Unregister of the id it may be left out.
	BarrierDone struct {
		ID  uint64
		Err error
	}
	// Tick: time has passed. Due at Core.Wake; earlier or later does no harm.
	Tick struct{}
)

func (Ask) event()         {}
func (Shrink) event()      {}
func (Cancel) event()      {}
func (Received) event()    {}
func (MemberUp) event()    {}
func (MemberDown) event()  {}
func (Lost) event()        {}
func (Moved) event()       {}
func (Stranger) event()    {}
func (Reached) event()     {}
func (Unreachable) event() {}
func (BarrierDone) event() {}
func (Tick) event()        {}

// Action is what a Core wants done, in order.
type Action interface{ action() }

// The actions.
type (
	// Send: to a living node, by gossip's reliable messages. May be lost, repeated, late.
	Send struct {
		To      string
		Message Message
	}
	// Register: frames of View.ID are kept from now on.
	Register struct{ View *View }
	// Unregister: the view will not be formed here. With Entered its barrier was begun,
	// so others may hold the communicator for formed: they must be told over the pairs (Abort).
	Unregister struct {
		View    *View
		Entered bool
		Reason  string
	}
	// Connect: bring up the pairs to the members with these ranks (Links); answered by Reached or
	// Unreachable for each. The other members are to be known.
	Connect struct {
		View  *View
		Ranks []int
	}
	// Barrier: run the committing barrier; answered by BarrierDone.
	Barrier struct{ View *View }
	// Formed: the call has its communicator.
	Formed struct {
		Call uint64
		View *View
	}
	// Failed: the call ended; Err is a *fault.ViewError or a *fault.MinorityError. Attempts
	// goes into the Old of the next call that shrinks the same communicator.
	Failed struct {
		Call     uint64
		Name     string
		Err      error
		Attempts []*View
	}
)

func (Send) action()       {}
func (Register) action()   {}
func (Unregister) action() {}
func (Connect) action()    {}
func (Barrier) action()    {}
func (Formed) action()     {}
func (Failed) action()     {}

// Message is what Cores of different nodes say to each other.
type Message interface{ message() }

// The messages.
type (
	// Announce: the sender asks for Name. To all living nodes, or to the few that will propose
	// (Core.audience), repeated with growing pauses.
	Announce struct {
		Name  string
		Ask   uint64 // numbers the sender's calls
		Size  int
		Rails []Rail
		Host  Host
		// Believed is the number of the receiver's ask under this name that the sender knows, 0 for
		// none: a receiver that asks for something else, or no longer, sets it right.
		Believed uint64
		TTL      time.Duration // forget it after that long without another
		Uneven   SeqRange      // the sender's own, where it shrinks
		Lowest   string        // the lowest node that the sender knows to ask, itself included
		Settings []string      // of the Ask
	}
	// Withdraw: the sender's ask with this number, or a lower one, has ended.
	Withdraw struct {
		Name string
		Ask  uint64
		// Absent: those who shrink need not wait for the sender: it doesn't have the communicator, has gone
		// on without the receiver, or belongs to a minority.
		Absent bool
	}
	// Propose: from Members[0] to all others. Answered by Accept or Refuse.
	Propose struct{ View *View }
	// Accept: the sender has pairs to its Links and stands ready for the barrier.
	Accept struct {
		Name string
		ID   uint64
	}
	// Refuse: the sender is not, or no longer, part of this ballot.
	Refuse struct {
		Name   string
		ID     uint64
		Cause  Cause
		Ballot uint64 // the highest that the sender knows
		Node   string // who cannot be reached
		Reason string
	}
	// Abandon: the proposer has given up this ballot. Nothing answers.
	Abandon struct {
		Name   string
		ID     uint64
		Node   string // whom the proposer blames for what last stood in the way, if it blames one
		Reason string // what that was; "" if nothing has so far
	}
	// Commit: all accepted; enter the barrier. Answered by Refuse if the receiver left the ballot before.
	Commit struct {
		Name string
		ID   uint64
	}
	// Reject: the receiver's call with number Ask cannot succeed, because of Node.
	Reject struct {
		Name   string
		Ask    uint64
		Mine   uint64 // the sender's own call that clashes with it and shall fail too; 0 for none
		Node   string
		Reason string
	}
)

func (*Announce) message() {}
func (*Withdraw) message() {}
func (*Propose) message()  {}
func (*Accept) message()   {}
func (*Refuse) message()   {}
func (*Abandon) message()  {}
func (*Commit) message()   {}
func (*Reject) message()   {}

// Cause says why a node refuses a ballot. The numbers are part of the wire format.
type Cause uint8

// The causes of a refusal.
const (
	NotAsking   Cause = 1 + iota // the call was withdrawn, or it is another one now
	Outbid                       // the receiver knows a higher ballot (Refuse.Ballot)
	Busy                         // the receiver is in the barrier of another ballot
	CannotReach                  // Refuse.Node cannot be reached
	Gone                         // the receiver left this ballot before its barrier
	BadProposal                  // the receiver finds a fault in the proposal (Refuse.Reason)
	causeEnd
)

// Valid reports whether c is a cause's number.
func (c Cause) Valid() bool { return c > 0 && c < causeEnd }

// Timing holds the core's patience. All are positive. What is awaited of several members is awaited
// anew whenever one of them has come in, and for PerMember longer for each of them.
type Timing struct {
	AnnounceMin, AnnounceMax time.Duration // pauses between announcements: they double from Min to Max
	RetryMin, RetryMax       time.Duration // pauses between ballots that failed: likewise
	Resend                   time.Duration // pause between repetitions of an unanswered Propose or Commit
	// PerMember is how much longer Connect, Propose, Accepted and the first pause are for each member.
	PerMember time.Duration
	// Missed: after that long the lowest that shrinks looks for members that have not called.
	Missed   time.Duration
	Connect  time.Duration // a member refuses when a pair isn't up after that long
	Propose  time.Duration // the proposer gives up a member that has not answered for that long
	Accepted time.Duration // a member that accepted leaves when no Commit came for that long
	// CannotReach: when two nodes could not reach each other for that long, the higher one's call fails.
	CannotReach     time.Duration
	BarrierFailures int // a call fails after so many failed barriers
}

// ConnectOf is how long a member of a view of n waits for the next one to be connected.
func (t *Timing) ConnectOf(n int) time.Duration { return t.Connect + time.Duration(n)*t.PerMember }

// announceOf is the first pause between announcements of a call of n nodes. The answers of many take
// their time.
func (t *Timing) announceOf(n int) time.Duration {
	return min(t.AnnounceMin+time.Duration(n)*t.PerMember, t.AnnounceMax)
}

// DefaultTiming suits one data centre.
func DefaultTiming() Timing {
	return Timing{
		AnnounceMin: 250 * time.Millisecond, AnnounceMax: 4 * time.Second,
		RetryMin: 20 * time.Millisecond, RetryMax: time.Second,
		Resend:      250 * time.Millisecond,
		PerMember:   10 * time.Millisecond,
		Missed:      500 * time.Millisecond,
		Connect:     2 * time.Second,
		Propose:     3 * time.Second,
		Accepted:    8 * time.Second,
		CannotReach: 5 * time.Second, BarrierFailures: 8,
	}
}
