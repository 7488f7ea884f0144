package engine

import (
	"sync"
	"time"

	"github.com/polyrail/polyrail/collective/balance"
	"github.com/polyrail/polyrail/collective/op"
	"github.com/polyrail/polyrail/collective/table"
	"github.com/polyrail/polyrail/collective/task"
)

// startClocks readies the rails' clocks (Nezha's Timer, §III-E) of an operation that teaches the
// balancer something. Such a one is divided among ranks, could be among rails, and its caller left
// the algorithm open. Others cost no look at the clock. Under mu.
func (o *Operation) startClocks() {
	o.begun, o.finish, o.failovers = time.Time{}, o.finish[:0], o.group.Failovers.Load()
	r := o.request
	if !o.group.Measured() || r.Kind.Empty() || r.External != nil || r.Algorithm != op.Auto ||
		r.Rail != 0 || r.bytes == 0 ||
		!chosen(o.Seq, o.sample()) {
		return
	}
	for range o.shape.config.Plan.Lanes {
		o.finish = append(o.finish, time.Time{})
	}
	if o.shape.eager {
		o.begun = time.Now()
	}
}

// Of operations so small that looking at the clock can be felt, one in a few is timed: the same
// ones on all ranks.
const (
	seldomBytes = 4 << 10
	seldom      = 8
)

// chosen reports whether an operation is timed, where one of so many is. It goes by a hash of the
// seq (splitmix64's last steps), since programs repeat themselves. In one that has a barrier before
// each sum, every eighth operation may never be a sum.
func chosen(seq uint64, oneOf int) bool {
	seq = (seq ^ seq>>30) * 0xbf58476d1ce4e5b9
	seq = (seq ^ seq>>27) * 0x94d049bb133111eb
	return (seq^seq>>31)%uint64(oneOf) == 0
}

// sample is how many operations of this size are timed as one.
func (o *Operation) sample() int {
	if o.request.bytes <= seldomBytes {
		return seldom
	}
	return 1
}

// clock notes an event on a lane. A lane's time ends with its last arrival; sends and
// acknowledgements of ours are in some other rank's arrivals. It begins, for all rails alike, when
// this rank takes part. An eager operation sends at once, so it begins at the launch. Others begin
// with the first grant or frame of another rank: before it this rank only waits for one that is
// late. What is left of such waiting, for ranks further round the ring, rank 0 takes out
// (balance.Collector). Under mu.
func (o *Operation) clock(kind task.EventKind, lane int) {
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

// Timed is what the rails took for an operation.
type Timed struct {
	Family    table.Family
	Table     uint32
	Bytes     int // the operation's size
	StandsFor int // how many operations it is one of
	Rails     []balance.RailTime
	Began     time.Duration // of its rails' times, since the process began
	Finished  int           // the balancer's: how many of Rails were reported
}

// processBegan is what the beginnings of operations are counted from.
var processBegan = time.Now()

// Recycle gives it back.
func (t *Timed) Recycle() { timings.Put(t) }

var timings = sync.Pool{New: func() any { return new(Timed) }}

// Timed is what the rails took for an operation that has ended well, or nil where that says
// nothing. It says nothing where rails came or went, or where one is down and others than planned
// carried its frames. So a rail has its share again as soon as it is back.
func (o *Operation) Timed() *Timed {
	if len(o.finish) == 0 || o.cause != nil || o.failovers != o.group.Failovers.Load() ||
		o.group.degraded.Load() {
		return nil
	}
	t := timings.Get().(*Timed)
	t.Family = table.FamilyOf(o.request.Kind)
	t.Table, t.Bytes, t.StandsFor, t.Rails, t.Finished = o.shape.table, o.shape.config.Plan.Bytes,
		o.sample(), t.Rails[:0], 0
	t.Began = o.begun.Sub(processBegan)
	for lane, last := range o.finish {
		if last.After(o.begun) {
			t.Rails = append(t.Rails, balance.RailTime{Rail: lane, Bytes: o.carried(lane),
				Elapsed: last.Sub(o.begun)})
		}
	}
	return t
}

// carried is how much of the operation a lane carries, over all ranks. Of an allreduce each rank
// has all blocks; of other kinds it follows from the rounds.
func (o *Operation) carried(lane int) int64 {
	p := o.shape.config.Plan
	if o.request.Kind == op.KindAllReduce {
		return int64(p.Lanes[lane].Bytes)
	}
	return int64(p.Bytes) * int64(p.Lanes[lane].Rounds) / int64(p.Rounds)
}

// Measured reports whether the group's rails are balanced by measurement, or its algorithms chosen.
// It is the same on all ranks.
func (g *Group) Measured() bool {
	c := &g.engine.Config
	return c.Measured && (g.engine.Rails > 1 || c.Free) && g.Size > 1
}
