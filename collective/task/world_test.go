package task

import (
	"bytes"
	"encoding/binary"
	"math"
	"math/rand/v2"

	"github.com/polyrail/polyrail/collective/op"
	"github.com/polyrail/polyrail/collective/plan"
	"github.com/polyrail/polyrail/collective/schedule"
	"github.com/polyrail/polyrail/collective/schedule/reference"
)

// setup is what a world runs.
type setup struct {
	kind      op.Kind
	algorithm op.Algorithm
	base, n   int
	root      int
	hosts     [][]int // the ranks of each, of algorithms by host
	bytes     int     // of the operation; not used where there are counts
	counts    plan.Parts
	weights   []uint32
	window    int
	inPlace   bool
	mixed     bool // some ranks work in place, others don't
	eager     bool
	ordered   bool // frames of one pair and lane arrive in the order they were sent in
	abort     int  // number of the move from which on ranks abort; 0: never
}

// places are the hosts as schedules have them.
func (s *setup) places() *schedule.Hosts {
	numbers := make([]int, s.n)
	for host, ranks := range s.hosts {
		for _, r := range ranks {
			numbers[r] = host
		}
	}
	return schedule.NewHosts(numbers)
}

type fataler interface {
	Helper()
	Fatalf(format string, args ...any)
}

// world runs the tasks of all ranks over a network that does whatever a real one may do,
// in an order that its seed decides. It is as unkind as it can be: places are filled with
// garbage when a frame begins to land and when a slot is given up; borrowed memory is
// read when the frame arrives; the caller overwrites its memory as soon as it may.
type world struct {
	setup
	t            fataler
	rng          *rand.Rand
	parts        plan.Parts
	nodes        []*node
	wires        map[link]*wire
	moves        []func() // what can happen next
	made         int      // moves so far
	folded, torn int      // frames that were claimed
	want         [][]byte // by rank: the right result
}

type node struct {
	*world
	rank             op.Rank
	inPlace          bool
	plan             *plan.Plan
	lanes            []*lane
	src, dst         []byte
	input, result    []byte // copies: of src at the start, of dst when all have resolved
	started, aborted bool
	unresolved       int
	// Whether the last frame, and that of the user's memory, asked for an acknowledgement.
	last, lastUser map[link]bool
}

// lane is a node's part on one lane.
type lane struct {
	*node
	index             int
	task              *Task
	arena             []byte
	resolved, retired bool
	held              map[int]int // window's slot → its span
	given             int         // spans whose slots were given up
}

// Limits of a world.
const (
	maxLanes = 3
	maxRanks = 11 // a tree has two levels, and frames of several blocks
)

// newWorld makes a world of the first tasks, which may have been used before.
func newWorld(t fataler, s setup, seed uint64, tasks *[maxRanks][maxLanes]Task) *world {
	t.Helper()
	w := &world{setup: s, t: t, rng: rand.New(rand.NewPCG(seed, 1)), wires: map[link]*wire{}}
	w.parts = plan.PartsOf(s.kind, s.algorithm, s.n, s.bytes, s.counts)
	w.bytes = w.parts.Total()
	inputs := make([][]byte, s.n)
	// The inputs depend on their size alone, so that different cuts can be compared.
	values := rand.New(rand.NewPCG(uint64(w.bytes), uint64(s.n)))
	for r := range s.n {
		source, _ := w.buffers(op.Rank(r))
		inputs[r] = awkward(values, source/4)
	}
	var err error
	w.want, err = reference.Results(reference.Call{Kind: s.kind, Algorithm: s.algorithm,
		Base: s.base, Root: s.root, Hosts: s.hosts,
		Parts: w.parts, Inputs: inputs}, add)
	if err != nil {
		t.Fatalf("reference: %v", err)
	}
	for r := range s.n {
		n := &node{world: w, rank: op.Rank(r), input: inputs[r], last: map[link]bool{},
			inPlace: s.inPlace != (s.mixed && w.rng.IntN(2) == 0), lastUser: map[link]bool{}}
		n.allocate()
		spec := schedule.Spec{Kind: s.kind, Algorithm: s.algorithm, Rank: n.rank, N: s.n,
			Root: op.Rank(s.root), Base: s.base, InPlace: n.inPlace, Hosts: s.places()}
		p, err := schedule.Build(spec)
		if err != nil {
			t.Fatalf("%v", err)
		}
		cost := schedule.CostOf(spec)
		l := plan.NewLayout(w.bytes, 4, w.parts, p.Blocks, cost)
		n.plan = plan.New(l, plan.Rounds(l.Rounds, s.weights), cost)
		for i := range n.plan.Lanes {
			if n.plan.Lanes[i].Rounds == 0 {
				n.lanes = append(n.lanes, nil)
				continue
			}
			x := &lane{node: n, index: i, task: &tasks[r][i], held: map[int]int{}}
			x.task.Reset(Config{Program: p, Plan: n.plan, Lane: i, InPlace: n.inPlace,
				Eager: s.eager, Window: s.window})
			x.arena = bytes.Repeat([]byte{0xcc}, x.task.ScratchBytes())
			n.lanes = append(n.lanes, x)
			n.unresolved++
		}
		w.nodes = append(w.nodes, n)
		w.moves = append(w.moves, n.start)
	}
	return w
}

// buffers are the lengths of a rank's source and destination.
func (w *world) buffers(r op.Rank) (source, destination int) {
	own := w.bytes
	if len(w.parts) == w.n {
		own = w.parts[r]
	}
	return plan.Buffers(w.kind, r, op.Rank(w.root), w.bytes, own)
}

// allocate makes the caller's memory: in place as the kind has it.
func (n *node) allocate() {
	source, destination := n.buffers(n.rank)
	if !n.inPlace {
		n.src, n.dst = bytes.Clone(n.input), bytes.Repeat([]byte{0xdd}, destination)
		return
	}
	own := 0 // where the rank's part begins in the larger buffer
	if len(n.parts) > 1 && source != destination {
		own = n.parts[:n.rank].Total()
	}
	memory := bytes.Repeat([]byte{0xdd}, max(source, destination, own+min(source, destination)))
	n.src, n.dst = memory[:source], memory[:destination]
	if source < destination {
		n.src = memory[own : own+source]
	} else {
		n.dst = memory[own : own+destination]
	}
	copy(n.src, n.input)
}

// run makes moves in random order until nothing can happen any more.
func (w *world) run() {
	w.t.Helper()
	for len(w.moves) > 0 {
		i := w.rng.IntN(len(w.moves))
		move := w.moves[i]
		w.moves[i] = w.moves[len(w.moves)-1]
		w.moves = w.moves[:len(w.moves)-1]
		move()
		if w.made++; w.made == w.abort {
			for _, n := range w.nodes {
				w.moves = append(w.moves, n.abort)
			}
		}
	}
	for _, n := range w.nodes {
		for _, x := range n.lanes {
			if x != nil && (!x.resolved || !x.retired) {
				w.t.Fatalf("rank %d lane %d is stuck: resolved %v, retired %v, %d instructions left",
					n.rank, x.index, x.resolved, x.retired, x.task.left)
			}
		}
		if n.aborted {
			continue
		}
		if w.want[n.rank] != nil && !bytes.Equal(n.result, w.want[n.rank]) {
			w.t.Fatalf("rank %d: wrong result", n.rank)
		}
		for l, last := range n.last {
			if lastUser, has := n.lastUser[l]; !last || has && !lastUser {
				w.t.Fatalf("rank %d: the last frame on %+v, or the last one of user memory, doesn't ask for an acknowledgement", n.rank, l)
			}
		}
	}
}

func (n *node) start() {
	n.started = true
	n.all(Event{Kind: Start})
}

func (n *node) abort() {
	n.aborted = true
	n.all(Event{Kind: Abort})
}

// all steps each lane, and lets what waits for this rank go on.
func (n *node) all(e Event) {
	for _, x := range n.lanes {
		if x != nil {
			x.step(e)
		}
	}
	for l, wire := range n.wires {
		if l.to == n.rank {
			n.wake(l, wire)
		}
	}
}

func (n *lane) step(e Event) {
	n.t.Helper()
	actions, err := n.task.Step(e, nil)
	if err != nil {
		n.t.Fatalf("rank %d: %+v: %v", n.rank, e, err)
	}
	n.giveUp(n.task.free)
	for _, a := range actions {
		if n.aborted && a.Kind != Resolve && a.Kind != Retire {
			n.t.Fatalf("rank %d: %+v after Abort", n.rank, a)
		}
		n.do(a)
	}
}

func (n *lane) do(a Action) {
	n.t.Helper()
	switch a.Kind {
	case Send:
		n.send(a)
	case Reduce, Copy:
		n.kernel(a)
	case Grant:
		e := Event{Kind: Granted, From: n.rank, Limit: a.Limit}
		n.moves = append(n.moves, func() { n.nodes[a.To].lanes[n.index].step(e) })
	case Resolve:
		if n.resolved || n.retired {
			n.t.Fatalf("rank %d resolves twice, or after it retired", n.rank)
		}
		n.resolved = true
		if n.unresolved--; n.unresolved == 0 {
			n.result = bytes.Clone(n.dst)
			if !n.inPlace && !bytes.Equal(n.src, n.input) {
				n.t.Fatalf("rank %d: the source has changed", n.rank)
			}
			fill(n.src, 0xee) // the caller goes on
			fill(n.dst, 0xee)
		}
	case Retire:
		if n.retired || !n.resolved {
			n.t.Fatalf("rank %d retires twice, or before it resolved", n.rank)
		}
		n.retired = true
		fill(n.arena, 0xab)
	}
}

// kernel runs at a moment of its own, not when it is asked for.
func (n *lane) kernel(a Action) {
	span := int(a.Ref) / len(n.task.Program.Code)
	dst := n.memory(a.Dst, span)
	var want [][]byte
	for _, l := range a.Args {
		want = append(want, bytes.Clone(n.memory(l, span)))
	}
	n.moves = append(n.moves, func() {
		for i, l := range a.Args {
			if !bytes.Equal(n.memory(l, span), want[i]) {
				n.t.Fatalf("rank %d: operand %d of %+v has changed", n.rank, i, a)
			}
		}
		if a.Kind == Copy {
			if copied := copy(dst, bytes.Join(want, nil)); copied != len(dst) {
				n.t.Fatalf("rank %d: %d bytes for %+v", n.rank, copied, a)
			}
			n.step(Event{Kind: Reduced, Ref: a.Ref})
			return
		}
		first := n.memory(a.Args[0], span)
		for _, l := range a.Args[1:] {
			if err := add(dst, first, n.memory(l, span)); err != nil {
				n.t.Fatalf("%v", err)
			}
			first = dst
		}
		n.step(Event{Kind: Reduced, Ref: a.Ref})
	})
}

// memory is what a Loc means, used for a span; the slot must be that span's.
func (n *lane) memory(l Loc, span int) []byte {
	n.t.Helper()
	if l.Mem != Scratch {
		if n.resolved {
			n.t.Fatalf("rank %d uses the caller's memory after it resolved", n.rank)
		}
		if l.Mem == Input {
			return n.src[l.Off : l.Off+l.Len]
		}
		return n.dst[l.Off : l.Off+l.Len]
	}
	if l.Len == 0 {
		return n.arena[:0]
	}
	slot := l.Off / n.task.SpanBytes()
	if held, ok := n.held[slot]; ok && held != span || (l.Off+l.Len-1)/n.task.SpanBytes() != slot {
		n.t.Fatalf("rank %d: the slot at %d is used by spans %d and %d", n.rank, l.Off, held, span)
	}
	if span < n.given {
		n.t.Fatalf("rank %d: span %d uses a slot that it has given up", n.rank, span)
	}
	n.held[slot] = span
	return n.arena[l.Off : l.Off+l.Len]
}

// giveUp poisons the slots of the first spans, with which the task says it is done.
func (n *lane) giveUp(spans int) {
	if spans <= n.given {
		return
	}
	n.given = spans
	for slot, span := range n.held {
		if span < spans {
			fill(n.arena[slot*n.task.SpanBytes():(slot+1)*n.task.SpanBytes()], 0xbb)
			delete(n.held, slot)
		}
	}
}

func fill(p []byte, b byte) {
	for i := range p {
		p[i] = b
	}
}

// awkward is float32s whose sum depends on the order.
func awkward(rng *rand.Rand, elements int) []byte {
	p := make([]byte, 4*elements)
	for i := range elements {
		v := float32(math.Ldexp(rng.Float64()-0.5, rng.IntN(30)-15))
		binary.LittleEndian.PutUint32(p[4*i:], math.Float32bits(v))
	}
	return p
}

// add is an op.Combine.
func add(dst, a, b []byte) error {
	for i := 0; i < len(dst); i += 4 {
		x := math.Float32frombits(binary.LittleEndian.Uint32(a[i:]))
		y := math.Float32frombits(binary.LittleEndian.Uint32(b[i:]))
		binary.LittleEndian.PutUint32(dst[i:], math.Float32bits(x+y))
	}
	return nil
}
