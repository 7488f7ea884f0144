package actors

import (
	"testing"
	"time"

	"github.com/polyrail/polyrail/collective/op"
	"github.com/polyrail/polyrail/collective/plan"
	"github.com/polyrail/polyrail/collective/schedule"
)

// timedOperation is one that has ended on two rails, of a communicator of nodes a and b.
func timedOperation(t *testing.T) (*node, *operation) {
	t.Helper()
	n := &node{rails: 2, config: Config{Measured: true}}
	g := newGroup(n, 7, "train", 0, []string{"a", "b"})
	g.formed.Store(true)
	n.groups.Store(&map[uint64]*member{g.id: {group: g}})
	o := &operation{group: g, seq: 1, request: &Request{bytes: 1 << 20}}
	cost := schedule.CostOf(op.KindAllReduce, op.Ring, 2, 2)
	l := plan.NewLayout(1<<20, 1, plan.Even(1<<20, 2), []schedule.Block{{Part: 0}, {Part: 1}}, cost)
	o.shape.config.Plan = plan.New(l, plan.Rounds(l.Rounds, []uint32{3, 1}), cost)
	o.disturbed = g.disturbed.Load()
	o.begun = time.Unix(0, 0)
	o.finish = []time.Time{o.begun.Add(3 * time.Millisecond), o.begun.Add(2 * time.Millisecond)}
	return n, o
}

func TestAnOperationReportsWhatEachRailCarriedAndTook(t *testing.T) {
	_, o := timedOperation(t)
	m := o.timed()
	if m == nil || len(m.rails) != 2 {
		t.Fatalf("timed: %+v", m)
	}
	if m.rails[0].Elapsed != 3*time.Millisecond || m.rails[1].Elapsed != 2*time.Millisecond {
		t.Errorf("the rails took %v", m.rails)
	}
	if sum := m.rails[0].Bytes + m.rails[1].Bytes; sum != 1<<20 || m.rails[0].Bytes < 2*m.rails[1].Bytes {
		t.Errorf("the rails carried %d and %d bytes", m.rails[0].Bytes, m.rails[1].Bytes)
	}
}

func TestAnOperationThatAFailoverHitIsNotMeasured(t *testing.T) {
	n, o := timedOperation(t)
	n.disturb("c")
	if o.timed() == nil {
		t.Error("a rail to a node that is no member made an operation count for nothing")
	}
	n.disturb("b")
	if m := o.timed(); m != nil {
		t.Errorf("a rail was lost on the way, and the operation counts: %+v", m)
	}
}

// TestEveryPatternOfOperationsIsTimed: a program repeats so many operations, of which one is small and divided.
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
