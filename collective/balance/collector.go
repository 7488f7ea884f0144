package balance

import (
	"fmt"
	"slices"
	"time"
)

// Collector is rank 0's view of all ranks' windows. It is not safe for concurrent use.
//
// What an operation took on a rail is what it took on the rank where it ended last: the largest
// time of all ranks, once the waiting for late ranks is taken out. Each rank measures from when it
// takes part until its last frame has come, and so includes that waiting, which is the same on all
// of its rails. A link that is slow, be it in one direction only, is in one rail's times. So the
// rail that deviates least from the other ranks' times says how long its rank has waited, and that
// much is taken off all rails of the rank.
//
// Deviation is counted from the least time of all ranks where no byte moves before its receiver is
// there: whoever came last has waited for nobody. Up to the eager limit the last rank finds the
// others' frames waiting, and its time is too short by what the others' are too long: there the
// mean is the reference.
//
// With a single rail at work, waiting and a slow link look the same; then the reference itself counts.
type Collector struct {
	ranks, rails int
	eager        Class           // the largest whose operations don't wait for their receivers
	splits       [Classes]uint32 // in force
	columns      map[Class]*column
	some         bool // not all ranks measure: in some kinds a rank receives nothing

	since []map[Class]struct{} // by rank: classes of which a set has come since a rail was lost or came back; nil: none was
}

// column is what has come in for one class.
type column struct {
	sets    [][]Window // by rank; nil: missing
	missing int
}

// NewCollector merges the windows of that many ranks about that many rails, of operations that are
// divided as the splits say (SplitOf). Operations up to eagerBytes are sent eagerly.
func NewCollector(ranks, rails int, splits func(Class) uint32, eagerBytes int64) *Collector {
	c := &Collector{ranks: ranks, rails: rails, eager: ClassOf(eagerBytes), columns: make(map[Class]*column)}
	c.Switch(splits)
	return c
}

// Some lets rounds be complete without ranks that measure nothing: a round ends when a rank reports
// its second set, too, with which the next one begins. It is for families of kinds in which a rank
// may receive nothing.
func (c *Collector) Some() *Collector {
	c.some = true
	return c
}

// Switch begins anew with the classes that another table divides in another way.
func (c *Collector) Switch(splits func(Class) uint32) {
	for class := range c.splits {
		if split := splits(Class(class)); split != c.splits[class] {
			c.splits[class] = split
			delete(c.columns, Class(class))
		}
	}
}

// Disturbed: a rail was lost or has come back between two of the ranks. What operations took that
// it hit says nothing of the rails: the sets that have come are dropped, and of each rank and class
// the next one, which may hold such an operation.
func (c *Collector) Disturbed() {
	clear(c.columns)
	c.since = make([]map[Class]struct{}, c.ranks)
	for rank := range c.since {
		c.since[rank] = make(map[Class]struct{})
	}
}

// tainted reports whether a set may hold a disturbed operation.
func (c *Collector) tainted(rank int, class Class) bool {
	if c.since == nil {
		return false
	}
	_, later := c.since[rank][class]
	c.since[rank][class] = struct{}{}
	return !later
}

// Observe takes a rank's set of windows. One of operations that were divided in another way is
// dropped. When all ranks have reported one for its class, complete is true and merged is what the
// operations took; the next round begins. Of a rank that is ahead of the others the first set
// counts. An error names the rank; nothing is changed by it.
func (c *Collector) Observe(rank int, set []Window) (merged []Window, complete bool, err error) {
	if rank < 0 || rank >= c.ranks {
		return nil, false, fmt.Errorf("windows from rank %d of %d", rank, c.ranks)
	}
	if err := validateSet(set, c.rails); err != nil {
		return nil, false, fmt.Errorf("rank %d: %w", rank, err)
	}
	class := set[0].Class
	if set[0].Split != c.splits[class] || c.tainted(rank, class) {
		return nil, false, nil
	}
	col := c.columns[class]
	again := col != nil && col.sets[rank] != nil
	if again && !c.some {
		return nil, false, nil
	}
	if !again {
		col = c.add(rank, class, set)
	}
	if col.missing > 0 && !again {
		return nil, false, nil
	}
	delete(c.columns, class)
	if again {
		c.add(rank, class, set)
	}
	col.sets = slices.DeleteFunc(col.sets, func(set []Window) bool { return set == nil })
	return c.merge(class, col.sets), true, nil
}

// add notes a rank's first set of a round.
func (c *Collector) add(rank int, class Class, set []Window) *column {
	col := c.columns[class]
	if col == nil {
		col = &column{sets: make([][]Window, c.ranks), missing: c.ranks}
		c.columns[class] = col
	}
	col.sets[rank] = set
	col.missing--
	return col
}

// merge makes one set of all ranks'.
func (c *Collector) merge(class Class, sets [][]Window) (merged []Window) {
	references := make([]time.Duration, c.rails)
	for rail := range c.rails {
		references[rail] = reference(sets, rail, class <= c.eager)
	}
	byRail := make([]Window, c.rails)
	var whole, took time.Duration // with the waiting, which of two algorithms both have; without it
	for _, set := range sets {
		waited := time.Duration(-1)
		for i := range set {
			if d := set[i].Elapsed - references[set[i].Rail]; i == 0 || d.Abs() < waited.Abs() {
				waited = d
			}
		}
		whole, took = max(whole, set[0].Whole), max(took, set[0].Whole-waited)
		for _, w := range set {
			w.Elapsed -= waited
			m := &byRail[w.Rail]
			if m.Operations == 0 {
				*m = w
				continue
			}
			m.Operations = max(m.Operations, w.Operations)
			if w.Elapsed > m.Elapsed {
				m.Bytes, m.Elapsed = w.Bytes, w.Elapsed
			}
		}
	}
	for _, w := range byRail {
		if w.Operations > 0 {
			w.Whole, w.Took = whole, took
			merged = append(merged, w)
		}
	}
	return merged
}

// reference is the time of a rail that the ranks' are compared with: the least, or the mean.
func reference(sets [][]Window, rail int, mean bool) time.Duration {
	var sum, least, n time.Duration
	for _, set := range sets {
		for i := range set {
			if w := &set[i]; w.Rail == rail {
				if n == 0 || w.Elapsed < least {
					least = w.Elapsed
				}
				sum += w.Elapsed
				n++
			}
		}
	}
	if mean && n > 0 {
		return sum / n
	}
	return least
}
