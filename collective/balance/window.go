package balance

import (
	"fmt"
	"time"
)

// What makes a Window: the mean of ten operations (Nezha §IV-B), and so many more that the time
// spent on reporting them is small against theirs.
const (
	WindowOperations = 10
	windowElapsed    = time.Millisecond
	maxOperations    = 1 << 20
)

// Window is the mean of at least WindowOperations operations of one size class on one rail, of which
// the slowest was left out: one retransmission timeout would outweigh all the others.
type Window struct {
	Rail       int // index
	Class      Class
	Table      uint32        // version under which all of them ran
	Operations int           // at least WindowOperations
	Bytes      int64         // mean, of what the rail carried
	Elapsed    time.Duration // mean
}

// Validate reports what is wrong with a window from the network, or nil.
func (w *Window) Validate(rails int) error {
	switch {
	case w.Rail < 0 || w.Rail >= rails:
		return fmt.Errorf("window of rail %d, there are %d", w.Rail, rails)
	case !w.Class.Valid():
		return fmt.Errorf("window of size class %d, there are %d", uint8(w.Class), Classes)
	case w.Operations < WindowOperations || w.Operations > maxOperations:
		return fmt.Errorf("window of %d operations instead of %d or more", w.Operations, WindowOperations)
	case w.Bytes < 0 || w.Elapsed < 0:
		return fmt.Errorf("window of %d bytes in %v", w.Bytes, w.Elapsed)
	}
	return nil
}

// Timer collects the completion times of one rank into windows. It is not safe for concurrent use.
type Timer struct {
	table uint32
	sums  [][Classes]sum // by rail, class
}

type sum struct {
	operations int
	bytes      int64
	elapsed    time.Duration
	slowest    time.Duration
}

// NewTimer is for that many rails.
func NewTimer(rails int) *Timer { return &Timer{sums: make([][Classes]sum, rails)} }

// Add takes one operation's time on one rail: the bytes that it carried, how long that took, the
// table that divided the operation. full: w is complete, and the next window begins.
// Times under an older table are ignored; a newer table begins all windows anew.
func (t *Timer) Add(rail int, class Class, table uint32, bytes int64, elapsed time.Duration) (w Window, full bool) {
	if table < t.table {
		return Window{}, false
	}
	if table > t.table {
		t.table = table
		clear(t.sums)
	}
	s := &t.sums[rail][class]
	s.operations++
	s.bytes += bytes
	s.elapsed += elapsed
	s.slowest = max(s.slowest, elapsed)
	if s.operations < WindowOperations || s.elapsed-s.slowest < windowElapsed && s.operations < maxOperations {
		return Window{}, false
	}
	w = Window{
		Rail: rail, Class: class, Table: table, Operations: s.operations,
		Bytes: s.bytes / int64(s.operations), Elapsed: (s.elapsed - s.slowest) / time.Duration(s.operations-1),
	}
	*s = sum{}
	return w, true
}

// Drop begins all windows of a rail anew: a failover disturbed what was measured (DESIGN §4.1).
func (t *Timer) Drop(rail int) { t.sums[rail] = [Classes]sum{} }
