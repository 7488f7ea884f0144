package polyrail

import (
	"fmt"
	"slices"

	"github.com/polyrail/polyrail/cluster"
	"github.com/polyrail/polyrail/collective/sharp"
)

// This file is about the configuration of aggregation trees (docs/sharp.md).

// protocolSharp is that of rails that may have aggregation trees.
const protocolSharp = "sharp"

// sharp are the names of the rails that may have trees.
func (c Config) sharp() (names []string) {
	for _, r := range c.Rails {
		if r.Protocol == protocolSharp {
			names = append(names, r.Name)
		}
	}
	return names
}

func (c Config) validateTrees() (faults []error) {
	add := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	for _, name := range c.Aggregate {
		if !slices.ContainsFunc(c.Rails, func(r Rail) bool { return r.Name == name }) {
			add("aggregate %q: there is no such rail", name)
		}
	}
	if c.AggregateMemory < 0 || c.AggregateQuota < 0 || c.AggregateGroups < 0 {
		add("aggregate memory %d, quota %d, groups %d: must not be negative", c.AggregateMemory,
			c.AggregateQuota, c.AggregateGroups)
	}
	if c.TreeRadix < 0 || c.TreeRadix == 1 {
		add("tree radix %d: must be 2 or more, or 0 for any", c.TreeRadix)
	}
	if err := sharp.CheckShape(1, c.TreeFragment); err != nil {
		add("tree fragment: %w", err)
	}
	if !cluster.ValidPath(c.Rack) {
		add("rack %q: needs names with a slash between any two, at most %d bytes", c.Rack, cluster.MaxPath)
	}
	return faults
}
