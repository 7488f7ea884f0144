package aggregation

import (
	"fmt"

	"github.com/polyrail/polyrail/messages/wire"
	"github.com/polyrail/polyrail/railactors"
)

// This file is about a node's parent: what is passed on to it, and the results that come back.

// ofParent marks the tags of landings of results; the rest is the fragment's number.
const ofParent = 1 << 63

// fromAbove reports whether a frame is the parent's.
func (g *group) fromAbove(from *railactors.Peer, h *wire.Header) bool {
	return g.parent != nil && from == g.parent && h.Comm == g.comm && h.Step == wire.TreeDown
}

// placeResult makes room for what the parent says to be a fragment's result.
func (g *group) placeResult(h *wire.Header) (railactors.Landing, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.cause != nil {
		return railactors.Landing{}, nil
	}
	r := g.results[h.Running]
	if r == nil || r.coming || !g.core.Expects(h.Running) || h.Running >= ofParent {
		return railactors.Landing{}, fmt.Errorf("aggregation group %s: result of fragment %d, "+
			"which was not asked for", groupText(g.id), h.Running)
	}
	if w := &r.response; h.Seq != w.Seq || h.Block != w.Block || h.Lane != w.Lane || h.Length != w.Length {
		return railactors.Landing{}, fmt.Errorf("aggregation group %s: result of fragment %d is of seq %d, "+
			"block %d, lane %d, %d bytes; asked was for seq %d, block %d, lane %d, %d bytes", groupText(g.id),
			h.Running, h.Seq, h.Block, h.Lane, h.Length, w.Seq, w.Block, w.Lane, w.Length)
	}
	if r.whole == nil {
		var err error
		if r.whole, err = g.buffers.take(int(h.Length)); err != nil {
			return railactors.Landing{}, err
		}
	}
	r.coming = true
	g.holds++
	return railactors.Landing{Dst: r.whole, Receiver: g, Tag: ofParent | h.Running}, nil
}

// forward sends the parent what a fragment is so far.
func (g *group) forward(number uint64) {
	g.mu.Lock()
	r := g.results[number]
	g.mu.Unlock()
	f := frames.Get().(*railactors.Frame)
	f.Header, f.Payload = r.response, r.folded
	f.Header.Step, f.Header.Length = wire.TreeUp, uint32(len(r.folded))
	if f.Header.Desc.Kind.Rooted() {
		f.Header.Count = r.response.Length
	}
	f.Rail, f.Owner, f.Tag = g.railIndex, g, number
	g.parent.Send(f)
	g.vigil.Begin()
}
