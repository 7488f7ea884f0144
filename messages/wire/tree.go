package wire

import "github.com/polyrail/polyrail/collective/op"

// Frames of a tree lane name a group in Header.Group. Header.Step is their direction.
const (
	TreeUp   = 0 // a request of a child, or how far it is
	TreeDown = 1 // a response of its aggregation node, or what is settled
)

// TreeNotice is a frame of flow control in a group: upward, that the sender, and all below it, has
// the responses of the fragments below number; downward, that everybody has.
func TreeNotice(comm, group, number uint64, direction uint32) Header {
	return Header{Kind: KindGrant, Comm: comm, Group: group, Running: number, Step: direction,
		Desc: op.Descriptor{Kind: op.KindBarrier, Algorithm: op.Ring}}
}
