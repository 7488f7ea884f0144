package bench

import (
	"fmt"
	"testing"

	"github.com/polyrail/polyrail/collective/op"
	"github.com/polyrail/polyrail/collective/plan"
	"github.com/polyrail/polyrail/collective/schedule"
	"github.com/polyrail/polyrail/collective/task"
)

// tasks are the cores of all ranks, joined without network or memory: what an operation costs in
// decisions alone.
type tasks struct {
	b     *testing.B
	parts []*part    // by rank and lane
	queue []decision // handled from the front; its memory is kept
	room  []task.Action
	steps int
}

// part is one rank's part of the operation on one lane.
type part struct {
	task   task.Task
	config task.Config
}

// decision is an action of one part that waits to be carried out.
type decision struct {
	rank, lane int
	action     task.Action
}

const lanes = 2

func newTasks(b *testing.B, k op.Kind, a op.Algorithm, n, bytes int, eager bool) *tasks {
	t := &tasks{b: b}
	cost := schedule.CostOf(schedule.Spec{Kind: k, Algorithm: a, N: n, Base: 2})
	parts := plan.PartsOf(k, a, n, bytes, nil)
	for rank := range n {
		p, err := schedule.Build(schedule.Spec{Kind: k, Algorithm: a, Rank: op.Rank(rank), N: n,
			Base: 2, InPlace: true})
		if err != nil {
			b.Fatal(err)
		}
		l := plan.NewLayout(bytes, 4, parts, p.Blocks, cost)
		cut := plan.New(l, plan.Rounds(l.Rounds, []uint32{1, 1}), cost)
		for lane := range lanes {
			x := &part{config: task.Config{Program: p, Plan: cut, Lane: lane, InPlace: true,
				Eager: eager, Window: 4}}
			t.parts = append(t.parts, x)
		}
	}
	return t
}

func (t *tasks) part(rank, lane int) *part { return t.parts[rank*lanes+lane] }

func (t *tasks) step(rank, lane int, e task.Event) {
	t.steps++
	var err error
	if t.room, err = t.part(rank, lane).task.Step(e, t.room[:0]); err != nil {
		t.b.Fatal(err)
	}
	for _, a := range t.room {
		t.queue = append(t.queue, decision{rank, lane, a})
	}
}

// run is one operation of all ranks.
func (t *tasks) run() {
	left := 0
	for i, p := range t.parts {
		if p.config.Plan.Lanes[p.config.Lane].Rounds > 0 {
			left++
			p.task.Reset(p.config)
			t.step(i/lanes, i%lanes, task.Event{Kind: task.Start})
		}
	}
	for i := 0; i < len(t.queue); i++ {
		rank, lane, a := t.queue[i].rank, t.queue[i].lane, t.queue[i].action
		to := int(a.To)
		switch a.Kind {
		case task.Send:
			t.step(rank, lane, task.Event{Kind: task.Released, Ref: a.Ref})
			s := t.part(rank, lane).config.Plan.Lanes[lane].Spans[a.Span]
			ref, _, err := t.part(to, lane).task.Place(task.Frame{From: op.Rank(rank),
				First: s.First, Count: s.Count,
				Mark: a.Mark, Step: a.Step, Bytes: a.Loc.Len})
			if err != nil {
				t.b.Fatal(err)
			}
			t.step(to, lane, task.Event{Kind: task.Arrived, Ref: ref})
		case task.Reduce, task.Copy:
			t.step(rank, lane, task.Event{Kind: task.Reduced, Ref: a.Ref})
		case task.Grant:
			t.step(to, lane, task.Event{Kind: task.Granted, From: op.Rank(rank), Limit: a.Limit})
		case task.Retire:
			left--
		}
	}
	t.queue = t.queue[:0]
	if left != 0 {
		t.b.Fatalf("%d parts are not done", left)
	}
}

// BenchmarkTaskStep is an operation of all ranks, decisions alone; ns/step is one event of one rank.
func BenchmarkTaskStep(b *testing.B) {
	for _, c := range []struct {
		kind      op.Kind
		algorithm op.Algorithm
		n, bytes  int
		eager     bool
	}{
		{op.KindAllReduce, op.RecursiveDoubling, 2, 8, true},
		{op.KindAllReduce, op.RecursiveDoubling, 4, 8, true},
		{op.KindAllReduce, op.Ring, 4, 64 << 10, true},
		{op.KindAllReduce, op.Ring, 4, 1 << 20, false},
		{op.KindAllReduce, op.Ring, 4, 64 << 20, false},
		{op.KindBroadcast, op.Chain, 4, 64 << 20, false},
		{op.KindAllToAll, op.Direct, 4, 64 << 20, false},
	} {
		name := fmt.Sprintf("algorithm=%v/n=%d/bytes=%d", c.algorithm, c.n, c.bytes)
		if c.kind != op.KindAllReduce { // whose names stay, for comparisons
			name = fmt.Sprintf("kind=%v/%s", c.kind, name)
		}
		b.Run(name, func(b *testing.B) {
			t := newTasks(b, c.kind, c.algorithm, c.n, c.bytes, c.eager)
			b.ReportAllocs()
			for b.Loop() {
				t.run()
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(t.steps), "ns/step")
		})
	}
}
