package engine

import (
	"slices"
	"testing"
	"time"

	"github.com/polyrail/polyrail/collective/op"
	"github.com/polyrail/polyrail/collective/plan"
)

func TestATraceKeepsAllOfAnEvent(t *testing.T) {
	trace := testGroup(t, 2).StartTrace(2)
	lost := TraceEvent{Kind: TraceNote, Text: "rail down", Detail: "reset", Peer: 1, Rail: -1, Bytes: 7}
	want := []TraceEvent{
		{At: 1, Took: 2, Kind: TraceReduce, Operation: op.KindScan, Seq: 1 << 40, Lane: 3, Rail: -1, Peer: -1,
			First: 1 << 30, Count: 5, Bytes: 1 << 40},
		{At: 9, Kind: TraceSend, Operation: op.KindAllReduce, Seq: 2, Lane: 1, Rail: 1, Peer: 65535, Text: "n1"},
	}
	for _, e := range append([]TraceEvent{lost, lost}, want...) {
		trace.add(&e)
	}
	if got, n := trace.Events(); !slices.Equal(got, want) || n != 2 {
		t.Errorf("%d lost before\n%+v, want 2 before\n%+v", n, got, want)
	}
}

// A small operation's events have the time of what they follow from, if that was recorded.
func TestATraceGoesByTheClockWhereNothingWasStamped(t *testing.T) {
	g := testGroup(t, 2)
	o := &Operation{group: g, request: &Request{}}
	o.shape.config.Plan = &plan.Plan{}
	o.shape.config.Plan.Bytes = stampedBytes
	after := func(at time.Duration) {
		for time.Since(processBegan) <= at {
		}
	}
	before := o.stamp(time.Since(processBegan))
	after(before)
	trace := g.StartTrace(1)
	if now := o.now(trace); now <= before {
		t.Errorf("at %v, as what came at %v before the trace", now, before)
	}
	at := o.stamp(time.Since(processBegan))
	if now := o.now(trace); now != at {
		t.Errorf("at %v, stamped at %v", now, at)
	}
	o.shape.config.Plan.Bytes = stampedBytes + 1
	after(at)
	if now := o.now(trace); now <= at {
		t.Errorf("a large one at %v, stamped at %v", now, at)
	}
}

func TestATraceKeepsTheLastEventsInOrder(t *testing.T) {
	for _, ring := range []int{1, freshRecords - 1, freshRecords, freshRecords + 1, 5 * freshRecords} {
		for total := range 4 * freshRecords {
			trace := testGroup(t, 2).StartTrace(ring)
			for seq := range total {
				trace.add(&TraceEvent{Seq: uint64(seq)})
			}
			events, lost := trace.Events()
			if len(events) != min(total, ring) || int(lost) != total-len(events) {
				t.Fatalf("ring of %d after %d events: %d, and %d lost", ring, total, len(events), lost)
			}
			for i, e := range events {
				if e.Seq != lost+uint64(i) {
					t.Fatalf("ring of %d after %d events: event %d is the %d-th", ring, total, i, e.Seq)
				}
			}
		}
	}
}
