package engine

import (
	"github.com/polyrail/polyrail/collective/op"
	"github.com/polyrail/polyrail/collective/schedule"
	"github.com/polyrail/polyrail/collective/view"
)

// This file is about which ranks a rank of a large group is connected to (docs/decisions/037): its
// links (view.Links), and those that its operations name. The others' peers are dormant.
//
// Nobody hangs: who waits for a rank heeds it. So it hears if the other one is lost (their peers
// watch each other), if it has closed the group (Leave) or if the group broke there (Abort).
// Otherwise the other rank lives and waits itself, or its caller has yet to call.

// Linked notes that a rank is connected from the group's beginning on, on both sides.
func (g *Group) Linked(rank op.Rank) { g.heeded[rank].Store(true) }

// Heed sees to it that this rank hears of the end of another one. It is called before that is
// waited for, and costs nothing the second time.
func (g *Group) Heed(rank op.Rank) {
	if g.Meshed || g.heeded[rank].Load() || g.heeded[rank].Swap(true) {
		return
	}
	if g.Peers[rank] != nil {
		g.Hail(rank)
	}
}

// heed is Heed for the links of a program.
func (g *Group) heed(p *schedule.Program) {
	if g.Meshed {
		return
	}
	for _, rank := range p.From {
		g.Heed(rank)
	}
	for _, rank := range p.To {
		g.Heed(rank)
	}
}

// HeedLinks heeds the ranks through which this one hears of losses.
func (g *Group) HeedLinks() {
	for _, rank := range view.Links(g.Size, int(g.Rank)) {
		g.Heed(op.Rank(rank))
	}
}

// heedAny is Heed for a message from any rank.
func (g *Group) heedAny() {
	if g.Meshed {
		return
	}
	for rank := range g.Peers {
		g.Heed(op.Rank(rank))
	}
}
