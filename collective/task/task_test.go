package task

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"testing"

	"github.com/polyrail/polyrail/collective/op"
	"github.com/polyrail/polyrail/collective/plan"
	"github.com/polyrail/polyrail/collective/schedule"
	"pgregory.net/rapid"
)

func anySetup(t *rapid.T) setup {
	s := setup{
		kind:    rapid.SampledFrom(op.Kinds).Draw(t, "kind"),
		base:    rapid.IntRange(2, 5).Draw(t, "base"),
		n:       rapid.IntRange(1, maxRanks).Draw(t, "n"),
		window:  rapid.IntRange(1, 4).Draw(t, "window"),
		inPlace: rapid.Bool().Draw(t, "inPlace"),
		mixed:   rapid.Bool().Draw(t, "mixed"),
		eager:   rapid.Bool().Draw(t, "eager"),
		ordered: rapid.Bool().Draw(t, "ordered"),
		weights: rapid.SliceOfN(rapid.Uint32Range(0, 3), 1, maxLanes).Draw(t, "weights"),
	}
	s.algorithm = rapid.SampledFrom(schedule.Algorithms(s.kind)).Draw(t, "algorithm")
	if s.algorithm.ByHost() {
		many := rapid.IntRange(1, s.n).Draw(t, "hosts")
		s.hosts = make([][]int, many)
		for r := range s.n { // each host has a rank; the others are anywhere
			host := r
			if r >= many {
				host = rapid.IntRange(0, many-1).Draw(t, "host")
			}
			s.hosts[host] = append(s.hosts[host], r)
		}
	}
	if s.kind.Rooted() {
		s.root = rapid.IntRange(0, s.n-1).Draw(t, "root")
	}
	s.weights[rapid.IntRange(0, len(s.weights)-1).Draw(t, "someone")]++
	limit := rapid.SampledFrom([]int{3, 300, 20_000, 60_000 * s.n}).Draw(t, "limit")
	s.bytes = 4 * s.n * (rapid.IntRange(0, limit).Draw(t, "elements") / s.n)
	if schedule.Parts(s.kind, s.algorithm, s.n) == s.n && s.kind != op.KindAllReduce &&
		s.kind != op.KindAllToAll && rapid.Bool().Draw(t, "uneven") {
		for range s.n {
			s.counts = append(s.counts, 4*rapid.IntRange(0, limit/s.n).Draw(t, "count"))
		}
	}
	return s
}

func TestEveryRankEndsWithTheRightBitsWhateverHappens(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var tasks [maxRanks][maxLanes]Task
		newWorld(t, anySetup(t), rapid.Uint64().Draw(t, "seed"), &tasks).run()
	})
}

// The worlds of the test above have them.
func TestFramesAreFoldedFromWhereTheyAre(t *testing.T) {
	for _, algorithm := range []op.Algorithm{op.Ring, op.RecursiveDoubling, op.Hierarchical} {
		for _, inPlace := range []bool{false, true} {
			var tasks [maxRanks][maxLanes]Task
			folded, torn := 0, 0
			for seed := range uint64(20) {
				w := newWorld(t, setup{kind: op.KindAllReduce, algorithm: algorithm, n: 4, window: 2, weights: []uint32{1},
					bytes: 100_000, inPlace: inPlace, eager: true, hosts: [][]int{{0, 1, 2, 3}}}, seed, &tasks)
				w.run()
				folded, torn = folded+w.folded, torn+w.torn
			}
			// Frames of the hierarchical one are folded over what came before.
			if folded == 0 || torn == 0 && algorithm == op.Ring {
				t.Errorf("%v, in place %v: %d frames were folded where they are, %d torn", algorithm, inPlace, folded, torn)
			}
		}
	}
}

// What is made of the rank's own input alone needs no grant, and yet must leave the scratch alone
// that an earlier span has: the parts that a scatter's root packs, a lone operand of a tree.
func TestScratchOfTheOwnInputStaysWithinTheWindow(t *testing.T) {
	for _, s := range []setup{
		{kind: op.KindScatter, algorithm: op.Tree, n: maxRanks, bytes: maxRanks << 18},
		{kind: op.KindAllGather, algorithm: op.Tree, n: 3, counts: plan.Parts{1 << 20, 0, 0}},
	} {
		for seed := range uint64(10) {
			s.base, s.weights, s.window = 2, []uint32{1}, 1
			newWorld(t, s, seed, new([maxRanks][maxLanes]Task)).run()
		}
	}
}

func TestAbortEndsEveryRankWhateverIsOutstanding(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := anySetup(t)
		s.abort = rapid.IntRange(1, 500).Draw(t, "abort")
		var tasks [maxRanks][maxLanes]Task
		newWorld(t, s, rapid.Uint64().Draw(t, "seed"), &tasks).run()
		// What an aborted operation left behind doesn't show in the next one.
		newWorld(t, anySetup(t), 1, &tasks).run()
	})
}

func TestBitsDontDependOnRails(t *testing.T) {
	for _, k := range op.Kinds {
		for _, a := range schedule.Algorithms(k) {
			for i, weights := range [][]uint32{{1}, {1, 1}, {5, 0, 1}, {1, 2, 3}} {
				if testing.Short() && i < 3 {
					continue
				}
				t.Run(fmt.Sprintf("%v/%v/weights=%v", k, a, weights), func(t *testing.T) {
					// Each world compares its bits with one and the same reference.
					s := setup{kind: k, algorithm: a, base: 2, n: 6, bytes: 600_000,
						weights: weights, window: 2, inPlace: true, hosts: [][]int{{0, 3, 4}, {1}, {2, 5}}}
					newWorld(t, s, uint64(i), new([maxRanks][maxLanes]Task)).run()
				})
			}
		}
	}
}

// A task of rank 1 of 2 in recursive doubling, by grants and in place: the whole life of
// an operation on one page.
func TestLifeOfAnOperation(t *testing.T) {
	task := newTask(t, op.RecursiveDoubling, 1, 2, 8, Config{InPlace: true, Window: 1})
	input, final, slot := Loc{Input, 0, 8}, Loc{Final, 0, 8}, Loc{Scratch, 0, 8}
	const send, recv, reduce = Ref(0), Ref(1), Ref(2)

	expect(t, task, Event{Kind: Start},
		Action{Kind: Grant, To: 0, Limit: 1}) // nothing is sent before rank 0 is there
	expect(t, task, Event{Kind: Granted, From: 0, Limit: 1},
		Action{Kind: Send, Ref: send, Loc: input, Step: 1, User: true, AckNow: true})

	place(t, task, 0, recv, slot)
	expect(t, task, Event{Kind: Torn, Ref: recv})
	place(t, task, 0, recv, slot)
	// Both operands are here, but the result goes where the frame is still sent from.
	expect(t, task, Event{Kind: Arrived, Ref: recv})
	expect(t, task, Event{Kind: Released, Ref: send},
		Action{Kind: Reduce, Ref: reduce, Last: true, Dst: final, Args: []Loc{slot, input}})
	expect(t, task, Event{Kind: Reduced, Ref: reduce},
		Action{Kind: Resolve}, Action{Kind: Retire})
}

func TestRemaining(t *testing.T) {
	const size = 3 * recvBytes // one span of a ring: every rank receives and sends 2/3 of it twice
	task := newTask(t, op.Ring, 0, 3, size, Config{Window: 1})
	require := func(in, out int64) {
		t.Helper()
		if i, o := task.Remaining(); i != in || o != out {
			t.Errorf("%d bytes to be received, %d to be sent, want %d and %d", i, o, in, out)
		}
	}
	require(4*recvBytes, 4*recvBytes)
	if out := task.Outgoing(10); len(out) != 1 || out[0] != 4*(recvBytes+10) {
		t.Errorf("to be handed out: %d, want four frames", out)
	}
	start(t, task)
	ref := recv(t, task, 2, 0, 1)
	require(4*recvBytes, 4*recvBytes)
	if _, err := task.Step(Event{Kind: Arrived, Ref: ref}, nil); err != nil {
		t.Fatal(err)
	}
	require(3*recvBytes, 4*recvBytes)
}

func TestAwaitsTellsWhoHasBegun(t *testing.T) {
	task := newTask(t, op.Ring, 0, 3, 3*recvBytes, Config{Window: 1})
	awaits := func(when string, want map[op.Rank]bool) {
		t.Helper()
		got := make(map[op.Rank]bool)
		if task.Awaits(got); !maps.Equal(got, want) {
			t.Errorf("%s: %v, want %v", when, got, want)
		}
	}
	step := func(e Event) {
		t.Helper()
		if _, err := task.Step(e, nil); err != nil {
			t.Fatal(err)
		}
	}
	awaits("before the start", nil)
	start(t, task)
	awaits("at the start", map[op.Rank]bool{1: false, 2: false})
	step(Event{Kind: Granted, From: 1, Limit: 1})
	awaits("rank 1 has granted", map[op.Rank]bool{2: false})
	recv(t, task, 2, 0, 1)
	awaits("a frame of rank 2 comes", map[op.Rank]bool{2: true})

	task = newTask(t, op.RecursiveDoubling, 1, 2, 8, Config{InPlace: true, Window: 1})
	start(t, task)
	step(Event{Kind: Granted, From: 0, Limit: 1})
	place(t, task, 0, 1, Loc{Scratch, 0, 8})
	step(Event{Kind: Arrived, Ref: 1})
	awaits("rank 0 has not confirmed", map[op.Rank]bool{0: true})
	step(Event{Kind: Released, Ref: 0})
	step(Event{Kind: Reduced, Ref: 2})
	awaits("at the end", nil)
}

func TestOutOfPlaceTheResultNeedsNoRelease(t *testing.T) {
	task := newTask(t, op.RecursiveDoubling, 0, 2, 8, Config{Eager: true})
	expect(t, task, Event{Kind: Start},
		Action{Kind: Send, Ref: 0, To: 1, Loc: Loc{Input, 0, 8}, Step: 1, User: true, AckNow: true})
	place(t, task, 1, 1, Loc{Scratch, 0, 8})
	expect(t, task, Event{Kind: Arrived, Ref: 1},
		Action{Kind: Reduce, Ref: 2, Last: true, Dst: Loc{Final, 0, 8}, Args: []Loc{{Input, 0, 8}, {Scratch, 0, 8}}})
	expect(t, task, Event{Kind: Reduced, Ref: 2}) // the caller's memory is still being sent
	expect(t, task, Event{Kind: Released, Ref: 0}, Action{Kind: Resolve}, Action{Kind: Retire})
}

func TestAloneTheInputIsCopied(t *testing.T) {
	task := newTask(t, op.Ring, 0, 1, 8, Config{Window: 1})
	expect(t, task, Event{Kind: Start},
		Action{Kind: Copy, Last: true, Dst: Loc{Final, 0, 8}, Args: []Loc{{Input, 0, 8}}})
	expect(t, task, Event{Kind: Reduced}, Action{Kind: Resolve}, Action{Kind: Retire})
}

func TestAGrantBeforeTheStartCountsFromTheStart(t *testing.T) {
	task := newTask(t, op.RecursiveDoubling, 0, 2, 8, Config{Window: 1})
	expect(t, task, Event{Kind: Granted, From: 1, Limit: 1})
	expect(t, task, Event{Kind: Start}, Action{Kind: Grant, To: 1, Limit: 1},
		Action{Kind: Send, Ref: 0, To: 1, Loc: Loc{Input, 0, 8}, Step: 1, User: true, AckNow: true})
	expect(t, task, Event{Kind: Granted, From: 1}) // an older one
}

func TestAbortWaitsForWhatTouchesTheUsersMemory(t *testing.T) {
	task := newTask(t, op.Ring, 0, 3, 3*recvBytes, Config{Window: 1})
	expect(t, task, Event{Kind: Abort}, Action{Kind: Resolve}, Action{Kind: Retire})
	expect(t, task, Event{Kind: Start}) // too late

	task.Reset(task.Config)
	start(t, task)
	const toScratch, toFinal = 0, 2
	scratch := recv(t, task, 2, toScratch, 1) // block 1's sum comes from rank 2
	final := recv(t, task, 2, toFinal, 2)     // block 2's result too
	expect(t, task, Event{Kind: Abort})
	expect(t, task, Event{Kind: Torn, Ref: final}, Action{Kind: Resolve})
	if _, _, err := task.Place(Frame{2, 0, recvRounds, 2, toFinal, recvBytes}); !errors.Is(err, ErrAborted) {
		t.Errorf("a frame is placed after Abort: %v", err)
	}
	expect(t, task, Event{Kind: Granted, From: 1, Limit: 1})
	expect(t, task, Event{Kind: Arrived, Ref: scratch}, Action{Kind: Retire})
}

func TestPlaceRefusesWhatNobodyMaySend(t *testing.T) {
	// Rank 0 of 3, two spans.
	task := newTask(t, op.Ring, 0, 3, 3*96*384, Config{Window: 1})
	const rounds, span = 48, 48 * 384
	if s := task.lane.Spans; len(s) != 2 || s[0].Count != rounds || task.Plan.Segment*rounds != span {
		t.Fatalf("cut into %+v, segments of %d bytes", s, task.Plan.Segment)
	}
	if _, _, err := task.Place(Frame{2, 0, rounds, 1, 0, span}); err == nil {
		t.Error("a frame is placed before the start")
	}
	start(t, task)
	for _, c := range []struct {
		why string
		f   Frame
	}{
		{"no such span", Frame{2, 1, rounds, 1, 0, span}},
		{"no such span", Frame{2, 0, rounds - 1, 1, 0, span}},
		{"no such span", Frame{2, -rounds, rounds, 1, 0, span}},
		{"no such block", Frame{2, 0, rounds, 3, 0, span}},
		{"no such block", Frame{2, 0, rounds, -1, 0, span}},
		{"no such step", Frame{2, 0, rounds, 1, 4, span}},
		{"another rank's", Frame{1, 0, rounds, 1, 0, span}},
		{"short", Frame{2, 0, rounds, 1, 0, span - 4}},
		{"long", Frame{2, 0, rounds, 1, 0, span + 4}},
		{"not granted", Frame{2, rounds, rounds, 1, 0, span}},
	} {
		if _, loc, err := task.Place(c.f); err == nil {
			t.Errorf("%s: placed at %+v", c.why, loc)
		}
	}
	for range 2 {
		ref, _, err := task.Place(Frame{2, 0, rounds, 1, 0, span})
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := task.Place(Frame{2, 0, rounds, 1, 0, span}); err == nil {
			t.Error("a frame that is being received is placed again")
		}
		expect(t, task, Event{Kind: Torn, Ref: ref})
	}
}

func TestBlocksWithoutBytesTakeNoPart(t *testing.T) {
	// 8 bytes are all in block 0.
	task := newTask(t, op.Ring, 1, 3, 8, Config{Eager: true})
	expect(t, task, Event{Kind: Start},
		Action{Kind: Send, Ref: 0, To: 2, Loc: Loc{Input, 0, 8}, User: true, AckNow: false})
	if _, _, err := task.Place(Frame{0, 0, 1, 2, 0, 0}); err == nil {
		t.Error("a frame of a block without bytes is placed")
	}
}

// Nothing holds a rank back that waits for nobody: those who send nothing to it would have to
// keep its grants, of any number of operations that they didn't begin yet.
func TestWhoSendsNothingGetsNoGrant(t *testing.T) {
	s := schedule.Spec{Kind: op.KindGather, Algorithm: op.Direct, N: 3}
	p, err := schedule.Build(s)
	if err != nil {
		t.Fatal(err)
	}
	cost := schedule.CostOf(s)
	l := plan.NewLayout(16, 4, plan.Parts{8, 0, 8}, p.Blocks, cost)
	task := &Task{}
	task.Reset(Config{Program: p, Plan: plan.New(l, []int{l.Rounds}, cost), Window: 1})
	expect(t, task, Event{Kind: Start}, Action{Kind: Grant, To: 2, Limit: 1},
		Action{Kind: Copy, Ref: 0, Dst: Loc{Final, 0, 8}, Args: []Loc{{Input, 0, 8}}})
}

func TestStepRefusesWhatCannotHaveHappened(t *testing.T) {
	task := newTask(t, op.RecursiveDoubling, 0, 2, 8, Config{Window: 1})
	start(t, task)
	for _, e := range []Event{
		{Kind: Start}, {Kind: 99},
		{Kind: Arrived, Ref: 1}, {Kind: Torn, Ref: 1}, {Kind: Released, Ref: 0}, {Kind: Reduced, Ref: 2}, // not begun
		{Kind: Arrived, Ref: 3}, {Kind: Arrived, Ref: 1 << 31}, // unknown
		{Kind: Granted, From: 0, Limit: 1}, {Kind: Granted, From: 2, Limit: 1}, {Kind: Granted, From: -1, Limit: 1},
		{Kind: Granted, From: 1, Limit: 2}, {Kind: Granted, From: 1, Limit: -1},
	} {
		if out, err := task.Step(e, nil); err == nil || len(out) > 0 {
			t.Errorf("%+v: %+v, %v", e, out, err)
		}
	}
	place(t, task, 1, 1, Loc{Scratch, 0, 8})
	for _, kind := range []EventKind{Reduced, Released} {
		if _, err := task.Step(Event{Kind: kind, Ref: 1}, nil); err == nil {
			t.Errorf("event %d of a frame is taken", kind)
		}
	}
	expect(t, task, Event{Kind: Arrived, Ref: 1}, Action{Kind: Reduce, Ref: 2, Last: true,
		Dst: Loc{Final, 0, 8}, Args: []Loc{{Input, 0, 8}, {Scratch, 0, 8}}})
}

func TestTheArenaIsBoundedByTheWindow(t *testing.T) {
	// 64 MiB over 6 ranks: a slot for each other block in each span of the window, of 1/45 of a
	// block.
	task := newTask(t, op.Ring, 0, 6, 64<<20, Config{Window: 3})
	if got, want := task.ScratchBytes(), 3*5*248_576; got != want {
		t.Errorf("ScratchBytes is %d, want %d", got, want)
	}
}

func newTask(tb testing.TB, a op.Algorithm, rank, n, bytes int, c Config) *Task {
	tb.Helper()
	var err error
	s := schedule.Spec{Kind: op.KindAllReduce, Algorithm: a, Rank: op.Rank(rank), N: n, Base: 2}
	if c.Program, err = schedule.Build(s); err != nil {
		tb.Fatal(err)
	}
	cost := schedule.CostOf(s)
	l := plan.NewLayout(bytes, 4, plan.PartsOf(s.Kind, a, n, bytes, nil), c.Program.Blocks, cost)
	c.Plan = plan.New(l, []int{l.Rounds}, cost)
	t := &Task{}
	t.Reset(c)
	return t
}

func expect(t *testing.T, task *Task, e Event, want ...Action) {
	t.Helper()
	got, err := task.Step(e, nil)
	if err != nil {
		t.Fatalf("%+v: %v", e, err)
	}
	if len(got)+len(want) > 0 && !reflect.DeepEqual(got, want) {
		t.Fatalf("%+v leads to\n%+v, want\n%+v", e, got, want)
	}
}

func start(t *testing.T, task *Task) {
	t.Helper()
	if _, err := task.Step(Event{Kind: Start}, nil); err != nil {
		t.Fatal(err)
	}
}

// place lands the frame of 8 bytes that recursive doubling of two ranks receives.
func place(t *testing.T, task *Task, from op.Rank, wantRef Ref, want Loc) {
	t.Helper()
	ref, loc, err := task.Place(Frame{from, 0, 1, 0, 1, 8})
	if err != nil || ref != wantRef || loc != want {
		t.Fatalf("placed as %d at %+v: %v; want %d at %+v", ref, loc, err, wantRef, want)
	}
}

const (
	recvBytes  = 4096 // of a block, in one span of the smallest segments
	recvRounds = recvBytes / plan.MinSegmentBytes
)

// recv begins to land a frame of recvBytes.
func recv(t *testing.T, task *Task, from op.Rank, step, block int) Ref {
	t.Helper()
	ref, _, err := task.Place(Frame{from, 0, recvRounds, block, step, recvBytes})
	if err != nil {
		t.Fatal(err)
	}
	return ref
}
