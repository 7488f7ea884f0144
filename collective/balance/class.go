// Package balance decides what the table says: how operations are shared among the
// rails (Nezha §III-E, §IV-B: Timer and Load Balancer).
//
// It owns size classes, windows of timings and the rules that make a table. The table
// itself and the agreement on it are in collective/table; what a share means in rounds
// is in collective/plan; actors/balancing feeds it.
package balance

import (
	"fmt"
	"math"
	"math/bits"

	"github.com/polyrail/polyrail/collective/table"
)

// Class is a size class: all operations whose size rounds up to the same power of two.
type Class uint8

// Classes is the number of size classes. The last one, of 1 TiB, holds all that is larger.
const Classes = 41

// ClassOf is the class of an operation of that many bytes (≥ 0).
func ClassOf(bytes int64) Class {
	if bytes <= 1 {
		return 0
	}
	return Class(min(bits.Len64(uint64(bytes-1)), Classes-1))
}

// MaxBytes is the largest size in the class; the last one has none.
func (c Class) MaxBytes() int64 { return 1 << c }

// SplitOf says by a digest how a table runs the operations of a family and a class: ranks that have
// the same one divide them alike.
func SplitOf(t *table.Table, f table.Family, c Class) uint32 {
	most := c.MaxBytes()
	if c == Classes-1 {
		most = math.MaxInt64
	}
	return t.Digest(f, c.MaxBytes()/2, most)
}

// SplitsOf is SplitOf of all classes.
func SplitsOf(t *table.Table, f table.Family) func(Class) uint32 {
	return func(c Class) uint32 { return SplitOf(t, f, c) }
}

// Valid reports whether c is a class: classes come from the network.
func (c Class) Valid() bool { return c < Classes }

func (c Class) String() string { return fmt.Sprintf("≤ %d B", c.MaxBytes()) }
