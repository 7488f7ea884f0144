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
	b      *testing.B
	plan   *plan.Plan
	ranks  []*task.Task
	config []task.Config
	queue  []decision // handled from the front; its memory is kept
	room   []task.Action
	steps  int
}

// decision is an action of one rank that waits to be carried out.
type decision struct {
	rank   int
	action task.Action
}

func newTasks(b *testing.B, a op.Algorithm, n, bytes int, eager bool) *tasks {
	l := plan.NewLayout(bytes, 4, schedule.Owners(a, n))
	t := &tasks{b: b, plan: plan.New(l, plan.Rounds(l.Rounds, []uint32{1, 1}))}
	for rank := range n {
		p, err := schedule.Build(a, op.Rank(rank), n, 2)
		if err != nil {
			b.Fatal(err)
		}
		t.ranks = append(t.ranks, new(task.Task))
		t.config = append(t.config, task.Config{Program: p, Plan: t.plan, InPlace: true, Eager: eager, Window: 4})
	}
	return t
}

func (t *tasks) step(rank int, e task.Event) {
	t.steps++
	var err error
	if t.room, err = t.ranks[rank].Step(e, t.room[:0]); err != nil {
		t.b.Fatal(err)
	}
	for _, a := range t.room {
		t.queue = append(t.queue, decision{rank, a})
	}
}

// run is one operation of all ranks.
func (t *tasks) run() {
	for rank := range t.ranks {
		t.ranks[rank].Reset(t.config[rank])
		t.step(rank, task.Event{Kind: task.Start})
	}
	retired := 0
	for i := 0; i < len(t.queue); i++ {
		rank, a := t.queue[i].rank, t.queue[i].action
		switch a.Kind {
		case task.Send:
			t.step(rank, task.Event{Kind: task.Released, Ref: a.Ref})
			s := t.plan.Spans[a.Span]
			ref, _, err := t.ranks[a.To].Place(op.Rank(rank), a.Rail, s.First, s.Count, a.Owner, a.Step, a.Loc.Len)
			if err != nil {
				t.b.Fatal(err)
			}
			t.step(int(a.To), task.Event{Kind: task.Arrived, Ref: ref})
		case task.Reduce, task.Copy:
			t.step(rank, task.Event{Kind: task.Reduced, Ref: a.Ref})
		case task.Grant:
			t.step(int(a.To), task.Event{Kind: task.Granted, From: op.Rank(rank), Rail: a.Rail, Limit: a.Limit})
		case task.Retire:
			retired++
		}
	}
	t.queue = t.queue[:0]
	if retired != len(t.ranks) {
		t.b.Fatalf("%d of %d ranks are done", retired, len(t.ranks))
	}
}

// BenchmarkTaskStep is an operation of all ranks, decisions alone; ns/step is one event of one rank.
func BenchmarkTaskStep(b *testing.B) {
	for _, c := range []struct {
		algorithm op.Algorithm
		n, bytes  int
		eager     bool
	}{
		{op.RecursiveDoubling, 2, 8, true},
		{op.RecursiveDoubling, 4, 8, true},
		{op.Ring, 4, 64 << 10, true},
		{op.Ring, 4, 1 << 20, false},
		{op.Ring, 4, 64 << 20, false},
	} {
		b.Run(fmt.Sprintf("algorithm=%v/n=%d/bytes=%d", c.algorithm, c.n, c.bytes), func(b *testing.B) {
			t := newTasks(b, c.algorithm, c.n, c.bytes, c.eager)
			b.ReportAllocs()
			for b.Loop() {
				t.run()
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(t.steps), "ns/step")
		})
	}
}
