package engine

import (
	"github.com/polyrail/polyrail/messages/wire"
	"github.com/polyrail/polyrail/railactors"
)

// outgoing is what a peer is going to be given for a rail: bytes of data with headers. Frames bind
// to rails by what each of them has yet to carry. A rail without a frame at the moment may have most
// of an operation before it (docs/decisions/032).
type outgoing struct {
	to    *railactors.Peer
	rail  int
	bytes int
}

// stillOutgoing appends what the parts have yet to hand to peers, if announced.
// Small ones don't: they are over before a better rail could be known. Under mu.
func (o *Operation) stillOutgoing(all []outgoing) []outgoing {
	for i := range o.parts {
		p := &o.parts[i]
		if !p.active || !p.announced {
			continue
		}
		for link, bytes := range p.task.Outgoing(wire.Size) {
			if bytes > 0 {
				all = append(all, outgoing{o.group.Peers[p.task.Program.To[link]], p.rail, bytes})
			}
		}
	}
	return all
}

// announce tells the peers of it; a sign of -1 takes it back. Nothing is locked.
func announce(all []outgoing, sign int) {
	for _, a := range all {
		a.to.Expect(a.rail, sign*a.bytes)
	}
}
