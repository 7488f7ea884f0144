package actors

import (
	"unsafe"

	"github.com/polyrail/polyrail/collective/op"
	"github.com/polyrail/polyrail/collective/plan"
	"github.com/polyrail/polyrail/collective/schedule"
	"github.com/polyrail/polyrail/railactors/memory"
)

// treeBytes is the largest operation of more than two ranks that a tree runs by default: it takes
// the fewest frames, and a frame this small costs the same whatever it holds. Two ranks
// are done with one exchange.
const treeBytes = 2 << 10

// doublingBytes is the largest operation that recursive doubling runs by default. Above it
// the ring's 2(n-1)/n of the data beats doubling's log₂ n times all of it; below it
// the number of steps decides. Measured in docs/performance.md.
const doublingBytes = 16 << 10

// choose is the algorithm of an operation: what the call or the table asks for, else the
// fixed rule by size. It depends on nothing that ranks could see differently.
func choose(r *Request, table op.Algorithm, n int) op.Algorithm {
	switch {
	case r.Kind != op.KindAllReduce || len(r.Src) == 0:
		return fixedRule(0, op.Auto, n) // a barrier
	case r.Algorithm != op.Auto:
		return r.Algorithm
	}
	return fixedRule(int64(len(r.Src)), table, n)
}

// fixedRule is the algorithm of an operation whose caller leaves it open.
func fixedRule(bytes int64, table op.Algorithm, n int) op.Algorithm {
	switch {
	case table != op.Auto:
		return table
	case bytes <= treeBytes && n > 2:
		return op.Tree
	case bytes <= doublingBytes:
		return op.RecursiveDoubling
	}
	return op.Ring
}

// rivals are the algorithms that an operation of that size may run where the order of sums is free. Trying one must not
// fail for want of memory: it is left out where its scratch could be more than an operation's part of the limit.
func (g *group) rivals(bytes int64) (algorithms []op.Algorithm) {
	c := &g.node.config
	limit := min(memory.MaxBuffer, c.MemoryLimit/int64(c.MaxInFlight))
	for _, a := range []op.Algorithm{op.Ring, op.RecursiveDoubling, op.Tree, op.Bcube} {
		if g.size == 2 && (a == op.Tree || a == op.Bcube) {
			continue // two ranks exchange what they have, whole or in halves
		}
		owners := int64(schedule.Owners(a, g.size))
		spans := min(int64(g.node.rails*window*plan.MaxSpanBytes), 2*(bytes/owners)+plan.MaxSegmentBytes)
		if int64(schedule.CostOf(a, g.size, c.BcubeBase).Slots)*spans <= limit {
			algorithms = append(algorithms, a)
		}
	}
	return algorithms
}

// same reports whether two equally long slices are the same memory.
func same(a, b []byte) bool { return unsafe.SliceData(a) == unsafe.SliceData(b) }

// partlyOverlap reports whether two slices share some memory but are not the same.
func partlyOverlap(a, b []byte) bool {
	if len(a) == 0 || len(b) == 0 || same(a, b) && len(a) == len(b) {
		return false
	}
	pa, pb := uintptr(unsafe.Pointer(&a[0])), uintptr(unsafe.Pointer(&b[0]))
	return pa < pb+uintptr(len(b)) && pb < pa+uintptr(len(a))
}

func misaligned(b []byte, size int) bool {
	return len(b) > 0 && uintptr(unsafe.Pointer(&b[0]))%uintptr(size) != 0
}
