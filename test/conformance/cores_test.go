package conformance

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"github.com/polyrail/polyrail/collective/op"
	"github.com/polyrail/polyrail/collective/plan"
	"github.com/polyrail/polyrail/collective/schedule"
	"github.com/polyrail/polyrail/collective/task"
)

// coreType and coreOperator show the order of every sum, on few bytes.
const (
	coreType     = op.Int32
	coreOperator = op.CodeUser
)

// TestCoresEqualTheReference runs every kind by every algorithm with every root, in place and not:
// programs, plans and tasks of all ranks in one goroutine, without nodes.
func TestCoresEqualTheReference(t *testing.T) {
	for _, f := range forms {
		t.Run(fmt.Sprintf("%v/%v", f.kind, f.algorithm), func(t *testing.T) {
			t.Parallel()
			cases := 0
			w := &world{}
			for _, n := range manyRanks {
				for root := range n {
					if root > 0 && !f.kind.Rooted() {
						break
					}
					cases += playCores(t, w, f, n, root)
				}
			}
			t.Logf("%d cases", cases)
		})
	}
}

// playCores runs all lengths among some ranks with one root.
func playCores(t *testing.T, w *world, f form, n, root int) (cases int) {
	t.Helper()
	for variant := range variants {
		if variant > 0 && !f.algorithm.ByHost() {
			break
		}
		programs := [2][]*schedule.Program{buildAll(t, f, n, root, variant, false), buildAll(t, f, n, root, variant, true)}
		for _, amount := range amounts {
			if !f.takes(amount, n) {
				continue
			}
			c := &testCase{form: f, dtype: coreType, code: coreOperator, ranks: n, root: root, amount: amount,
				variant: variant}
			c.prepare()
			for i, programs := range programs {
				w.played++
				w.setUp(c, programs, i == 1)
				if err := w.run(); err != nil {
					t.Fatalf("%v, in place %v: %v", c, i == 1, err)
				}
				cases++
			}
		}
	}
	return cases
}

// world plays the tasks of all ranks of one operation. What can happen next is in a list. It takes
// the first or, in every second operation, the last: frames overtake each other then.
type world struct {
	played int // operations; decides lanes and windows, too
	c      *testCase
	ranks  []coreRank
	todo   []func() error
	tasks  [][]task.Task // by rank and lane, used again
}

// coreRank is one rank's memory, and its lanes.
type coreRank struct {
	inPlace  bool
	src, dst []byte
	lanes    []*coreLane
}

type coreLane struct {
	*world
	rank              op.Rank
	index             int
	task              *task.Task
	arena             []byte
	resolved, retired bool
}

// coreWeights are the lanes' shares, by turns.
var coreWeights = [][]uint32{{1}, {1, 1}, {5, 1, 2}}

// buildAll makes the programs of all ranks.
func buildAll(t *testing.T, f form, n, root, variant int, inPlace bool) (programs []*schedule.Program) {
	t.Helper()
	places := schedule.NewHosts(hosts(n, variant))
	for r := range n {
		p, err := schedule.Build(schedule.Spec{Kind: f.kind, Algorithm: f.algorithm, Rank: op.Rank(r), N: n,
			Root: op.Rank(root), Base: bcubeBase, InPlace: inPlace, Hosts: places})
		if err != nil {
			t.Fatal(err)
		}
		programs = append(programs, p)
	}
	return programs
}

// setUp makes the ranks ready for an operation.
func (w *world) setUp(c *testCase, programs []*schedule.Program, inPlace bool) {
	w.c, w.ranks = c, w.ranks[:0]
	size := c.dtype.Size()
	var counts plan.Parts
	bytes := 0
	for _, count := range c.counts() {
		counts = append(counts, count*size)
		bytes += count * size
	}
	if !divided(c.kind) {
		counts = nil
	}
	parts := plan.PartsOf(c.kind, c.algorithm, c.ranks, bytes, counts)
	cost := schedule.CostOf(programs[0].Spec)
	weights := coreWeights[w.played%len(coreWeights)]
	for r, p := range programs {
		layout := plan.NewLayout(bytes, size, parts, p.Blocks, cost)
		cut := plan.New(layout, plan.Rounds(layout.Rounds, weights), cost)
		rank := coreRank{inPlace: inPlace}
		rank.src, rank.dst = c.memory(r, inPlace)
		if len(w.tasks) <= r {
			w.tasks = append(w.tasks, make([]task.Task, maxRails))
		}
		for i := range cut.Lanes {
			if cut.Lanes[i].Rounds == 0 {
				rank.lanes = append(rank.lanes, nil)
				continue
			}
			l := &coreLane{world: w, rank: op.Rank(r), index: i, task: &w.tasks[r][i]}
			l.task.Reset(task.Config{Program: p, Plan: cut, Lane: i, InPlace: inPlace,
				Eager: w.played%4 < 2, Window: 1 + w.played%3})
			l.arena = alignedBytes(l.task.ScratchBytes())
			rank.lanes = append(rank.lanes, l)
		}
		w.ranks = append(w.ranks, rank)
	}
}

// run plays the operation to its end and checks every byte.
func (w *world) run() error {
	for _, r := range w.ranks {
		for _, l := range r.lanes {
			if l != nil {
				if err := l.step(task.Event{Kind: task.Start}); err != nil {
					return err
				}
			}
		}
	}
	for len(w.todo) > 0 {
		next := w.todo[0]
		if w.played%2 == 0 {
			w.todo = w.todo[1:]
		} else {
			next = w.todo[len(w.todo)-1]
			w.todo = w.todo[:len(w.todo)-1]
		}
		if err := next(); err != nil {
			return err
		}
	}
	for i, r := range w.ranks {
		for _, l := range r.lanes {
			if l != nil && !(l.resolved && l.retired) {
				return fmt.Errorf("rank %d, lane %d is stuck", i, l.index)
			}
		}
		if err := compare(w.c.dtype, r.dst, w.c.expected[i]); err != nil {
			return fmt.Errorf("rank %d: %w", i, err)
		}
		if !r.inPlace && !bytes.Equal(r.src, w.c.operands[i]) {
			return fmt.Errorf("rank %d: its operand has changed", i)
		}
	}
	return nil
}

func (l *coreLane) later(e task.Event) {
	l.todo = append(l.todo, func() error { return l.step(e) })
}

// step gives the task an event, and carries out what it asks for.
func (l *coreLane) step(e task.Event) error {
	actions, err := l.task.Step(e, nil)
	if err != nil {
		return fmt.Errorf("rank %d: %+v: %w", l.rank, e, err)
	}
	for _, a := range actions {
		switch a.Kind {
		case task.Send:
			l.send(a)
		case task.Reduce, task.Copy:
			l.todo = append(l.todo, func() error { return l.kernel(a) })
		case task.Grant:
			l.ranks[a.To].lanes[l.index].later(task.Event{Kind: task.Granted, From: l.rank, Limit: a.Limit})
		case task.Resolve:
			l.resolved = true
		case task.Retire:
			l.retired = true
		}
	}
	return nil
}

// send copies what is sent, so that it is released at once, and lets it arrive later.
func (l *coreLane) send(a task.Action) {
	frame := slices.Clone(l.memory(a.Loc))
	span := l.task.Plan.Lanes[l.index].Spans[a.Span]
	to := l.ranks[a.To].lanes[l.index]
	l.later(task.Event{Kind: task.Released, Ref: a.Ref})
	l.todo = append(l.todo, func() error {
		ref, loc, err := to.task.Place(task.Frame{From: l.rank, First: span.First, Count: span.Count,
			Mark: a.Mark, Step: a.Step, Bytes: a.Loc.Len})
		if err != nil {
			return fmt.Errorf("rank %d: a frame of rank %d: %w", to.rank, l.rank, err)
		}
		copy(to.memory(loc), frame)
		return to.step(task.Event{Kind: task.Arrived, Ref: ref})
	})
}

func (l *coreLane) kernel(a task.Action) error {
	dst, first := l.memory(a.Dst), l.memory(a.Args[0])
	if a.Kind == task.Copy {
		at := 0
		for _, arg := range a.Args {
			at += copy(dst[at:], l.memory(arg))
		}
		return l.step(task.Event{Kind: task.Reduced, Ref: a.Ref})
	}
	combine := operator(l.c.code, l.c.dtype).UserDefined()
	for _, arg := range a.Args[1:] {
		if err := combine(dst, first, l.memory(arg)); err != nil {
			return err
		}
		first = dst
	}
	return l.step(task.Event{Kind: task.Reduced, Ref: a.Ref})
}

func (l *coreLane) memory(at task.Loc) []byte {
	switch at.Mem {
	case task.Input:
		return l.ranks[l.rank].src[at.Off:][:at.Len]
	case task.Final:
		return l.ranks[l.rank].dst[at.Off:][:at.Len]
	}
	return l.arena[at.Off:][:at.Len]
}
