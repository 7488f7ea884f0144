// Package seeds holds the flags of all tests that draw what they do. -seed N does again what N
// stands for, and writes what happens; -seeds N says how many are run.
//
// What a seed stands for is the test's.
package seeds

import (
	"flag"
	"iter"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
)

var (
	one  = flag.Uint64("seed", 0, "run this seed alone, and write what happens; 0: run -seeds of them")
	many = flag.Uint64("seeds", 0, "number of seeds to run; 0: as many as an ordinary test affords")
)

// One is the seed that alone is to be run; ok is false where there is none.
func One() (seed uint64, ok bool) { return *one, *one != 0 }

// Count is how many seeds to run: what -seeds says, or else ordinary, and with -short short.
func Count(ordinary, short uint64) uint64 {
	switch {
	case *many > 0:
		return *many
	case testing.Short():
		return short
	}
	return ordinary
}

// Spread gives count seeds from first on to as many workers as there are processors, each seed to
// one of them. It returns when all are done. A worker that breaks off ends the others' seeds too.
func Spread(first, count uint64, worker func(seeds iter.Seq[uint64])) {
	var (
		taken   atomic.Uint64
		workers sync.WaitGroup
	)
	seeds := func(yield func(seed uint64) bool) {
		for i := taken.Add(1) - 1; i < count; i = taken.Add(1) - 1 {
			if !yield(first + i) {
				taken.Store(count)
				return
			}
		}
	}
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() { worker(seeds) })
	}
	workers.Wait()
}
