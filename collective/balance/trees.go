package balance

import (
	"math"

	"github.com/polyrail/polyrail/collective/table"
)

// This file is about small operations that may go over an aggregation tree: which is faster depends on
// the number of ranks, and on the node that aggregates. So that is tried, as algorithms are where the
// order of sums is free (docs/decisions/027).

// Trees says by rail whether it has a tree, and reports whether the table should be replaced: without
// trees nothing is tried over one, and what was in use before is in use again.
func (b *Balancer) Trees(up []bool) (changed bool) {
	none := true
	for rail := range b.trees {
		b.trees[rail] = up[rail]
		none = none && !up[rail]
	}
	for _, models := range b.rails {
		for f := range models {
			if f.treed && none {
				delete(models, f)
			}
		}
	}
	for c, x := range b.choices {
		if x == nil {
			continue
		}
		for i := range x.rivals {
			if r := &x.rivals[i]; r.treed { // another tree may be a quicker one
				r.known, r.pace = 0, pace{}
				if x.home != i {
					r.rest = nil
				}
			}
		}
		if none {
			changed = b.withoutTree(Class(c)) || changed
		}
	}
	return changed
}

// withoutTree has a class run flat, if it doesn't.
func (b *Balancer) withoutTree(c Class) (changed bool) {
	x := b.choices[c]
	if x.trial >= 0 && x.rivals[x.trial].treed {
		changed = b.goHome(c)
	}
	if !x.rivals[x.home].treed {
		return changed
	}
	before, flat := x.inForce(), x.flat()
	if before != flat {
		b.enforce(c, flat)
	}
	x.home, x.trial = flat, -1
	return before != flat || changed
}

// flat is the fastest way that is known without a tree, or else the first one.
func (x *choice) flat() (best int) {
	took := math.Inf(1)
	for i := range x.rivals {
		if r := &x.rivals[i]; !r.treed && r.known > 0 && r.took < took {
			best, took = i, r.took
		}
	}
	return best
}

// firstWeights are those that a form begins with, after another one had these shares: of a tree's
// operations the rails with trees have all.
func (b *Balancer) firstWeights(f form, shares []int) []uint32 {
	weights := weightsOf(shares)
	if !f.treed {
		return weights
	}
	left := uint32(0)
	for rail := range weights {
		if !b.trees[rail] {
			weights[rail] = 0
		}
		left += weights[rail]
	}
	for rail := range weights {
		if left == 0 && b.trees[rail] {
			weights[rail], left = 1, 1
		}
	}
	return weights
}

// route is the table's for the class that ends there.
func (b *Balancer) route(end int64, c Class) table.Route {
	if b.classes[c].treed {
		return table.Treed
	}
	if end == 0 {
		end = math.MaxInt64
	}
	return b.setup.Start.Lookup(end).Route
}
