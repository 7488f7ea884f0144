package task

import (
	"fmt"
	"testing"

	"github.com/polyrail/polyrail/collective/op"
	"github.com/polyrail/polyrail/collective/schedule"
)

// driver plays all that is around one task, without delay: peers that have granted
// everything and send each frame when it may come, kernels and acknowledgements.
type driver struct {
	task    *Task
	actions []Action
	steps   int
}

func (d *driver) step(e Event) {
	d.steps++
	var err error
	if d.actions, err = d.task.Step(e, d.actions); err != nil {
		panic(err)
	}
}

// settle answers actions until there are none.
func (d *driver) settle() {
	for len(d.actions) > 0 {
		last := len(d.actions) - 1
		a := d.actions[last]
		d.actions = d.actions[:last]
		switch a.Kind {
		case Send:
			d.step(Event{Kind: Released, Ref: a.Ref})
		case Reduce, Copy:
			d.step(Event{Kind: Reduced, Ref: a.Ref})
		}
	}
}

// run is the life of one operation.
func (d *driver) run(c Config) {
	d.task.Reset(c)
	d.step(Event{Kind: Start})
	d.settle()
	if !c.Eager {
		for _, to := range c.Program.To {
			d.step(Event{Kind: Granted, From: to, Limit: len(d.task.lane.Spans)})
			d.settle()
		}
	}
	for span, s := range d.task.lane.Spans {
		for i := range c.Program.Code {
			in := &c.Program.Code[i]
			if in.Kind != schedule.Recv {
				continue
			}
			ref, _, err := d.task.Place(Frame{in.Peer, s.First, s.Count, in.Mark, in.Step,
				d.task.bytes(span, in.Blocks)})
			if err != nil {
				panic(err)
			}
			d.step(Event{Kind: Arrived, Ref: ref})
			d.settle()
		}
	}
	if !d.task.retired {
		panic("not retired")
	}
}

var lives = []struct {
	algorithm op.Algorithm
	n, bytes  int
	eager     bool
}{
	{op.RecursiveDoubling, 4, 8, true},
	{op.Ring, 4, 64 << 10, true},
	{op.Ring, 6, 64 << 20, false},
	{op.Bcube, 6, 64 << 20, false},
}

func TestOperationsOfAKnownShapeAllocateNothing(t *testing.T) {
	for _, l := range lives {
		task := newTask(t, l.algorithm, 1, l.n, l.bytes, Config{InPlace: true, Eager: l.eager, Window: 2})
		d := &driver{task: task}
		if n := testing.AllocsPerRun(3, func() { d.run(task.Config) }); n > 0 {
			t.Errorf("%v of %d bytes: %v allocations", l.algorithm, l.bytes, n)
		}
	}
}

func BenchmarkOperation(b *testing.B) {
	for _, l := range lives {
		b.Run(fmt.Sprintf("algorithm=%v/n=%d/bytes=%d", l.algorithm, l.n, l.bytes), func(b *testing.B) {
			task := newTask(b, l.algorithm, 1, l.n, l.bytes, Config{InPlace: true, Eager: l.eager, Window: 2})
			d := &driver{task: task}
			for b.Loop() {
				d.run(task.Config)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(d.steps), "ns/step")
		})
	}
}
