// Package wire is the fixed binary frame of the data path (docs/decisions/020): a header of
// Size bytes, little-endian, and a payload of Header.Length bytes.
//
// It owns the layout, its bounds and its checksum. What the fields mean to an
// operation is in collective/task, what they mean to a pair is in collective/peer.
package wire

import "github.com/polyrail/polyrail/collective/op"

// Kind says what a frame is for.
type Kind uint8

// The kinds of frame. "Numbered" frames count in a pair's direction and are kept until
// they are acknowledged; the others may be lost with their connection.
const (
	KindHello   Kind = 1 + iota // first frame in both directions of a connection: payload is a messages.Hello
	KindRefuse                  // answer to a Hello that cannot be accepted: payload is the reason; then the connection closes
	KindData                    // numbered: a block's segments of one span
	KindGrant                   // numbered: spans that may be sent (Header.Lane, Header.Count)
	KindWant                    // numbered: eager frames wait here for credit
	KindControl                 // numbered: payload is a messages.Control
	KindVoid                    // numbered: holds the number of a frame that was withdrawn
	KindAck                     // bare acknowledgement and credit
	KindPing                    // is the runtime there?
	KindPong                    // it is
	kindEnd
)

// Numbered reports whether frames of this kind carry a Number.
func (k Kind) Numbered() bool { return k >= KindData && k <= KindVoid }

// Flags of a frame.
type Flags uint8

// The flags.
const (
	FlagEager      Flags = 1 << iota // the data goes without a grant
	FlagUncredited                   // eager, but granted by name after a Want: takes no credit
	FlagAckNow                       // acknowledge at once
	flagsEnd
)

// Limits of the format.
const (
	Version     = 5
	Size        = 116             // bytes of a header
	MaxPayload  = 256 << 10       // bytes of a data frame's payload
	MaxControl  = 256 << 10       // bytes of any other payload: two of the largest tables
	MaxElements = uint64(1) << 40 // elements of one operation
	// Bytes of credit that an eager frame takes beside its payload's: what keeping it costs.
	EagerCost = 512
	// Upper bound of step, round, block, count, root, batch, and of round + count in data.
	MaxCommonIdx = 1 << 24

	magic = 0x5250 // "PR"
)

// Header is the decoded header of a frame.
type Header struct {
	Kind  Kind
	Flags Flags

	// What it belongs to.
	Comm   uint64 // wire id of the communicator
	Seq    uint64 // number of the operation
	Table  uint32 // version of the table it is cut by
	Digest uint64 // of everything that shapes the operation
	Desc   op.Descriptor

	// Where it lands: the same whichever rail carries it.
	Lane    uint16 // index of the lane
	Step    uint32
	Round   uint32 // first round
	Block   uint32 // its number in the receiver's program
	Count   uint32 // rounds; for a grant: spans of Lane that may be sent, cumulative
	Length  uint32 // bytes of payload
	Group   uint64 // of a tree lane: the group's id; 0 elsewhere
	Running uint64 // of a tree lane: the span's number in its group's life; 0 elsewhere

	// The pair's own.
	Generation uint8  // of the pair, its lowest byte: a frame of an earlier connection is told by it; 0 in the handshake
	Number     uint64 // 1, 2, … in this direction of this generation of the pair; 0 for kinds that are not numbered
	Ack        uint64 // numbered frames received whole in the other direction
	Credit     uint64 // eager bytes given back since the peers met, cumulative
}
