// Package p2p is the pure core of messages between two ranks of one communicator: which message
// belongs to which receive, when its bytes may go, over which rail, and where they land.
//
// Each ordered pair of ranks numbers its messages. A receiver matches them in the order of their
// numbers, whatever the order in which frames arrive, so messages with equal tags never overtake
// each other. A small message goes at once, on credit: it may wait at the receiver. For any other
// one its envelope asks, and the bytes go when a receive was matched and granted it.
//
// The package owns numbers, matching, credit, the division of a message into frames, and which of
// its frames arrived. It does not own memory, connections or locks. Its caller holds a lock around
// each call and carries out the Effects afterwards.
package p2p

import (
	"errors"
	"fmt"

	"github.com/polyrail/polyrail/collective/fault"
	"github.com/polyrail/polyrail/collective/op"
)

// Tag distinguishes the messages of one pair of ranks.
type Tag uint64

// The tags. Those from Reserved on are the runtime's own: no wildcard matches them.
const (
	MaxTag   Tag = 1<<31 - 1 // the greatest of a caller's messages
	Reserved Tag = 1 << 62
	AnyTag   Tag = 1 << 63 // of a receive: each one up to MaxTag
	NoTag    Tag = MaxTag + 1
)

// Valid reports whether a message can have the tag.
func (t Tag) Valid() bool { return t <= MaxTag || t >= Reserved && t < AnyTag }

// AnySource is the source of a receive that takes messages of every rank.
const AnySource op.Rank = -1

// Limits that both ends know.
const (
	Granule  = 4 << 10   // offsets in a message are multiples of it
	MaxFrame = 256 << 10 // bytes of payload
	Overhead = 256       // bytes that an eager message takes of the credit besides its own
)

// Config holds the limits of one communicator's messages. All ranks have the same Size,
// CreditBytes and Open.
type Config struct {
	Size  int // ranks
	Rails int
	// The largest message that this rank sends before it is matched; at most MaxFrame.
	EagerBytes  int
	CreditBytes int  // of eager messages of one rank that are not over, each with its Overhead
	WindowBytes int  // handed out and not yet released, per destination and rail
	Granted     int  // messages of one rank whose bytes may be on their way at once
	Open        int  // messages of one rank that may ask at once
	Help        bool // a rail that runs dry takes over what is planned for others
}

// Envelope is what both ends of a message must agree on.
type Envelope struct {
	Tag   Tag
	Type  op.DType
	Count uint64 // elements; of a receive: the room for them
}

// Bytes is the length of the message.
func (e Envelope) Bytes() int { return int(e.Count) * e.Type.Size() }

// Status says which message a receive took.
type Status struct {
	Source op.Rank
	Tag    Tag
	Count  uint64 // elements
}

// Verb says what a frame is for.
type Verb uint8

// The verbs. Those of the sender travel in data frames and are in order of their numbers mostly;
// Grant and Credit, which are few at a time, go ahead of data.
const (
	Eager  Verb = 1 + iota // sender: the envelope and all bytes
	Ask                    // sender: the envelope; the bytes wait for a Grant
	Part                   // sender: bytes of a granted message
	Cancel                 // sender: it gives the message up
	Refuse                 // receiver: the message doesn't fit; the envelope is the receive's
	Drop                   // receiver: nobody wants the message any more; it counts as sent
	Grant                  // receiver: the bytes may go
	Credit                 // receiver: eager bytes given back
	verbEnd
)

// Valid reports whether v is a verb.
func (v Verb) Valid() bool { return v > 0 && v < verbEnd }

// Frame is one frame to be sent.
type Frame[W any] struct {
	To       op.Rank
	Verb     Verb
	Number   uint64
	Envelope Envelope // of Eager, Ask and Part the message's, of Refuse the receive's
	Offset   int      // of a Part, in the message
	Length   int      // of the payload
	Rail     int      // that a Part is planned for
	Last     bool     // of a Part: no other follows on its rail for now
	Credit   uint64   // of Grant and Credit: eager bytes given back, cumulative
	Send     *Send[W] // of Eager, Part and Cancel
}

// Buffer is memory in which an eager message waits. Own is its provider's note.
type Buffer struct {
	Bytes []byte
	Own   bool
}

// Copy asks to copy a message that waited into its receive's memory; then Copied is called.
type Copy[W any] struct {
	Message *Message[W]
	Recv    *Recv[W]
}

// Done is the end of a send or a receive: nothing refers to its memory any more.
type Done[W any] struct {
	Work    W
	Status  Status // of a receive
	Err     error
	Noticed bool // of a send: a Cancel tells the receiver
}

// Effects collects what the caller has to do after an event. Calls append to it.
type Effects[W any] struct {
	Frames []Frame[W]
	Copies []Copy[W]
	Free   []Buffer // memory of messages that waited
	Revoke []W      // take its memory back from readers and writers, who then report
	Done   []Done[W]
}

// Reset empties e and keeps its memory.
func (e *Effects[W]) Reset() {
	clear(e.Frames)
	clear(e.Copies)
	clear(e.Free)
	clear(e.Revoke)
	clear(e.Done)
	*e = Effects[W]{e.Frames[:0], e.Copies[:0], e.Free[:0], e.Revoke[:0], e.Done[:0]}
}

// Core is one rank's part in all messages of a communicator. W is the caller's handle of a send
// or a receive. Methods are not safe for concurrent use.
type Core[W any] struct {
	cfg    Config
	to     map[op.Rank]*outbound[W]
	from   map[op.Rank]*inbound[W]
	posted queues[*Recv[W]]    // receives without a message
	stray  queues[*Message[W]] // messages without a receive
	ticket uint64
	gone   int   // other ranks that have departed and of which nothing is to come
	broken error // no message is moved any more
}

// New returns the core of a communicator in which nothing was sent yet.
func New[W any](cfg Config) *Core[W] {
	if cfg.EagerBytes > MaxFrame || cfg.Rails < 1 || cfg.Granted < 1 || cfg.Open < 1 {
		panic(fmt.Sprintf("p2p: impossible limits %+v", cfg))
	}
	return &Core[W]{cfg: cfg, to: make(map[op.Rank]*outbound[W]), from: make(map[op.Rank]*inbound[W]),
		posted: queues[*Recv[W]]{}, stray: queues[*Message[W]]{}}
}

// Idle reports whether no send, receive or message is open.
func (c *Core[W]) Idle() bool {
	for _, o := range c.to {
		if len(o.open) > 0 {
			return false
		}
	}
	for _, in := range c.from {
		if len(in.messages) > 0 {
			return false
		}
	}
	return len(c.posted) == 0
}

// errFrame is a violation of the protocol by the rank that a frame came from.
var errFrame = errors.New("impossible message")

func violation(from op.Rank, number uint64, format string, args ...any) error {
	return fmt.Errorf("%w: number %d of rank %d: %w", errFrame, number, from, fmt.Errorf(format, args...))
}

// check reports an envelope that no sender can have written.
func (e Envelope) check() error {
	switch {
	case !e.Tag.Valid():
		return fmt.Errorf("tag %d", e.Tag)
	case !e.Type.Valid():
		return fmt.Errorf("element type %d", e.Type)
	case e.Count > maxCount:
		return fmt.Errorf("%d elements", e.Count)
	}
	return nil
}

// maxCount keeps lengths far from what an int holds. The wire has the same limit.
const maxCount = 1 << 40

// mismatch is the error of one end where the two disagree.
func mismatch(other op.Rank, receives bool, sent, room Envelope) error {
	send := fmt.Sprintf("send(%d × %v)", sent.Count, sent.Type)
	recv := fmt.Sprintf("recv(%d × %v)", room.Count, room.Type)
	e := &fault.MismatchError{Rank: other, Mine: send, Theirs: recv}
	if receives {
		e.Mine, e.Theirs = recv, send
	}
	if sent.Type == room.Type {
		e.Explanation = fmt.Sprintf("the message has %d bytes, the receive buffer %d", sent.Bytes(),
			room.Bytes())
	}
	return e
}
