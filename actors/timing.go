package actors

import (
	"sync"
	"time"

	"github.com/polyrail/polyrail/collective/balance"
	"github.com/polyrail/polyrail/collective/op"
	"github.com/polyrail/polyrail/collective/table"
	"github.com/polyrail/polyrail/collective/task"
)

// startClocks readies the rails' clocks (Nezha's Timer, §III-E) of an operation that teaches the balancer something:
// one that is divided among ranks and could be among rails, and whose algorithm its caller left open. Others cost no
// look at the clock. Under mu.
func (o *operation) startClocks() {
	o.begun, o.finish, o.disturbed = time.Time{}, o.finish[:0], o.group.disturbed.Load()
	r := o.request
	if !o.group.measured() || r.Kind.Empty() || r.External != nil || r.Algorithm != op.Auto || r.rail != 0 || r.bytes == 0 ||
		!chosen(o.seq, o.sample()) {
		return
	}
	for range o.shape.config.Plan.Lanes {
		o.finish = append(o.finish, time.Time{})
	}
	if o.shape.eager {
		o.begun = time.Now()
	}
}

// Of operations so small that looking at the clock can be felt, one in a few is timed: the same ones on all ranks.
const (
	seldomBytes = 4 << 10
	seldom      = 8
)

// chosen reports whether an operation is timed, where one of so many is. It goes by a hash of the seq (splitmix64's last steps),
// since programs repeat themselves: of one that has a barrier before each sum, every eighth operation may never be a sum.
func chosen(seq uint64, oneOf int) bool {
	seq = (seq ^ seq>>30) * 0xbf58476d1ce4e5b9
	seq = (seq ^ seq>>27) * 0x94d049bb133111eb
	return (seq^seq>>31)%uint64(oneOf) == 0
}

// sample is how many operations of this size are timed as one.
func (o *operation) sample() int {
	if o.request.bytes <= seldomBytes {
		return seldom
	}
	return 1
}

// clock notes an event on a lane. A lane's time ends with its last arrival; sends and acknowledgements
// of ours are in some other rank's arrivals. It begins, for all rails alike, when this rank takes part: at the launch
// of an eager operation, which sends at once, else with the first grant or frame of another rank,
// before which this rank only waits for one that is late. What is left of such waiting, for
// ranks further round the ring, rank 0 takes out (balance.Collector). Under mu.
func (o *operation) clock(kind task.EventKind, lane int) {
	if kind != task.Arrived && kind != task.Granted {
		return
	}
	now := time.Now()
	if o.begun.IsZero() {
		o.begun = now
	}
	if kind == task.Arrived {
		o.finish[lane] = now
	}
}

var timings = sync.Pool{New: func() any { return new(operationTimed) }}
var finishes = sync.Pool{New: func() any { return new(railFinished) }}

// timed is what the rails took for an operation that has ended well, or nil where that says nothing: rails came or
// went, or one is down, and frames were carried by others than planned. So a rail has its share again as soon as it is back.
func (o *operation) timed() *operationTimed {
	if len(o.finish) == 0 || o.cause != nil || o.disturbed != o.group.disturbed.Load() || o.group.maimed.Load() {
		return nil
	}
	t := timings.Get().(*operationTimed)
	t.family = table.FamilyOf(o.request.Kind)
	t.table, t.bytes, t.standsFor, t.rails, t.finished = o.shape.table, o.shape.config.Plan.Bytes, o.sample(), t.rails[:0], 0
	for lane, last := range o.finish {
		if last.After(o.begun) {
			t.rails = append(t.rails, balance.RailTime{Rail: lane, Bytes: o.carried(lane), Elapsed: last.Sub(o.begun)})
		}
	}
	return t
}

// carried is how much of the operation a lane carries, over all ranks. Of an allreduce each rank has all blocks; of
// other kinds it follows from the rounds.
func (o *operation) carried(lane int) int64 {
	p := o.shape.config.Plan
	if o.request.Kind == op.KindAllReduce {
		return int64(p.Lanes[lane].Bytes)
	}
	return int64(p.Bytes) * int64(p.Lanes[lane].Rounds) / int64(p.Rounds)
}

// measured reports whether the group's rails are balanced by measurement, or its algorithms chosen. It is the same on all ranks.
func (g *group) measured() bool {
	c := &g.node.config
	return c.Measured && (g.node.rails > 1 || c.Free) && g.size > 1
}
