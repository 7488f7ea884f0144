package engine

import (
	"github.com/polyrail/polyrail/collective/op"
	"github.com/polyrail/polyrail/collective/plan"
	"github.com/polyrail/polyrail/collective/schedule"
	"github.com/polyrail/polyrail/collective/table"
	"github.com/polyrail/polyrail/railactors/memory"
)

// smallestSum is the size whose operations are measured for barriers, too, in bytes: both are a matter
// of frames.
const smallestSum = 8

// entryOf is what a table says of a call. Where the smallest sums go over a tree barriers follow them.
func entryOf(t *table.Table, r *Request) *table.Entry {
	if r.Kind == op.KindBarrier {
		if e := t.LookupIn(table.AllReduces, smallestSum); e.Route.Treed() {
			return e
		}
	}
	return t.LookupIn(table.FamilyOf(r.Kind), int64(r.bytes))
}

// choose is the algorithm of an operation: what the call or, of an allreduce, the table asks for,
// else the fixed rule by size. It depends on nothing that ranks could see differently.
func (g *Group) choose(r *Request, table op.Algorithm) op.Algorithm {
	switch {
	case r.Kind.Empty() || r.bytes == 0:
	case r.Algorithm != op.Auto:
		return r.Algorithm
	case r.Kind == op.KindAllReduce && table != op.Auto:
		return table
	}
	return schedule.Choose(r.Kind, int64(r.bytes), g.Size, g.Places)
}

// Algorithm is that of an operation of so many bytes under a table, where its caller left it open.
func (g *Group) Algorithm(k op.Kind, t *table.Table, bytes int64) op.Algorithm {
	return g.choose(&Request{Kind: k, bytes: int(bytes)}, t.Lookup(bytes).Algorithm)
}

// Rivals are the algorithms that an operation of that size may run where the order of sums is free.
// Trying one must not fail for want of memory. It is left out where its scratch could be more than
// an operation's part of the limit.
func (g *Group) Rivals(bytes int64) (algorithms []op.Algorithm) {
	c := &g.engine.Config
	limit := min(memory.MaxBuffer, c.MemoryLimit/int64(c.MaxInFlight))
	for _, a := range []op.Algorithm{op.Ring, op.RecursiveDoubling, op.Tree, schedule.Halves(g.Size), op.Hierarchical, op.Leaders} {
		if g.Size == 2 && a != op.Ring && a != op.RecursiveDoubling {
			continue // two ranks exchange what they have, whole or in halves
		}
		if a.ByHost() && g.Places == nil {
			continue
		}
		owners := int64(schedule.Parts(op.KindAllReduce, a, g.Size))
		spans := min(int64(g.engine.Rails*minWindow*plan.MaxSpanBytes), 2*(bytes/owners)+plan.MaxSegmentBytes)
		if int64(g.CostOf(op.KindAllReduce, a, 0).Slots)*spans <= limit {
			algorithms = append(algorithms, a)
		}
	}
	return algorithms
}

// CostOf is the cost of an algorithm in this group.
func (g *Group) CostOf(k op.Kind, a op.Algorithm, root op.Rank) schedule.Cost {
	return schedule.CostOf(g.spec(k, a, root))
}

// spec is this rank's part of an algorithm.
func (g *Group) spec(k op.Kind, a op.Algorithm, root op.Rank) schedule.Spec {
	return schedule.Spec{Kind: k, Algorithm: a, Rank: g.Rank, N: g.Size, Root: root,
		Base: g.engine.Config.BcubeBase, Hosts: g.Places}
}
