// Package peer is the pure core of a node's dealings with one other node (docs/decisions/007, 011):
// which frame goes next on which rail, what is kept until it is acknowledged, when an
// acknowledgement is owed, how eager credit is spent and given back, what the two nodes tell
// each other when a rail's connection is lost, and when the other node counts as lost.
//
// It owns numbers, counts and queues of references to frames. It doesn't own the frames'
// memory, connections, clocks or locks: railactors.Peer holds a lock around each call,
// carries out the Effects after it, and passes time in.
//
// A connection of a rail is a *generation*. Each direction of a generation numbers its frames
// 1, 2, … A frame that was taken for writing stays in the core until the other node has
// acknowledged it, or until both nodes closed the generation and told each other how many
// frames they had received whole; those that the other lacks go to whichever rail lives.
package peer

import (
	"fmt"
	"math/bits"
	"time"
)

// Config holds the limits of one peer.
type Config struct {
	Rails         int           // 1 … MaxRails
	Preferred     Rails         // that carry every frame while one of them is up, whatever it is planned for
	InFlightBytes int           // unacknowledged bytes of data per rail; one frame goes whatever its size
	AckBytes      int           // received bytes that make an acknowledgement due at once
	CreditBytes   int           // eager bytes given back that make it due at once
	GivenBytes    int           // credit that the other node has to begin with; 0: no limit
	AckDelay      time.Duration // after which one is due otherwise; 0: at once
}

// MaxRails is what a set of rails can hold.
const MaxRails = 64

// Rails is a set of rail indexes.
type Rails uint64

// Add puts rail r into the set.
func (s *Rails) Add(r int) { *s |= 1 << r }

// Has reports whether rail r is in the set.
func (s Rails) Has(r int) bool { return s>>r&1 == 1 }

// All iterates over the set in ascending order.
func (s Rails) All() func(yield func(int) bool) {
	return func(yield func(int) bool) {
		for ; s != 0; s &= s - 1 {
			if !yield(bits.TrailingZeros64(uint64(s))) {
				return
			}
		}
	}
}

// Operation names an operation of a communicator.
type Operation struct{ Comm, Seq uint64 }

// Item is a frame with what the core needs to know of it. F refers to the frame.
type Item[F any] struct {
	Frame      F
	Rail       int       // that it is planned for; another one carries it if that isn't up
	Rails      Rails     // of data: those that may carry it while Rail is up; none: Rail alone
	Bytes      int       // header and payload
	Announced  bool      // of data: Expect has counted it
	Ahead      bool      // control: before all data, outside the limit in flight
	Credit     int       // eager bytes that it costs; 0 for frames that take none
	Op         Operation // under which it can be granted without credit
	Restated   bool      // a statement: sent again as soon as its connection is lost, even if it arrives twice
	Uncredited bool      // set by the core: it was granted, and goes without credit
	AckNow     bool      // set by the core: it asks to be acknowledged at once
	Resent     bool      // set by the core: an earlier generation carried it in vain
}

// Outcome says why a frame was released.
type Outcome uint8

// The outcomes.
const (
	Delivered Outcome = iota // the other node has it whole
	Revoked                  // its owner took it back
	Lost                     // the other node is lost
)

// Release is the end of a frame: nobody reads its memory any more.
type Release[F any] struct {
	Frame   F
	Outcome Outcome
}

// Statement is what one side says about a generation that it closed and quiesced.
type Statement struct {
	Rail       int
	Generation uint64
	Received   uint64 // frames received whole
	Answer     bool   // the sender never used this generation
}

// Cut is the data that a generation had on its way when it closed, in bytes with headers.
type Cut struct {
	Generation     uint64
	Unacknowledged int // taken for writing, and not acknowledged
	Waiting        int // had yet to be taken: goes to other rails at once
}

// Move is what became of a cut, once both sides have told what they had received, if any of it has
// to go over other rails.
type Move struct {
	Cut
	Rail   int
	Resent int   // of the unacknowledged bytes: the other side lacked them
	To     []int // by rail: what was waiting or is sent again went there
	Held   int   // no rail was up: it goes to the first one that is
}

// Effects collects what the caller has to do after an event. Calls append to it.
type Effects[F any] struct {
	Released   []Release[F] // tell the owners, without a lock
	Wants      []Item[F]    // frames without credit, the first of their operation: ask for a grant
	Statements []Statement  // send each once, as a control frame
	Moves      []Move       // nothing is to be done: for those who watch
	Wake       Rails        // these rails have something to write
	Ack        Rails        // these rails owe an acknowledgement at once
	Arm        Rails        // call AckTimer for these rails after AckDelay
	Close      Rails        // close these rails' connections, then call Quiesced
}

// None reports whether there is nothing to do.
func (e *Effects[F]) None() bool {
	return e.Wake|e.Ack|e.Arm|e.Close == 0 &&
		len(e.Released)|len(e.Wants)|len(e.Statements)|len(e.Moves) == 0
}

// Reset empties e and keeps its memory.
func (e *Effects[F]) Reset() {
	clear(e.Released)
	clear(e.Wants)
	clear(e.Moves)
	*e = Effects[F]{Released: e.Released[:0], Wants: e.Wants[:0], Statements: e.Statements[:0], Moves: e.Moves[:0]}
}

// Core is one node's state towards another. Methods are not safe for concurrent use.
type Core[F any] struct {
	cfg     Config
	now     time.Duration // of the latest event
	links   []link[F]
	closing []*closing[F] // closed generations that aren't settled
	sharing int           // peers that this node sends to
	waiting int           // bytes of data that wait in queues

	misjudged time.Duration // when shares last were clearly wrong; 0: never

	// What waits until any rail is up.
	orphanAhead deque[Item[F]]
	orphanData  queue[F]

	// Credit as a sender: used − returned ≤ limit, but for a limit that fell.
	limit, used, returned uint64
	starved               deque[Item[F]]
	starving              map[Operation]int // frames in starved, by operation

	// Credit as a receiver.
	taken      uint64 // eager bytes that came on credit
	givenBack  uint64 // of them
	creditOwed int    // of those, not yet told
}

// link is one rail's part.
type link[F any] struct {
	up         bool
	generation uint64   // in use if up
	floor      uint64   // generations up to this one are used up
	used       []uint64 // the latest that were in use here, ascending; at most maxUsed
	cut        Cut      // the latest

	ahead deque[Item[F]] // to be written
	data  queue[F]       // likewise

	sent     uint64 // number of the last frame taken
	written  uint64 // no writer holds frames up to this one
	acked    uint64
	unacked  deque[entry[F]] // the last of them is number sent
	inFlight int             // bytes of data in unacked
	traffic  traffic
	expected int  // bytes of data that operations have yet to send for it
	pace     pace // over intervals in which the rail was busy
	least    pace // over others

	received   uint64
	owedFrames int // received, not yet acknowledged
	owedBytes  int
	armed      bool // an AckTimer is on its way
}

// maxUsed bounds how many generations of a rail are remembered. It is far more than can be
// waiting for a statement.
const maxUsed = 256

// entry is a frame that was taken for writing.
type entry[F any] struct {
	Item[F]
	gone    bool // released already; its number stays
	revoked bool // to be released when its writer lets go
}

// New returns the core for a peer that has no connection yet, and no credit.
func New[F any](cfg Config) *Core[F] {
	if cfg.Rails < 1 || cfg.Rails > MaxRails {
		panic(fmt.Sprintf("peer: %d rails", cfg.Rails))
	}
	c := &Core[F]{cfg: cfg, links: make([]link[F], cfg.Rails), starving: make(map[Operation]int)}
	c.orphanData.waiting = &c.waiting
	for i := range c.links {
		c.links[i].data.waiting = &c.waiting
	}
	return c
}

// Idle reports whether nothing is queued, unacknowledged or unsettled.
func (c *Core[F]) Idle() bool {
	n := c.Queued() + c.starved.len() + len(c.closing)
	for i := range c.links {
		n += c.links[i].unacked.len()
	}
	return n == 0
}

// Queued is how many frames wait to be written, those without credit left out.
func (c *Core[F]) Queued() int {
	n := c.orphanAhead.len() + c.orphanData.len()
	for i := range c.links {
		n += c.links[i].ahead.len() + c.links[i].data.len()
	}
	return n
}

// QueuedAhead is how many control frames wait to be written.
func (c *Core[F]) QueuedAhead() int {
	n := c.orphanAhead.len()
	for i := range c.links {
		n += c.links[i].ahead.len()
	}
	return n
}

// InFlight is how many bytes of data are unacknowledged on a rail's present generation.
func (c *Core[F]) InFlight(rail int) int { return c.links[rail].inFlight }

// Unacknowledged is how many frames of a rail's present generation were taken and not acknowledged.
func (c *Core[F]) Unacknowledged(rail int) int { return c.links[rail].unacked.len() }

// LastCut is what the rail had on its way when its latest closed generation ended.
func (c *Core[F]) LastCut(rail int) Cut { return c.links[rail].cut }

// Unsettled is how many closed generations wait for a statement.
func (c *Core[F]) Unsettled() int { return len(c.closing) }

// Up reports whether a rail carries frames.
func (c *Core[F]) Up(rail int) bool { return c.links[rail].up }

// current returns the rail's link if it is in this generation.
func (c *Core[F]) current(rail int, generation uint64) *link[F] {
	if l := &c.links[rail]; l.up && l.generation == generation {
		return l
	}
	return nil
}
