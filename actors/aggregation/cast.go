package aggregation

import (
	"sync"

	"github.com/polyrail/polyrail/collective/sharp"
	"github.com/polyrail/polyrail/messages"
	"github.com/polyrail/polyrail/messages/wire"
)

// This file is about results that go to all ranks below a node at once (docs/decisions/043).

// openCaster opens this node's end, where the group's results are to go so. Where that can't be they
// go by unicast.
func (g *group) openCaster(m *messages.TreeRequest) sharp.Results {
	way := sharp.Results(m.GetResults())
	if way == sharp.Unicast {
		return way
	}
	caster, err := g.server.fabric.SendCasts(g.railIndex, g.id)
	if err != nil {
		g.server.log.Warn("results of an aggregation group go by unicast", "group", groupText(g.id),
			"rail", g.rail, "error", err)
		return sharp.Unicast
	}
	g.caster = caster
	return way
}

// heardBy says which children hear casts: ranks do.
func (g *group) heardBy() []bool {
	heard := make([]bool, len(g.ranks))
	for child, rank := range g.ranks {
		heard[child] = rank >= 0
	}
	return heard
}

var datagrams = sync.Pool{New: func() any { return new([wire.Size + sharp.MaxCast]byte) }}

// cast sends a result to all at once, and appends what follows. What can't be sent now need not wait:
// it goes by unicast.
func (g *group) cast(number uint64, out []sharp.Action) []sharp.Action {
	defer g.leave()
	g.mu.Lock()
	r := g.results[number]
	g.mu.Unlock()
	if r == nil { // the group has ended
		return out
	}
	b := datagrams.Get().(*[wire.Size + sharp.MaxCast]byte)
	err := g.caster.Send(wire.AppendCast(b[:0], r.response, r.whole))
	datagrams.Put(b)
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.cause != nil {
		return out
	}
	from := len(out)
	if err != nil {
		out = g.core.CastFailed(number, out)
	}
	return g.note(g.core.Released(number, out), from)
}
