package view

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/polyrail/polyrail/collective/fault"
)

// Core takes part in the agreements of one node, under all names at once.
// It isn't safe for concurrent use.
type Core struct {
	self   Member // Ask unused
	timing Timing

	members map[string]uint64 // living nodes by gossip, without this one → incarnation
	living  []string          // its keys, ascending: map order would make runs differ
	names   map[string]*naming

	// clock is the highest ballot seen under any name. One number for all names keeps ballots
	// monotone per name without remembering every name that was ever used.
	clock uint64
	asked uint64 // number of the last call
	calls int    // waiting
	known crowd  // asks of other nodes, under all names

	// entered remembers the ids of the latest barriers that this node took part in, however they ended.
	entered [64]uint64
	entries int

	now time.Time // of the event in hand
	out []Action
}

// naming is what is known under one name.
type naming struct {
	name    string
	call    *call           // what was asked here; nil while only others ask
	asks    map[string]*ask // what others ask, by node
	askers  []string        // its keys, ascending
	expires time.Time       // no ask expires before

	part     *part   // the ballot that this node takes part in, if any
	lead     *lead   // set along with part when it is this node's proposal
	promised bid     // nothing at or below it is joined any more by this call
	refusal  *Refuse // the last one of a ballot that was joined: its cause must not get lost

	retryAt time.Time // no proposal before
	pause   time.Duration

	breaches map[[2]string]*breach // nodes that could not reach each other, lower first
	banned   map[string]ban        // asks that were rejected for a breach
}

// call is one caller's wait for a communicator.
type call struct {
	token      uint64
	ask        uint64
	size       int
	settings   []string
	shrink     *shrink // nil: the call is for any nodes that ask
	nonce      uint64
	began      time.Time
	announced  time.Time
	reach      int             // how many of the lowest nodes are told next (audience.go)
	heard      map[string]bool // which living nodes were told
	referred   string          // the lowest to ask, as another node says
	announceAt time.Time
	pause      time.Duration
	failures   int    // of barriers, in a row
	obstacle   string // what last stood in the way, for the error
	ended      string // how the last ballot ended in which somebody gave up, for the error
	culprit    string
}

// ask is another node's call, as announced.
type ask struct {
	incarnation uint64
	number      uint64
	size        int
	rails       []Rail
	host        Host
	settings    []string
	uneven      SeqRange // where it shrinks
	expires     time.Time
}

// bid orders ballots: the higher number wins; of equal ones the lower proposer.
type bid struct {
	ballot   uint64
	proposer string
}

func (b bid) beats(o bid) bool {
	return b.ballot > o.ballot || b.ballot == o.ballot && b.proposer < o.proposer
}

// New makes the core of a node. The rails' addresses are those that other nodes
// dial; their order doesn't matter.
func New(node string, incarnation uint64, rails []Rail, host Host, t Timing) (*Core, error) {
	self := Member{Node: node, Incarnation: incarnation, Rails: sorted(rails), Host: host}
	if err := self.validate(); err != nil {
		return nil, err
	}
	return &Core{self: self, timing: t, members: map[string]uint64{}, names: map[string]*naming{}, known: crowd{}}, nil
}

func sorted(rails []Rail) []Rail {
	rails = slices.Clone(rails)
	slices.SortFunc(rails, func(a, b Rail) int { return strings.Compare(a.Name, b.Name) })
	return rails
}

// moved: this node is reached elsewhere from now on. Proposals that hold the old addresses are
// refused.
func (c *Core) moved(e Moved) {
	c.self.Rails = sorted(e.Rails)
	for _, n := range c.sortedNames() {
		if n.call != nil && (n.part == nil || !n.part.entered) {
			c.announce(n)
		}
	}
}

// Step handles one event. The actions are to be carried out in order, before the next Step.
func (c *Core) Step(e Event, now time.Time) []Action {
	c.now, c.out = now, nil
	switch e := e.(type) {
	case Ask:
		c.ask(e)
	case Shrink:
		c.shrink(e)
	case Cancel:
		c.cancel(e)
	case Received:
		c.received(e)
	case MemberUp:
		c.memberUp(e)
	case MemberDown:
		c.memberDown(e)
	case Lost:
		c.lost(e)
	case Moved:
		c.moved(e)
	case Stranger:
		c.stranger(e)
	case Reached:
		c.reached(e)
	case Unreachable:
		c.unreachable(e)
	case BarrierDone:
		c.barrierDone(e)
	case Tick:
		c.tick()
	default:
		panic(fmt.Sprintf("view: unknown event %T", e))
	}
	return c.out
}

// Wake returns when the next Tick is due; ok is false when nothing waits for time.
func (c *Core) Wake() (at time.Time, ok bool) {
	sooner := func(t time.Time) {
		if !ok || t.Before(at) {
			at, ok = t, true
		}
	}
	for _, n := range c.names {
		if len(n.asks) > 0 {
			sooner(n.expires)
		}
		if n.call == nil {
			continue
		}
		if n.part == nil || !n.part.entered {
			sooner(n.call.announceAt)
		}
		if n.part == nil && n.retryAt.After(c.now) {
			sooner(n.retryAt)
		}
		if n.call.shrink != nil { // Awaited is to be asked then
			if lowest, others := c.missed(n.call); lowest.After(c.now) {
				sooner(lowest)
			} else if others.After(c.now) {
				sooner(others)
			}
		}
		if n.part != nil && !n.part.entered {
			sooner(n.part.deadline)
		}
		if n.lead != nil {
			sooner(n.lead.resendAt)
		}
	}
	return at, ok
}

func (c *Core) do(a Action) { c.out = append(c.out, a) }

func (c *Core) send(to string, m Message) { c.do(Send{To: to, Message: m}) }

// sortedNames makes the order of work independent of map order.
func (c *Core) sortedNames() []*naming {
	all := make([]*naming, 0, len(c.names))
	for _, n := range c.names {
		all = append(all, n)
	}
	slices.SortFunc(all, func(a, b *naming) int { return strings.Compare(a.name, b.name) })
	return all
}

// naming returns what is known under name, made if need be.
func (c *Core) naming(name string) *naming {
	n := c.names[name]
	if n == nil {
		n = &naming{name: name, asks: map[string]*ask{}}
		c.names[name] = n
	}
	return n
}

// tidy forgets a name that nobody asks for.
func (c *Core) tidy(n *naming) {
	if n.call == nil && len(n.asks) == 0 {
		delete(c.names, n.name)
	}
}

// saw moves the clock towards a ballot of another node.
func (c *Core) saw(ballot uint64) {
	if ballot <= MaxBallot {
		c.clock = max(c.clock, min(ballot, c.clock+maxBallotJump))
	}
}

func (c *Core) memberUp(e MemberUp) {
	if e.Node == c.self.Node || !validText(e.Node, MaxNode) {
		return
	}
	if old, ok := c.members[e.Node]; ok {
		if old == e.Incarnation {
			return
		}
		c.memberDown(MemberDown{Node: e.Node, Incarnation: old})
	}
	c.members[e.Node] = e.Incarnation
	i, _ := slices.BinarySearch(c.living, e.Node)
	c.living = slices.Insert(c.living, i, e.Node)
	for _, n := range c.sortedNames() {
		if n.call != nil && (c.addresses(n, e.Node) || c.awaits(n, e.Node)) {
			c.announceTo(n, e.Node)
		}
		c.consider(n)
	}
}

func (c *Core) memberDown(e MemberDown) {
	if inc, ok := c.members[e.Node]; !ok || inc != e.Incarnation {
		return // news of an older process
	}
	delete(c.members, e.Node)
	if i, ok := slices.BinarySearch(c.living, e.Node); ok {
		c.living = slices.Delete(c.living, i, i+1)
	}
	for _, n := range c.sortedNames() {
		if n.call != nil {
			delete(n.call.heard, e.Node)
		}
		if a := n.asks[e.Node]; a != nil && a.incarnation <= e.Incarnation {
			c.forget(n, e.Node)
		}
		m := n.member(e.Node)
		if m != nil && m.Incarnation <= e.Incarnation && !(e.Failed && len(n.part.view.Members) > MeshMembers) {
			c.blame(n, e.Node, "left or failed while the view was agreed on")
			c.leaveUnentered(n, fmt.Sprintf("node %q left or failed", e.Node))
		}
		c.consider(n)
		c.tidy(n)
	}
}

// member is the node's entry in the ballot in hand, or nil.
func (n *naming) member(node string) *Member {
	if n.part == nil {
		return nil
	}
	return n.part.view.member(node)
}

func (c *Core) received(e Received) {
	inc, known := c.members[e.From]
	if e.Message == nil || e.From == c.self.Node || known && e.Incarnation < inc {
		return // from a process that is gone
	}
	switch m := e.Message.(type) {
	case *Announce: // may come before gossip's news of its sender
		c.announced(e.From, e.Incarnation, m)
		return
	case *Withdraw:
		c.withdrawn(e.From, e.Incarnation, m)
		return
	}
	if !known || e.Incarnation != inc {
		return // repeated by its sender, should it matter
	}
	switch m := e.Message.(type) {
	case *Propose:
		c.proposed(e.From, m)
	case *Accept:
		c.accepted(e.From, m)
	case *Refuse:
		c.refused(e.From, m)
	case *Abandon:
		c.abandoned(e.From, m)
	case *Commit:
		c.committed(e.From, m)
	case *Reject:
		c.rejected(e.From, m)
	default:
		panic(fmt.Sprintf("view: unknown message %T", m))
	}
}

func (c *Core) tick() {
	for _, n := range c.sortedNames() {
		c.expire(n)
		if n.call != nil {
			if !n.call.announceAt.After(c.now) && (n.part == nil || !n.part.entered) {
				c.announce(n)
			}
			c.tickPart(n)
			c.consider(n)
		}
		c.tidy(n)
	}
}

// expire forgets the asks that were not repeated in time.
func (c *Core) expire(n *naming) {
	if n.expires.After(c.now) {
		return
	}
	n.expires = time.Time{}
	for _, node := range slices.Clone(n.askers) {
		if a := n.asks[node]; !a.expires.After(c.now) {
			c.forget(n, node)
		} else if n.expires.IsZero() || a.expires.Before(n.expires) {
			n.expires = a.expires
		}
	}
}

// fail ends the call with an error and tells the others.
func (c *Core) fail(n *naming, node, reason string) {
	c.failWith(n, &fault.ViewError{Name: n.title(), Node: node, Reason: reason}, false)
}

// failWith is fail with a typed error; absent tells the others that they need not wait for this node.
func (c *Core) failWith(n *naming, err error, absent bool) {
	call := n.call
	c.refuse(n, NotAsking, "", err.Error())
	c.leave(n, err.Error())
	c.end(n)
	c.withdraw(n, call, absent)
	failed := Failed{Call: call.token, Name: n.name, Err: err}
	if call.shrink != nil {
		failed.Attempts = call.shrink.attempts
	}
	c.do(failed)
	c.tidy(n)
}

// withdraw tells those who know of a call that it has ended.
func (c *Core) withdraw(n *naming, call *call, absent bool) {
	for _, to := range c.told(call) {
		c.send(to, &Withdraw{Name: n.name, Ask: call.ask, Absent: absent})
	}
}

// title is the name for people.
func (n *naming) title() string {
	if n.call != nil && n.call.shrink != nil {
		return n.call.shrink.old.Title
	}
	return n.name
}

// end forgets everything that belonged to the call.
func (c *Core) end(n *naming) {
	n.call, n.promised, n.refusal = nil, bid{}, nil
	n.retryAt, n.pause = time.Time{}, 0
	n.breaches, n.banned = nil, nil
	c.calls--
}
