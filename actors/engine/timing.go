package engine

import (
	"sync"
	"time"

	"github.com/polyrail/polyrail/collective/balance"
	"github.com/polyrail/polyrail/collective/op"
	"github.com/polyrail/polyrail/collective/table"
	"github.com/polyrail/polyrail/collective/task"
)

// railClock is what a rail brought of an operation. A lane is planned for the rail of its number.
// But the sender binds each frame to a rail late: what counts is the rail that carried it.
type railClock struct {
	bytes int64     // of frames that landed
	last  time.Time // arrival
	// What the rail had brought of all the communicator's operations, when the times began and then.
	before, then int64
}

// startClocks readies the rails' clocks (Nezha's Timer, §III-E) of an operation that teaches the
// balancer something. Such a one is divided among ranks, could be among rails, and its caller left
// the algorithm open. Others cost no look at the clock. Under mu.
func (o *Operation) startClocks() {
	o.begun, o.rails, o.strayed, o.failovers = time.Time{}, o.rails[:0], false, o.group.Failovers.Load()
	r := o.request
	if !o.group.Measured() || r.Kind.Empty() || r.External != nil || r.Algorithm != op.Auto ||
		r.Rail != 0 || r.bytes == 0 ||
		!chosen(o.Seq, o.sample()) {
		return
	}
	for range o.shape.config.Plan.Lanes {
		o.rails = append(o.rails, railClock{})
	}
	if o.shape.eager {
		o.startTimes(time.Now())
	}
}

// startTimes begins the times of all rails. Under mu.
func (o *Operation) startTimes(now time.Time) {
	o.begun = now
	for rail := range o.rails {
		o.rails[rail].before = o.group.landed[rail].Load()
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

// landing notes which rail carries a frame of a lane, when its header has come. Memory is timed as the
// lane where there is nothing else. It is not timed where ranks of several hosts time their networks.
// Under mu.
func (o *Operation) landing(lane, rail int, bytes uint32) {
	if o.group.shared {
		rail = lane
	}
	if rail >= len(o.group.landed) {
		return
	}
	timed := rail < len(o.rails)
	if timed && o.begun.IsZero() {
		o.startTimes(time.Now())
	}
	o.group.landed[rail].Add(int64(bytes))
	if !timed {
		return
	}
	o.rails[rail].bytes += int64(bytes)
	o.strayed = o.strayed || rail != lane
}

// clock notes an event on a rail. A rail's time ends with its last arrival; sends and
// acknowledgements of ours are in some other rank's arrivals. It begins, for all rails alike, when
// this rank takes part. An eager operation sends at once, so it begins at the launch. Others begin
// with the first grant or the header of the first frame: before it this rank only waits for one that
// is late. What is left of such waiting, for ranks further round the ring, rank 0 takes out
// (balance.Collector). Under mu.
func (o *Operation) clock(kind task.EventKind, rail int) {
	arrived := kind == task.Arrived || kind == task.Folded
	if !arrived && kind != task.Granted {
		return
	}
	now := time.Now()
	if o.begun.IsZero() {
		o.startTimes(now)
	}
	if arrived {
		o.rails[rail].last, o.rails[rail].then = now, o.group.landed[rail].Load()
	}
}

// Timed is what the rails took for an operation.
type Timed struct {
	Family    table.Family
	Table     uint32 // its version
	Split     uint32 // how it divides operations of this class (balance.SplitOf)
	Bytes     int    // the operation's size
	StandsFor int    // how many operations it is one of
	Rails     []balance.RailTime
	Finished  int // the balancer's: how many of Rails were reported
}

// processBegan is what the beginnings of operations are counted from.
var processBegan = time.Now()

// Recycle gives it back.
func (t *Timed) Recycle() { timings.Put(t) }

var timings = sync.Pool{New: func() any { return new(Timed) }}

// Timed is what the rails took for an operation that has ended well, or nil where that says
// nothing. It says nothing where rails came or went, or where one is down and others carried its
// frames. So a rail has its share again as soon as it is back.
func (o *Operation) Timed() *Timed {
	if len(o.rails) == 0 || o.cause != nil || o.repaired || o.failovers != o.group.Failovers.Load() ||
		o.group.degraded.Load() {
		return nil
	}
	t := timings.Get().(*Timed)
	t.Family = table.FamilyOf(o.request.Kind)
	t.Table, t.Split, t.Bytes = o.shape.table, o.shape.split, o.shape.config.Plan.Bytes
	t.StandsFor, t.Rails, t.Finished = o.sample(), t.Rails[:0], 0
	for rail, c := range o.rails {
		if c.last.After(o.begun) {
			t.Rails = append(t.Rails, balance.RailTime{Rail: rail, Bytes: o.carried(rail),
				Elapsed: balance.Own(c.last.Sub(o.begun), c.bytes, c.then-c.before)})
		}
	}
	return t
}

// carried is how much of the operation a rail carries, over all ranks. If all frames came as
// planned that is the plan: of an allreduce each rank has all blocks; of other kinds it follows
// from the rounds. Otherwise it is the rail's part of what came here.
func (o *Operation) carried(rail int) int64 {
	p := o.shape.config.Plan
	switch {
	case o.strayed:
		total := int64(0)
		for i := range o.rails {
			total += o.rails[i].bytes
		}
		return int64(float64(p.Bytes) * float64(o.rails[rail].bytes) / float64(max(total, 1)))
	case o.request.Kind == op.KindAllReduce:
		return int64(p.Lanes[rail].Bytes)
	}
	return int64(p.Bytes) * int64(p.Lanes[rail].Rounds) / int64(p.Rounds)
}

// Measured reports whether the group's rails are balanced by measurement, or its algorithms chosen.
// It is the same on all ranks. Where all ranks share memory there are no rails to balance.
func (g *Group) Measured() bool {
	c := &g.engine.Config
	return c.Measured && ((g.engine.Rails > 1 || c.Trees) && !g.shared || c.Free) && g.Size > 1
}
