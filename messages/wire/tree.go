package wire

import (
	"fmt"

	"github.com/polyrail/polyrail/collective/op"
)

// Frames of a tree lane name a group in Header.Group. Header.Step is their direction.
const (
	TreeUp   = 0 // a request of a child, or how far it is
	TreeDown = 1 // a response of its aggregation node, or what is settled
	TreeAsk  = 2 // upward: a rank lacks responses that were cast
)

// TreeNotice is a frame of flow control in a group: upward, that the sender, and all below it, has
// the responses of the fragments below number; downward, that everybody has.
func TreeNotice(comm, group, number uint64, direction uint32) Header {
	return Header{Kind: KindGrant, Comm: comm, Group: group, Running: number, Step: direction,
		Desc: op.Descriptor{Kind: op.KindBarrier, Algorithm: op.Ring}}
}

// TreeAskNotice asks a node for the responses from a fragment's number to another one's: the sender
// has those below from, and waits for casts of those from to on alone.
func TreeAskNotice(comm, group, from, to uint64) Header {
	h := TreeNotice(comm, group, to, TreeAsk)
	h.Seq = from
	return h
}

// AppendCast appends a datagram: a response that goes to many ranks at once. It is no frame of a pair,
// and has no number in one.
func AppendCast(dst []byte, h Header, payload []byte) []byte {
	h.Number, h.Ack, h.Credit, h.Generation = 1, 0, 0, 0
	at := len(dst)
	dst = append(dst, make([]byte, Size)...)
	h.Encode(dst[at:])
	return append(dst, payload...)
}

// DecodeCast reads what AppendCast wrote. The error is a *FormatError; the payload is a part of p.
func DecodeCast(p []byte, h *Header) (payload []byte, err error) {
	if err := Decode(p, h); err != nil {
		return nil, err
	}
	payload = p[Size:]
	switch {
	case h.Kind != KindData || h.Group == 0 || h.Step != TreeDown:
		return nil, &FormatError{"kind", uint64(h.Kind), "responses of a group in datagrams"}
	case len(payload) != int(h.Length):
		return nil, &FormatError{"length", uint64(h.Length), fmt.Sprintf("the payload's, %d bytes", len(payload))}
	}
	return payload, nil
}
