package balance

import (
	"fmt"
	"time"
)

// Collector is rank 0's view of all ranks' windows. It is not safe for concurrent use.
//
// Each rank measures from when it takes part until its last frame has come, and so includes
// its waiting for ranks that are late. Above the eager limit no byte moves before its receiver is there,
// and no rank ends before all data has gone round: the rank that came last has waited for nobody, and its
// time, the least of all, is the operation's. Up to the limit the last rank finds the others'
// frames waiting, and its time is too short by what the others' are too long: the mean counts.
type Collector struct {
	ranks, rails int
	eager        Class // the largest whose operations don't wait for their receivers
	table        uint32
	cells        map[cell]*column
}

type cell struct {
	rail  int
	class Class
}

// column is what has come in for one rail and class.
type column struct {
	merged   Window // Bytes is the largest
	sum      time.Duration
	least    time.Duration
	reported []bool // by rank
	missing  int
}

// NewCollector merges the windows of that many ranks about that many rails, measured under
// that table version. Operations up to eagerBytes are sent eagerly.
func NewCollector(ranks, rails int, table uint32, eagerBytes int64) *Collector {
	return &Collector{ranks: ranks, rails: rails, table: table, eager: ClassOf(eagerBytes), cells: make(map[cell]*column)}
}

// Switch begins anew under another table version, the one that was just committed.
func (c *Collector) Switch(table uint32) {
	c.table = table
	clear(c.cells)
}

// Observe takes a rank's window; one of another table version is dropped. When all ranks have
// reported one for its rail and class, complete is true and merged is what the operations took; the next
// round begins. Of a rank that is ahead of the others the first window counts. An error names the
// rank; nothing is changed by it.
func (c *Collector) Observe(rank int, w Window) (merged Window, complete bool, err error) {
	if rank < 0 || rank >= c.ranks {
		return Window{}, false, fmt.Errorf("window from rank %d of %d", rank, c.ranks)
	}
	if err := w.Validate(c.rails); err != nil {
		return Window{}, false, fmt.Errorf("rank %d: %w", rank, err)
	}
	if w.Table != c.table {
		return Window{}, false, nil
	}
	at := cell{rail: w.Rail, class: w.Class}
	col := c.cells[at]
	if col == nil {
		col = &column{merged: w, least: w.Elapsed, reported: make([]bool, c.ranks), missing: c.ranks}
		c.cells[at] = col
	}
	if col.reported[rank] {
		return Window{}, false, nil
	}
	col.reported[rank] = true
	col.missing--
	col.merged.Bytes = max(col.merged.Bytes, w.Bytes)
	col.sum += w.Elapsed
	col.least = min(col.least, w.Elapsed)
	if col.missing > 0 {
		return Window{}, false, nil
	}
	delete(c.cells, at)
	col.merged.Elapsed = col.least
	if w.Class <= c.eager {
		col.merged.Elapsed = col.sum / time.Duration(c.ranks)
	}
	return col.merged, true, nil
}
