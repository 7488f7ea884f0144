package observe

import (
	"strconv"

	"github.com/polyrail/polyrail/actors/engine"
	"github.com/polyrail/polyrail/actors/membership"
)

// communicators writes what those of each name did, and are.
func (e emitter) communicators(s *membership.Status) {
	known := make(map[string]bool)
	for i := range s.Counts {
		c := &s.Counts[i]
		known[c.Name] = true
		e.set(commFormed, float64(c.Formed), c.Name)
		e.set(commBroken, float64(c.Broken), c.Name)
		e.set(commTables, float64(c.Tables), c.Name)
		for k := range c.Counts {
			n := &c.Counts[k]
			size := sizeLabel(int64(n.MaxBytes))
			if n.MaxBytes < 0 {
				size = "more"
			}
			e.spread(operations, n.Took, c.Name, n.Kind, size)
			e.set(operationBytes, float64(n.Bytes), c.Name, n.Kind, size)
			e.set(operationFailed, float64(n.Failed), c.Name, n.Kind, size)
		}
	}
	var names []string
	byName := make(map[string]*sums)
	for i := range s.Communicators {
		c := &s.Communicators[i]
		name := c.Name
		if !known[name] { // beyond the limit of names
			name = engine.OtherMeter
		}
		k := byName[name]
		if k == nil {
			k = &sums{first: c}
			byName[name] = k
			names = append(names, name)
		}
		k.add(c)
	}
	for _, name := range names {
		e.summed(s, name, byName[name])
	}
}

// sums are over the communicators of one name.
type sums struct {
	first                                 *membership.CommunicatorStatus
	open, ranks, version, flying, planted float64
	degraded                              bool
}

func (k *sums) add(c *membership.CommunicatorStatus) {
	k.open++
	k.ranks = max(k.ranks, float64(c.Size))
	k.version = max(k.version, float64(c.Version))
	k.flying += float64(c.InFlight)
	k.planted += float64(len(c.Trees))
	k.degraded = k.degraded || c.Degraded
}

// summed writes the gauges of a name, and the table of the first communicator that has it.
func (e emitter) summed(s *membership.Status, name string, k *sums) {
	e.set(commOpen, k.open, name)
	e.set(commSize, k.ranks, name)
	e.set(commVersion, k.version, name)
	e.set(commInFlight, k.flying, name)
	e.set(commTrees, k.planted, name)
	e.bool(commDegraded, k.degraded, name)
	for i := range k.first.Classes {
		c := &k.first.Classes[i]
		size := "more"
		if c.MaxBytes > 0 {
			size = sizeLabel(c.MaxBytes)
		}
		for rail, part := range c.Shares {
			if rail < len(s.Rails) {
				e.set(share, part, name, c.Family, size, s.Rails[rail].Name)
			}
		}
	}
}

// sizeLabel is the upper end of a size class as people write it: 64KiB.
func sizeLabel(bytes int64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"}
	unit := 0
	for bytes >= 1024 && bytes%1024 == 0 && unit < len(units)-1 {
		bytes /= 1024
		unit++
	}
	return strconv.FormatInt(bytes, 10) + units[unit]
}
