package polyrail

import (
	"fmt"
	"slices"

	"github.com/polyrail/polyrail/cluster"
	"github.com/polyrail/polyrail/collective/fault"
	"github.com/polyrail/polyrail/collective/sharp"
	"github.com/polyrail/polyrail/collective/table"
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
	if !c.Trees.valid() {
		add("%v: must be TreesMeasured, TreesAlways or TreesNever", c.Trees)
	}
	if !c.TreeResults.Valid() {
		add("tree %v: must be ResultsUnicast, ResultsMulticast or ResultsBoth", c.TreeResults)
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

// TreeResults says how results of up to 1 KiB get from an aggregation node to the ranks below it.
// Longer ones, and those of reduces and broadcasts, always go to each by itself.
type TreeResults = sharp.Results

const (
	// ResultsUnicast: to each rank by itself, over its connection.
	ResultsUnicast = sharp.Unicast
	// ResultsMulticast: to all at once by UDP multicast on the rail's device. A rank that has missed one
	// asks for it after some 2 ms, and gets it over its connection.
	ResultsMulticast = sharp.Multicast
	// ResultsBoth: both ways. What comes first counts.
	ResultsBoth = sharp.Both
)

// ParseTreeResults reads a way by its name: unicast, multicast or both.
func ParseTreeResults(s string) (TreeResults, error) {
	return parsed(sharp.ParseResults(s))
}

// TreeMode says which operations go over aggregation trees, of those that can.
type TreeMode int

const (
	// TreesMeasured: large allreduces do. Of small ones and barriers those do that are measured to be
	// faster so; with BalanceStatic none.
	TreesMeasured TreeMode = iota
	// TreesAlways: all do, and reduces and broadcasts, which gain nothing by it among few ranks.
	TreesAlways
	TreesNever // none does
)

var treeModes = [...]string{"measured", "always", "never"}

func (m TreeMode) valid() bool { return m >= 0 && int(m) < len(treeModes) }

func (m TreeMode) String() string {
	if !m.valid() {
		return fmt.Sprintf("trees(%d)", int(m))
	}
	return treeModes[m]
}

// ParseTreeMode reads a mode by its name: measured, always or never.
func ParseTreeMode(s string) (TreeMode, error) {
	if i := slices.Index(treeModes[:], s); i >= 0 {
		return TreeMode(i), nil
	}
	return 0, fmt.Errorf("%w: trees %q: must be measured, always or never", fault.ErrConfig, s)
}

// route is what the mode asks of each entry of a table.
func (m TreeMode) route() table.Route {
	switch m {
	case TreesAlways:
		return table.TreedAll
	case TreesNever:
		return table.Flat
	}
	return table.ByRule
}
