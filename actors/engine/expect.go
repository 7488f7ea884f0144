package engine

import "github.com/polyrail/polyrail/messages/wire"

// expect tells the peers what the operation has yet to hand to them, by rail: a rail that has
// nothing to carry at the moment may have much to carry soon. A sign of -1 takes it back.
// Under mu.
func (o *Operation) expect(sign int) {
	if !o.announced {
		return
	}
	for i := range o.parts {
		p := &o.parts[i]
		if !p.active {
			continue
		}
		for link, to := range p.task.Program.To {
			frames, bytes := p.task.Outgoing(link)
			if to != o.group.Rank {
				o.group.Peers[to].Expect(p.rail, sign*(bytes+frames*wire.Size))
			}
		}
	}
}
