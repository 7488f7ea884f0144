package membership

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/polyrail/polyrail/railactors"
)

// EventKind says what happened.
type EventKind uint8

// The kinds of events.
const (
	RailUp EventKind = 1 + iota // Rail connects this node with Node
	// A rail connects them no more, or did not when the two met; Err says why.
	RailDown
	RankLost           // Rank of Communicator, Node, is lost; Err says why
	CommunicatorFormed // Communicator, in which this node is Rank
	CommunicatorBroken // Err says why
	TableChanged       // operations of Communicator are divided by table Version from now on
	RailMoved          // what Rail had on its way to Node when it went down goes over other rails
	TreeUp             // large sums of Communicator that Rail carries are made by Node from now on
	// Node makes them no more; Err says why. Repaired operations of this rank that were under way
	// go on without it.
	TreeDown
)

func (k EventKind) String() string {
	switch k {
	case RailUp:
		return "rail up"
	case RailDown:
		return "rail down"
	case RankLost:
		return "rank lost"
	case CommunicatorFormed:
		return "communicator formed"
	case CommunicatorBroken:
		return "communicator broken"
	case TableChanged:
		return "table changed"
	case RailMoved:
		return "rail moved"
	case TreeUp:
		return "tree up"
	case TreeDown:
		return "tree down"
	}
	return "unknown"
}

// Event is something that happened to a node's rails and communicators. Fields that its kind
// doesn't name are empty.
type Event struct {
	Time         time.Time
	Kind         EventKind
	Node, Rail   string
	Communicator string
	Rank         int
	Version      uint32
	Err          error
	Repaired     int    // of TreeDown
	Missed       uint64 // events lost before this one, because the subscriber was behind

	// Of RailDown and RailMoved, in bytes.
	Unacknowledged int64            // had been sent over the rail to Node, and was not acknowledged
	Waiting        int64            // had yet to be sent over it
	Remaining      int64            // RailDown: what this rank's operations under way had yet to receive, or to send if that is more
	Resent         int64            // RailMoved: what of the unacknowledged Node lacked; it is sent again
	To             map[string]int64 // RailMoved: by rail, what went there of the waiting and the resent
}

// maxEvents waits for one subscriber; what comes on top is counted and lost.
const maxEvents = 256

// events hands a node's events to its subscribers, and waits for none.
type events struct {
	mu     sync.Mutex
	all    map[*subscriber]struct{}
	kept   kept
	closed bool

	failures failures
}

type subscriber struct {
	events chan Event
	missed uint64
	stop   func() bool // ends the watch of a context
}

// subscribe opens a subscription; cancel, or the end of the context, ends it and closes the channel.
func (e *events) subscribe(ctx context.Context) (_ <-chan Event, cancel func()) {
	s := &subscriber{events: make(chan Event, maxEvents)}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		close(s.events)
		return s.events, func() {}
	}
	if e.all == nil {
		e.all = make(map[*subscriber]struct{})
	}
	e.all[s] = struct{}{}
	cancel = func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		if _, open := e.all[s]; open {
			e.end(s)
		}
	}
	s.stop = context.AfterFunc(ctx, cancel)
	return s.events, cancel
}

// end closes a subscription. A context that lives on must not keep its node in memory. Under mu.
func (e *events) end(s *subscriber) {
	s.stop()
	delete(e.all, s)
	close(s.events)
}

// emit may be called with any lock held.
func (e *events) emit(v Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	v.Time = time.Now()
	e.kept.add(&v)
	e.failures.note(&v)
	for s := range e.all {
		v.Missed = s.missed
		select {
		case s.events <- v:
			s.missed = 0
		default:
			s.missed++
		}
	}
}

// close ends all subscriptions.
func (e *events) close() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.closed = true
	for s := range e.all {
		e.end(s)
	}
}

// Subscribe opens a subscription to what happens from now on. The channel is closed by cancel and
// by Close.
func (n *Node) Subscribe() (_ <-chan Event, cancel func()) {
	return n.events.subscribe(context.Background())
}

// Events is Subscribe until a context ends.
func (n *Node) Events(ctx context.Context) <-chan Event {
	events, _ := n.events.subscribe(ctx)
	return events
}

// watchPair tells subscribers what the rails report, and the balancers that what they measure just
// now doesn't count.
func (n *node) watchPair(e railactors.PairEvent) {
	v := Event{Node: e.Node, Rail: e.Rail, Err: e.Err, Unacknowledged: e.Unacknowledged, Waiting: e.Waiting, Resent: e.Resent, To: e.To}
	switch e.Kind {
	case railactors.PairUp:
		v.Kind = RailUp
	case railactors.PairMoved:
		v.Kind = RailMoved
	case railactors.PairDown:
		v.Kind = RailDown
		var under int
		if v.Remaining, under = n.remaining(); under > 0 {
			n.log.Warn("rail down during operations", "to", e.Node, "rail", e.Rail, "operations", under, "remaining", v.Remaining)
		}
	}
	n.happened(v)
	if e.Kind == railactors.PairDown {
		n.serves.RailDown(e.Node, e.Rail, e.Err)
		n.treesDown(e.Node, e.Rail, fmt.Sprintf("rail %q to node %q is down: %v", e.Rail, e.Node, e.Err))
	}
	n.disturb(e.Node)
}

// remaining is how many operations are under way here, and the bytes that they have yet to receive,
// or to send if that is more.
func (n *node) remaining() (bytes int64, under int) {
	for _, m := range *n.groups.Load() {
		in, out, running := m.group.Remaining()
		bytes += max(in, out)
		under += running
	}
	return bytes, under
}
