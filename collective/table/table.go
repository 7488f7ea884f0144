// Package table holds what a communicator knows about dividing operations: the table
// from size class to shares of the rails, and the agreement by which all ranks change
// it between the same two operations (docs/decisions/005).
//
// It owns the table as a value and both sides of Prepare and Commit: Member on every
// rank, Leader beside rank 0's Member. What a table should say is decided in
// collective/balance, how an operation is cut by it in collective/plan; messages are
// carried by actors/communicator.
package table

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"

	"github.com/polyrail/polyrail/collective/op"
	"github.com/polyrail/polyrail/collective/schedule"
)

// Limits of a table, checked by Validate because tables come from the network.
const (
	MaxEntries = 256     // size classes
	MaxRails   = 64      // weights in an entry
	MaxWeight  = 1 << 24 // of one rail; the sum over MaxRails fits 32 bits
)

// Family is a group of kinds whose operations use the rails alike, and share their entries.
type Family uint8

// The families.
const (
	// To each rank and back: an operation of n ranks sends 2(n-1)/n of its bytes over each link.
	AllReduces Family = iota
	Scatters          // reduce-scatters and allgathers: half of that
	Pipelines         // broadcasts, reduces and scans: all bytes over each link of a chain
	Rooted            // gathers and scatters: one rank's link carries all
	Exchanges         // all to all
	Families
)

// FamilyOf is the family of a kind.
func FamilyOf(k op.Kind) Family {
	switch k {
	case op.KindReduceScatter, op.KindAllGather:
		return Scatters
	case op.KindBroadcast, op.KindReduce, op.KindScan, op.KindExScan:
		return Pipelines
	case op.KindGather, op.KindScatter:
		return Rooted
	case op.KindAllToAll, op.KindAllToAllV:
		return Exchanges
	}
	return AllReduces
}

// Kind is a kind that stands for its family.
func (f Family) Kind() op.Kind {
	return [Families]op.Kind{op.KindAllReduce, op.KindReduceScatter, op.KindBroadcast,
		op.KindGather, op.KindAllToAll}[f]
}

func (f Family) String() string {
	if f >= Families {
		return fmt.Sprintf("family(%d)", uint8(f))
	}
	return [Families]string{"allreduce", "reducescatter, allgather", "broadcast, reduce, scans",
		"gather, scatter", "alltoall"}[f]
}

// Route says whether operations go over the trees of rails that have one.
type Route uint8

// The routes.
const (
	ByRule   Route = iota // by the fixed rule of kind, size and n
	Flat                  // never
	Treed                 // always: allreduces and barriers
	TreedAll              // as Treed, and reduces and broadcasts too
	routeEnd
)

// Treed reports whether allreduces and barriers go over trees, whatever their size.
func (r Route) Treed() bool { return r == Treed || r == TreedAll }

func (r Route) String() string {
	if r >= routeEnd {
		return fmt.Sprintf("route(%d)", uint8(r))
	}
	return [routeEnd]string{"by rule", "flat", "tree", "all by tree"}[r]
}

// Entry says how operations of one size class are run.
type Entry struct {
	Family    Family       // entries ascend by it; one that has none uses those of AllReduces
	MaxBytes  int64        // the class holds sizes up to and including this, in bytes; 0: it is open
	Weights   []uint32     // by rail index, in parts of their sum; 0: the rail carries nothing
	Algorithm op.Algorithm // of allreduces; op.Auto: by the fixed rule of size, n, dtype and op
	Route     Route
}

// Table maps every size to an Entry. A table that was handed to a Member is immutable.
type Table struct {
	Version uint32 // given by the Leader; 1 is the table that a communicator starts with
	Entries []Entry
	// By rail: the group whose aggregation tree carries what goes over it; 0: none. Empty where
	// no rail has one.
	Trees []uint64
}

// Tree is the group of a rail's tree, or 0.
func (t *Table) Tree(rail int) uint64 {
	if rail >= 0 && rail < len(t.Trees) {
		return t.Trees[rail]
	}
	return 0
}

// Lookup is the entry for an allreduce of that many bytes.
func (t *Table) Lookup(bytes int64) *Entry { return t.LookupIn(AllReduces, bytes) }

// LookupIn is the entry for an operation of a family, of that many bytes. It is empty where the table
// has none, and so is not valid.
func (t *Table) LookupIn(f Family, bytes int64) *Entry {
	for i := range t.Entries {
		if e := &t.Entries[i]; e.Family == f && (bytes <= e.MaxBytes || e.MaxBytes == 0) {
			return e
		}
	}
	if f == AllReduces {
		return new(Entry)
	}
	return t.LookupIn(AllReduces, bytes)
}

// OneLane is the table for ranks whose rails would all go over the same memory: one lane has everything.
func (t *Table) OneLane() *Table {
	c := t.Clone()
	for i := range c.Entries {
		weights := c.Entries[i].Weights
		clear(weights)
		weights[0] = 1
	}
	return c
}

// Digest is a hash of all that the table says of a family's operations of more than from and up to
// to bytes. Two tables that run them alike have the same one. The table must be valid.
func (t *Table) Digest(f Family, from, to int64) uint32 {
	h := fnv.New32a()
	var word [8]byte
	add := func(v uint64) {
		binary.LittleEndian.PutUint64(word[:], v)
		h.Write(word[:])
	}
	for _, group := range t.Trees {
		add(group)
	}
	for size := from + 1; ; {
		e := t.LookupIn(f, size)
		add(uint64(e.Algorithm) | uint64(e.Route)<<8)
		for _, w := range e.Weights {
			add(uint64(w))
		}
		if e.MaxBytes == 0 || e.MaxBytes >= to {
			return h.Sum32()
		}
		size = e.MaxBytes + 1
		add(uint64(size))
	}
}

// Of are the entries of one family.
func (t *Table) Of(f Family) (entries []Entry) {
	for _, e := range t.Entries {
		if e.Family == f {
			entries = append(entries, e)
		}
	}
	return entries
}

// Clone is a deep copy.
func (t *Table) Clone() *Table {
	c := &Table{Version: t.Version, Entries: slices.Clone(t.Entries), Trees: slices.Clone(t.Trees)}
	for i := range c.Entries {
		c.Entries[i].Weights = slices.Clone(c.Entries[i].Weights)
	}
	return c
}

// Validate reports every fault of a table for that many rails at once, or nil.
func (t *Table) Validate(rails int) error {
	if len(t.Entries) == 0 {
		return errors.New("table has no entries")
	}
	if len(t.Entries) > MaxEntries {
		return fmt.Errorf("table has %d entries, the limit is %d", len(t.Entries), MaxEntries)
	}
	if rails < 1 || rails > MaxRails {
		return fmt.Errorf("a table is for 1 to %d rails, not %d", MaxRails, rails)
	}
	if len(t.Trees) != 0 && len(t.Trees) != rails {
		return fmt.Errorf("table has trees of %d rails, there are %d", len(t.Trees), rails)
	}
	var faults []error
	var below int64 // the classes before hold sizes up to this
	algorithms := schedule.Algorithms(op.KindAllReduce)
	for i := range t.Entries {
		e, last := &t.Entries[i], i == len(t.Entries)-1 || t.Entries[i+1].Family != t.Entries[i].Family
		fault := func(format string, args ...any) {
			faults = append(faults, fmt.Errorf("table entry %d: %w", i, fmt.Errorf(format, args...)))
		}
		first := i == 0 || t.Entries[i-1].Family != e.Family
		if first {
			below = 0
		}
		switch {
		case e.Family >= Families:
			fault("%v is unknown", e.Family)
		case i == 0 && e.Family != AllReduces:
			fault("the table begins with %v; it needs entries of %v", e.Family, AllReduces)
		case i > 0 && e.Family < t.Entries[i-1].Family:
			fault("%v after %v", e.Family, t.Entries[i-1].Family)
		case last && e.MaxBytes != 0:
			fault("the last class ends at %d bytes; it must be open (0)", e.MaxBytes)
		case !last && e.MaxBytes <= below:
			fault("class ends at %d bytes, which is not above the one before (%d)", e.MaxBytes, below)
		}
		below = max(below, e.MaxBytes)
		if err := checkWeights(e.Weights, rails); err != nil {
			fault("%w", err)
		}
		if e.Algorithm != op.Auto && !slices.Contains(algorithms, e.Algorithm) {
			fault("%v is not an algorithm of allreduces", e.Algorithm)
		}
		if e.Route >= routeEnd {
			fault("%v is unknown", e.Route)
		}
	}
	return errors.Join(faults...)
}

func checkWeights(weights []uint32, rails int) error {
	if len(weights) != rails {
		return fmt.Errorf("%d weights for %d rails", len(weights), rails)
	}
	for rail, w := range weights {
		if w > MaxWeight {
			return fmt.Errorf("rail %d: weight %d is above the limit %d", rail, w, MaxWeight)
		}
	}
	if !slices.ContainsFunc(weights, func(w uint32) bool { return w > 0 }) {
		return errors.New("no rail has weight")
	}
	return nil
}
