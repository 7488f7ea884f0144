package railactors

import (
	"errors"

	"github.com/polyrail/polyrail/collective/peer"
	"github.com/polyrail/polyrail/messages"
	"github.com/polyrail/polyrail/messages/wire"
	"github.com/polyrail/polyrail/railactors/transport"
)

// This file is the boundary between the rails and the operations above them. What is
// declared here is called on the data path, on readers' and callers' goroutines, and so
// carries no payload through a mailbox.

// ErrRevoked is what Released and Torn say after Fabric.Revoke.
var ErrRevoked = errors.New("memory was revoked")

// Frame is one frame to be sent. The sender fills it and leaves it alone until it is released.
type Frame struct {
	Header    wire.Header // the pair fills in Number, Ack and Credit
	Rail      int         // that is to carry it; while it is down, another one does
	Rails     peer.Rails  // of data: those that may carry it if they are sooner; none: Rail alone
	Announced bool        // of data: Peer.Expect has counted it
	Payload   []byte      // read until the frame is released, never written
	Owner     FrameOwner  // nil where nobody asks
	Tag       uint64      // the owner's
}

// FrameOwner is also the key under which Fabric.Revoke finds frames and landings.
// It hears what became of a frame, exactly once for each: on any goroutine,
// holding no lock of the peer. It must not block.
type FrameOwner interface {
	// Released: no goroutine reads f.Payload any more. err is nil when the peer has the
	// frame whole (acknowledged); ErrRevoked after Revoke; otherwise why it will never arrive.
	Released(f *Frame, err error)
}

// Landing is the answer to "where does this frame go?".
type Landing struct {
	Dst      []byte   // len = Header.Length
	Receiver Receiver // told when Dst is filled, or given up; nil: sink the frame
	Tag      uint64   // the receiver's
	Keeps    bool     // Dst is a place to wait: the credit that the frame took stays taken until Peer.ReturnCredit
}

// Receiver hears what became of a landing, exactly once for each, on the reader's
// goroutine, which holds no lock; it may run a kernel there.
type Receiver interface {
	// Arrived: the frame is whole in Dst. If the landing Keeps the credit that it took (FlagEager
	// without FlagUncredited), Peer.ReturnCredit is called once for it, now or later. The receiver may
	// have b hold what it sends before it returns: the reader flushes when it has handled all frames
	// that are at hand. nil: nothing is held.
	Arrived(tag uint64, b *Batch)
	// Torn: the reader has let go of Dst, which may be half written. The frame will come again
	// on another connection, unless err is ErrRevoked or the peer is lost.
	Torn(tag uint64, err error)
}

// Folder is a Receiver that may use a payload where the connection has it, without a copy in Dst.
type Folder interface {
	Receiver
	// Fold is asked after Land, where the connection can lend the payload. It returns who borrows it and
	// hears of the landing's end in place of the receiver, or nil: it is to be copied to Dst. whole says
	// that all of the payload is at hand: it can't be torn once any of it is lent.
	Fold(tag uint64, whole bool) Fold
}

// Fold uses a payload as it is lent. Arrived follows its last piece.
type Fold interface {
	Receiver
	transport.Borrower
}

// Inbound is the operations' side: what pairs deliver. No method may block.
type Inbound interface {
	// Land is asked by a pair's reader for each data frame, before it reads the payload, with the
	// rail that carried it. h is valid during the call. An error is a violation of the protocol: the
	// connection is closed with it.
	Land(from *Peer, rail int, h *wire.Header) (Landing, error)
	// Granted: a Grant frame arrived.
	Granted(from *Peer, h *wire.Header) error
	// Wanted: a Want frame arrived: the peer has eager frames of (Comm, Seq) and no credit.
	Wanted(from *Peer, h *wire.Header) error
	// Control: a control message arrived.
	Control(from *Peer, m *messages.Control)
	// PeerLost: the node is lost (docs/decisions/014). Nothing arrives from it any more. All its
	// frames were released with err.
	PeerLost(p *Peer, err error)
	// PeerLeft: the node has disconnected, after all that it sent had arrived. Nothing arrives from
	// it any more, and what was on its way to it was released with err. It is called again whenever
	// something was to be sent to it since.
	PeerLeft(p *Peer, err error)
}
