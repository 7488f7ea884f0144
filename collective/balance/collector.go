package balance

import "fmt"

// Collector is rank 0's view of all ranks' windows: an operation is as slow as its
// slowest rank, so what counts for a rail is the maximum over the ranks. It is not
// safe for concurrent use.
type Collector struct {
	ranks, rails int
	table        uint32
	cells        map[cell]*column
}

type cell struct {
	rail  int
	class Class
}

// column is what has come in for one rail and class.
type column struct {
	merged   Window
	reported []bool // by rank
	missing  int
}

// NewCollector merges the windows of that many ranks about that many rails, measured under
// that table version.
func NewCollector(ranks, rails int, table uint32) *Collector {
	return &Collector{ranks: ranks, rails: rails, table: table, cells: make(map[cell]*column)}
}

// Switch begins anew under another table version, the one that was just committed.
func (c *Collector) Switch(table uint32) {
	c.table = table
	clear(c.cells)
}

// Observe takes a rank's window; one of another table version is dropped. When all ranks have
// reported one for its rail and class, merged is their maximum, complete is true, and the next
// round begins. A rank that is a window ahead of the others counts with the slower of its
// windows. An error names the rank; nothing is changed by it.
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
		col = &column{merged: w, reported: make([]bool, c.ranks), missing: c.ranks}
		c.cells[at] = col
	}
	col.merged.Bytes = max(col.merged.Bytes, w.Bytes)
	col.merged.Elapsed = max(col.merged.Elapsed, w.Elapsed)
	if !col.reported[rank] {
		col.reported[rank] = true
		col.missing--
	}
	if col.missing > 0 {
		return Window{}, false, nil
	}
	delete(c.cells, at)
	return col.merged, true, nil
}
