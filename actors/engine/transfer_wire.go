package engine

import (
	"fmt"

	"github.com/polyrail/polyrail/collective/op"
	"github.com/polyrail/polyrail/collective/p2p"
	"github.com/polyrail/polyrail/messages/wire"
	"github.com/polyrail/polyrail/railactors"
)

// This file is all that knows how frames of messages between two ranks use a header:
//
//	Comm    TransferID of the communicator
//	Seq     the message's number
//	Step    the verb
//	Digest  the tag; of Grant and Credit the eager bytes given back
//	Running the offset of a Part, in bytes
//	Desc    KindSendRecv, the element type and the count

// maxOffset is beyond every message.
const maxOffset = 1 << 62

// header is that of a frame; rail is to carry it.
func (x *Transfers) header(f *p2p.Frame[*Transfer]) (h wire.Header, rail int) {
	h = wire.Header{
		Kind: wire.KindData, Comm: x.id, Seq: f.Number, Step: uint32(f.Verb), Digest: uint64(f.Envelope.Tag),
		Desc:    op.Descriptor{Kind: op.KindSendRecv, DType: f.Envelope.Type, Elements: f.Envelope.Count},
		Running: uint64(f.Offset), Length: uint32(f.Length),
	}
	switch f.Verb {
	case p2p.Grant, p2p.Credit:
		h.Kind, h.Digest = wire.KindGrant, f.Credit
	case p2p.Part:
		if f.Last {
			h.Flags = wire.FlagAckNow
		}
		return h, f.Rail
	}
	return h, mainRail(x.weights(f.Length))
}

// parse is the reverse of header, and finds whom the frame is from.
func (x *Transfers) parse(from *railactors.Peer, h *wire.Header) (op.Rank, *p2p.Frame[*Transfer], error) {
	rank, ok := x.group.ranks[from]
	if !ok {
		return 0, nil, fmt.Errorf("node %q is no member of communicator %q", from.Node(), x.group.Name)
	}
	f := &p2p.Frame[*Transfer]{
		Verb: p2p.Verb(min(h.Step, 0xff)), Number: h.Seq, Offset: int(min(h.Running, maxOffset)),
		Length:   int(h.Length),
		Envelope: p2p.Envelope{Tag: p2p.Tag(h.Digest), Type: h.Desc.DType, Count: h.Desc.Elements},
	}
	answers := f.Verb == p2p.Grant || f.Verb == p2p.Credit
	carries := f.Verb == p2p.Eager || f.Verb == p2p.Part
	switch {
	case !f.Verb.Valid() || h.Desc.Kind != op.KindSendRecv || answers != (h.Kind == wire.KindGrant):
		return 0, nil, fmt.Errorf("frame of kind %d, step %d, %v is none of a message", h.Kind,
			h.Step, h.Desc)
	case !carries && h.Length > 0 || h.Flags&wire.FlagEager != 0:
		return 0, nil, fmt.Errorf("frame of a message, step %d, with %d bytes and flags %d", h.Step,
			h.Length, h.Flags)
	case answers:
		f.Credit, f.Envelope.Tag = h.Digest, 0
	}
	return rank, f, nil
}
