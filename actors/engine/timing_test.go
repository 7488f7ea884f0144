package engine

import (
	"testing"
	"time"

	"github.com/polyrail/polyrail/collective/op"
	"github.com/polyrail/polyrail/collective/plan"
	"github.com/polyrail/polyrail/collective/schedule"
	"github.com/polyrail/polyrail/collective/task"
)

// timedOperation is one that has ended on two rails, of a communicator of nodes a and b.
func timedOperation(t *testing.T) *Operation {
	t.Helper()
	o := timedOn(testGroup(t, 2))
	o.begun = time.Unix(0, 0)
	o.rails = []railClock{{last: o.begun.Add(3 * time.Millisecond)}, {last: o.begun.Add(2 * time.Millisecond)}}
	return o
}

// timedOn is an operation of a group whose rails' times are taken.
func timedOn(g *Group) *Operation {
	o := &Operation{group: g, Seq: 1, request: &Request{bytes: 1 << 20}}
	cost := schedule.CostOf(schedule.Spec{Kind: op.KindAllReduce, Algorithm: op.Ring, N: 2})
	l := plan.NewLayout(1<<20, 1, plan.Even(1<<20, 2), []schedule.Block{{Part: 0}, {Part: 1}}, cost)
	o.shape.config.Plan = plan.New(l, plan.Rounds(l.Rounds, []uint32{3, 1}), cost)
	o.failovers, o.rails = g.Failovers.Load(), make([]railClock, 2)
	return o
}

func TestAnOperationReportsWhatEachRailCarriedAndTook(t *testing.T) {
	o := timedOperation(t)
	m := o.Timed()
	if m == nil || len(m.Rails) != 2 {
		t.Fatalf("timed: %+v", m)
	}
	if m.Rails[0].Elapsed != 3*time.Millisecond || m.Rails[1].Elapsed != 2*time.Millisecond {
		t.Errorf("the rails took %v", m.Rails)
	}
	if sum := m.Rails[0].Bytes + m.Rails[1].Bytes; sum != 1<<20 || m.Rails[0].Bytes < 2*m.Rails[1].Bytes {
		t.Errorf("the rails carried %d and %d bytes", m.Rails[0].Bytes, m.Rails[1].Bytes)
	}
}

// Frames bind to rails late: half of what was planned for the second rail came over the first.
func TestARailIsTimedByWhatItCarried(t *testing.T) {
	o := timedOperation(t)
	const frame = 1 << 10
	for i := range 100 {
		lane := i / 75
		rail := lane
		if i >= 88 {
			rail = 0
		}
		o.landing(lane, rail, frame)
	}
	m := o.Timed()
	if m == nil || len(m.Rails) != 2 {
		t.Fatalf("timed: %+v", m)
	}
	if want := int64(1<<20) * 87 / 100; m.Rails[0].Bytes != want || m.Rails[1].Bytes != 1<<20-want-1 {
		t.Errorf("the rails carried %d and %d bytes of %d", m.Rails[0].Bytes, m.Rails[1].Bytes, 1<<20)
	}
}

// A rank that only receives, as a gather's root, takes part when the first frame begins to come. If it
// took part when that has come, it would not see what its largest frames cost, on any rail.
func TestTheFirstFrameOfARankThatOnlyReceivesIsTimed(t *testing.T) {
	o := timedOperation(t)
	o.begun, o.rails = time.Time{}, make([]railClock, 2)
	o.landing(1, 1, 1<<10)
	headed := o.begun
	if headed.IsZero() {
		t.Fatal("the clock does not run while the first frame comes")
	}
	o.clock(task.Arrived, 1)
	o.landing(0, 0, 1<<10)
	o.rails[1].last = headed.Add(time.Millisecond)
	m := o.Timed()
	if m == nil || len(m.Rails) != 1 || m.Rails[0].Rail != 1 || m.Rails[0].Elapsed != time.Millisecond {
		t.Errorf("timed: %+v", m)
	}
}

func TestATagHoldsReferenceLaneAndRail(t *testing.T) {
	ref, lane, rail := untag(tag(1<<31-1, 1<<16-1, 63))
	if ref != 1<<31-1 || lane != 1<<16-1 || rail != 63 {
		t.Errorf("reference %d, lane %d, rail %d", ref, lane, rail)
	}
}

func TestAnOperationThatAFailoverHitIsNotMeasured(t *testing.T) {
	o := timedOperation(t)
	o.group.Failovers.Add(1)
	if m := o.Timed(); m != nil {
		t.Errorf("a rail was lost on the way, and the operation counts: %+v", m)
	}
}

// TestEveryPatternOfOperationsIsTimed: a program repeats so many operations, of which one is small
// and divided.
func TestEveryPatternOfOperationsIsTimed(t *testing.T) {
	const repeats = 2000
	for period := uint64(1); period <= 64; period++ {
		for first := range period {
			timed := 0
			for n := range uint64(repeats) {
				if chosen(first+n*period, seldom) {
					timed++
				}
			}
			if want := repeats / seldom; timed < want/2 || timed > 2*want {
				t.Errorf("%d of %d operations are timed that are number %d of each %d", timed, repeats, first, period)
			}
			if !chosen(first, 1) {
				t.Errorf("operation %d isn't timed where all are", first)
			}
		}
	}
}

// An operation that waits behind another one's frames is charged its own bytes: 1 KiB of 4 that the rail
// brought in its time.
func TestAnOperationIsChargedItsPartOfWhatItsRailBrought(t *testing.T) {
	g := testGroup(t, 2)
	large, small := timedOn(g), timedOn(g)
	large.landing(0, 0, 1<<10)
	small.startTimes(time.Now())
	large.landing(0, 0, 3<<10)
	small.landing(0, 0, 1<<10)
	small.clock(task.Arrived, 0)
	small.begun = small.rails[0].last.Add(-4 * time.Millisecond)
	if m := small.Timed(); m == nil || len(m.Rails) != 1 || m.Rails[0].Elapsed != time.Millisecond {
		t.Errorf("timed: %+v", m)
	}
	large.clock(task.Arrived, 0)
	large.begun = large.rails[0].last.Add(-5 * time.Millisecond)
	if m := large.Timed(); m == nil || len(m.Rails) != 1 || m.Rails[0].Elapsed != 4*time.Millisecond {
		t.Errorf("timed: %+v", m)
	}
}
