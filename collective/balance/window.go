package balance

import (
	"fmt"
	"math"
	"time"

	"github.com/polyrail/polyrail/collective/table"
)

// maxOperations bounds what a peer may say of a window. TestFiguresFromOutsideAreLimited
const maxOperations = 1 << 20

// Window is the mean of one rail over at least WindowOperations operations of a size class, of which
// the slowest was left out: one retransmission timeout would outweigh all the others.
//
// The windows of all rails that worked in the same operations are a set. They are taken together,
// so that what disturbs all rails alike (a busy processor, a late rank) is in all of them alike.
type Window struct {
	Rail       int // index
	Class      Class
	Split      uint32        // how all of them were divided (SplitOf)
	Operations int           // in which the rail took part, without the slowest
	Bytes      int64         // mean, of what the rail carried
	Elapsed    time.Duration // mean

	// The same in all windows of a set. It isn't always the same rail that ends last, so operations
	// take longer than the rail that does on the mean.
	Whole time.Duration // mean of the operations, each as long as its slowest rail; of a merged set: on the slowest rank
	Took  time.Duration // of a merged set: the same without the waiting for late ranks; in a rank's own: 0

	Family table.Family
}

// wholeOf is what a set's operations took, as a logarithm of seconds.
func wholeOf(set []Window) float64 {
	return math.Log(longest(set, func(w *Window) time.Duration { return w.Whole }))
}

// tookOf is what a set's operations took, in seconds.
func tookOf(set []Window) float64 {
	return longest(set, func(w *Window) time.Duration { return w.Took })
}

// beyond is how much longer a set's operations took than the rail that ended last on the mean, as a
// logarithm.
func beyond(set []Window) float64 {
	return math.Log(tookOf(set) / longest(set, func(w *Window) time.Duration { return w.Elapsed }))
}

// longest is the largest of a time of a set's windows, which is no less than what their rails took,
// in seconds.
func longest(set []Window, of func(*Window) time.Duration) float64 {
	var d time.Duration
	for i := range set {
		d = max(d, of(&set[i]), set[i].Elapsed)
	}
	return max(d, 1).Seconds()
}

// validateSet reports what is wrong with a set of windows from the network, or nil.
func validateSet(set []Window, rails int) error {
	if len(set) == 0 || len(set) > rails {
		return fmt.Errorf("a set of %d windows, there are %d rails", len(set), rails)
	}
	for i := range set {
		w, first := &set[i], &set[0]
		switch {
		case w.Rail < 0 || w.Rail >= rails:
			return fmt.Errorf("window of rail %d, there are %d", w.Rail, rails)
		case i > 0 && w.Rail <= set[i-1].Rail:
			return fmt.Errorf("window of rail %d after the one of rail %d", w.Rail, set[i-1].Rail)
		case !w.Class.Valid():
			return fmt.Errorf("window of size class %d, there are %d", uint8(w.Class), Classes)
		case w.Family >= table.Families || w.Family != first.Family:
			return fmt.Errorf("a set of windows of %v and %v", first.Family, w.Family)
		case w.Class != first.Class || w.Split != first.Split:
			return fmt.Errorf("a set of windows of classes %d and %d, splits %x and %x", uint8(first.Class), uint8(w.Class), first.Split, w.Split)
		case w.Operations < 1 || w.Operations > maxOperations:
			return fmt.Errorf("window of %d operations", w.Operations)
		case w.Bytes < 0 || w.Elapsed < 0 || w.Whole < 0 || w.Whole != first.Whole:
			return fmt.Errorf("window of %d bytes in %v, of operations of %v and %v", w.Bytes, w.Elapsed, w.Whole, first.Whole)
		}
	}
	return nil
}

// RailTime is what one rail took for its part of one operation.
type RailTime struct {
	Rail    int
	Bytes   int64
	Elapsed time.Duration
}

// Timer collects the completion times of one rank into sets of windows. It is not safe for
// concurrent use.
type Timer struct {
	Family  table.Family // of the operations
	divided Class        // the smallest that can be divided
	classes [Classes]sums
}

// sums is what a class's next set is made of.
type sums struct {
	table, split uint32 // of its latest operation

	passed     time.Duration // of operations since the split is in force, up to transient
	needed     time.Duration // to be complete; 0: as for the first one
	operations int
	elapsed    time.Duration // of the operations, each as long as its slowest rail
	slowest    time.Duration
	rails      []sum      // made with the first operation
	worst      []RailTime // of the slowest operation
}

type sum struct {
	operations int
	bytes      int64
	elapsed    time.Duration
}

// NewTimer has seen nothing. Operations below splitBytes are never divided.
func NewTimer(splitBytes int64) *Timer { return &Timer{divided: ClassOf(splitBytes)} }

// Add takes one operation's times, of each rail that carried a part of it, the version of the table
// that divided it, and how that divides its class. full: set is complete, and the next one begins.
// Times under an older table are ignored. A newer one that divides the class in another way begins
// its set anew, after what is transient.
func (t *Timer) Add(version, split uint32, class Class, times []RailTime) (set []Window, full bool) {
	s := &t.classes[class]
	if version < s.table || len(times) == 0 {
		return nil, false
	}
	if s.table = version; split != s.split {
		s.reset()
		s.split, s.needed, s.passed = split, 0, 0
	}
	var elapsed time.Duration
	for _, m := range times {
		elapsed = max(elapsed, m.Elapsed)
	}
	if class >= t.divided && s.passed < transient {
		if s.passed += elapsed; s.passed < transient {
			return nil, false
		}
	}
	for _, m := range times {
		for m.Rail >= len(s.rails) {
			s.rails = append(s.rails, sum{})
		}
		r := &s.rails[m.Rail]
		r.operations++
		r.bytes += m.Bytes
		r.elapsed += m.Elapsed
	}
	s.operations++
	s.elapsed += elapsed
	if elapsed >= s.slowest {
		s.slowest, s.worst = elapsed, append(s.worst[:0], times...)
	}
	if s.operations < WindowOperations || s.elapsed-s.slowest < max(s.needed, windowElapsed) && s.operations < maxOperations {
		return nil, false
	}
	set = s.windows(t.Family, class)
	s.needed = min(2*max(s.needed, windowElapsed), 2*transient)
	s.reset()
	return set, true
}

// windows are the means without the slowest operation. A rail that worked in that one alone has none.
func (s *sums) windows(family table.Family, class Class) (set []Window) {
	for _, m := range s.worst {
		r := &s.rails[m.Rail]
		r.operations--
		r.bytes -= m.Bytes
		r.elapsed -= m.Elapsed
	}
	whole := (s.elapsed - s.slowest) / time.Duration(s.operations-1)
	for rail, r := range s.rails {
		if r.operations > 0 {
			set = append(set, Window{Family: family, Rail: rail, Class: class, Split: s.split,
				Operations: r.operations,
				Bytes:      r.bytes / int64(r.operations),
				Elapsed:    r.elapsed / time.Duration(r.operations), Whole: whole})
		}
	}
	return set
}

func (s *sums) reset() {
	clear(s.rails)
	s.operations, s.elapsed, s.slowest, s.worst = 0, 0, 0, s.worst[:0]
}

// Drop begins all sets anew: a failover disturbed what was measured (docs/decisions/023).
func (t *Timer) Drop() {
	for c := range t.classes {
		t.classes[c].reset()
	}
}
