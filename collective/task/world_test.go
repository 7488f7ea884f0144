package task

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"math/rand/v2"

	"github.com/polyrail/polyrail/collective/op"
	"github.com/polyrail/polyrail/collective/plan"
	"github.com/polyrail/polyrail/collective/schedule"
	"github.com/polyrail/polyrail/collective/schedule/reference"
)

// setup is what a world runs.
type setup struct {
	algorithm op.Algorithm
	base, n   int
	bytes     int
	weights   []uint32
	window    int
	inPlace   bool
	eager     bool
	ordered   bool // frames of one pair and rail arrive in the order they were sent in
	abort     int  // number of the move from which on ranks abort; 0: never
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
	t     fataler
	rng   *rand.Rand
	plan  *plan.Plan
	nodes []*node
	wires map[link]*wire
	moves []func() // what can happen next
	made  int      // moves so far
	want  []byte   // the right result
}

type link struct {
	from, to op.Rank
	rail     int
}

// wire is one direction of a pair: what was sent and hasn't arrived.
type wire struct {
	frames []*frame
	moving bool // its next move is in world.moves
}

type frame struct {
	Action
	memory []byte // the sender's, read at the arrival
	want   []byte // what it held when it was sent
	copied bool   // memory is the runtime's: the sender was told Released at once
	ref    Ref    // where it lands
	dst    []byte // nil: hasn't begun to land
}

type node struct {
	*world
	rank                                op.Rank
	task                                *Task
	src, dst, arena                     []byte
	input, result                       []byte // copies: of src at the start, of dst when resolved
	started, aborted, resolved, retired bool
	slots                               map[int]int   // offset in the arena → its span
	given                               []int         // by rail: spans whose slots were given up
	last, lastUser                      map[link]bool // whether the last frame, and that of the user's memory, asked for an acknowledgement
}

// newWorld makes a world of the first tasks, which may have been used before.
func newWorld(t fataler, s setup, seed uint64, tasks *[9]Task) *world {
	t.Helper()
	w := &world{setup: s, t: t, rng: rand.New(rand.NewPCG(seed, 1)), wires: map[link]*wire{}}
	l := plan.NewLayout(s.bytes, 4, schedule.Owners(s.algorithm, s.n))
	w.plan = plan.New(l, plan.Rounds(l.Rounds, s.weights))
	inputs := make([][]byte, s.n)
	// The inputs depend on their size alone, so that different cuts can be compared.
	values := rand.New(rand.NewPCG(uint64(s.bytes), uint64(s.n)))
	for r := range s.n {
		inputs[r] = awkward(values, s.bytes/4)
	}
	var err error
	if w.want, err = reference.AllReduce(s.algorithm, s.base, 4, inputs, add); err != nil {
		t.Fatalf("reference: %v", err)
	}
	for r := range s.n {
		p, err := schedule.Build(s.algorithm, op.Rank(r), s.n, s.base)
		if err != nil {
			t.Fatalf("%v", err)
		}
		n := &node{world: w, rank: op.Rank(r), task: &tasks[r], input: inputs[r], src: bytes.Clone(inputs[r]),
			slots: map[int]int{}, given: make([]int, len(s.weights)), last: map[link]bool{}, lastUser: map[link]bool{}}
		n.dst = n.src
		if !s.inPlace {
			n.dst = bytes.Repeat([]byte{0xdd}, s.bytes)
		}
		n.task.Reset(Config{Program: p, Plan: w.plan, InPlace: s.inPlace, Eager: s.eager, Window: s.window})
		n.arena = bytes.Repeat([]byte{0xcc}, n.task.ScratchBytes())
		w.nodes = append(w.nodes, n)
		w.moves = append(w.moves, n.start)
	}
	return w
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
		if !n.resolved || !n.retired {
			w.t.Fatalf("rank %d is stuck: resolved %v, retired %v, %d instructions left", n.rank, n.resolved, n.retired, n.task.left)
		}
		if !n.inPlace && !bytes.Equal(n.src, n.input) {
			w.t.Fatalf("rank %d: the source has changed", n.rank)
		}
		if n.aborted {
			continue
		}
		if !bytes.Equal(n.result, n.want) {
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
	n.step(Event{Kind: Start})
	for l, wire := range n.wires {
		if l.to == n.rank {
			n.wake(l, wire)
		}
	}
}

func (n *node) abort() {
	n.aborted = true
	n.step(Event{Kind: Abort})
	for l, wire := range n.wires {
		if l.to == n.rank {
			n.wake(l, wire)
		}
	}
}

func (n *node) step(e Event) {
	n.t.Helper()
	actions, err := n.task.Step(e, nil)
	if err != nil {
		n.t.Fatalf("rank %d: %+v: %v", n.rank, e, err)
	}
	for _, a := range actions {
		if n.aborted && a.Kind != Resolve && a.Kind != Retire {
			n.t.Fatalf("rank %d: %+v after Abort", n.rank, a)
		}
		n.do(a)
	}
}

func (n *node) do(a Action) {
	n.t.Helper()
	switch a.Kind {
	case Send:
		n.send(a)
	case Reduce, Copy:
		n.kernel(a)
	case Grant:
		n.giveUp(a.Rail, a.Limit-n.window)
		e := Event{Kind: Granted, From: n.rank, Rail: a.Rail, Limit: a.Limit}
		n.moves = append(n.moves, func() { n.nodes[a.To].step(e) })
	case Resolve:
		if n.resolved || n.retired {
			n.t.Fatalf("rank %d resolves twice, or after it retired", n.rank)
		}
		n.resolved = true
		n.result = bytes.Clone(n.dst)
		fill(n.dst, 0xee) // the caller goes on
	case Retire:
		if n.retired || !n.resolved {
			n.t.Fatalf("rank %d retires twice, or before it resolved", n.rank)
		}
		n.retired = true
		fill(n.arena, 0xab)
	}
}

// send puts a frame on its wire, borrowed or copied.
func (n *node) send(a Action) {
	n.t.Helper()
	s := n.plan.Spans[a.Span]
	if s.Rail != a.Rail || a.User != (a.Loc.Mem != Scratch) {
		n.t.Fatalf("rank %d: %+v of span %+v", n.rank, a, s)
	}
	l := link{n.rank, a.To, a.Rail}
	if a.User {
		if n.lastUser[l] {
			n.t.Fatalf("rank %d: a frame of user memory on %+v follows the last one", n.rank, l)
		}
		n.lastUser[l] = a.AckNow
	}
	n.last[l] = a.AckNow
	memory := n.memory(a.Loc, a.Span)
	f := &frame{Action: a, memory: memory, want: bytes.Clone(memory), copied: n.rng.IntN(3) == 0}
	if f.copied {
		f.memory = f.want
		n.moves = append(n.moves, func() { n.step(Event{Kind: Released, Ref: a.Ref}) })
	}
	w := n.wires[l]
	if w == nil {
		w = &wire{}
		n.wires[l] = w
	}
	w.frames = append(w.frames, f)
	n.wake(l, w)
}

// wake makes sure that a wire's next move can happen. A frame to a rank that hasn't
// started stays where it is.
func (w *world) wake(l link, wire *wire) {
	to := w.nodes[l.to]
	if !wire.moving && len(wire.frames) > 0 && (to.started || to.aborted) {
		wire.moving = true
		w.moves = append(w.moves, func() {
			wire.moving = false
			w.receive(l, wire)
			w.wake(l, wire)
		})
	}
}

// receive is a step of a frame: it begins to land, is torn, or arrives.
func (w *world) receive(l link, wire *wire) {
	i := 0
	if !w.ordered {
		i = w.rng.IntN(len(wire.frames))
	}
	f, from, to := wire.frames[i], w.nodes[l.from], w.nodes[l.to]
	if f.dst == nil {
		s := w.plan.Spans[f.Span]
		ref, loc, err := to.task.Place(l.from, l.rail, s.First, s.Count, f.Owner, f.Step, f.Loc.Len)
		if err != nil && !(to.aborted && errors.Is(err, ErrAborted)) {
			w.t.Fatalf("rank %d: %v", l.to, err)
		}
		if err == nil {
			f.ref, f.dst = ref, to.memory(loc, f.Span)
			fill(f.dst, 0x99)
			return
		}
	} else if w.rng.IntN(5) == 0 {
		fill(f.dst, 0x77)
		f.dst = nil
		to.step(Event{Kind: Torn, Ref: f.ref})
		return
	}
	if !bytes.Equal(f.memory, f.want) {
		w.t.Fatalf("rank %d: what the frame %+v reads has changed on its way", l.from, f.Action)
	}
	wire.frames = append(wire.frames[:i], wire.frames[i+1:]...)
	if f.dst != nil {
		copy(f.dst, f.memory)
		to.step(Event{Kind: Arrived, Ref: f.ref})
	}
	if !f.copied {
		w.moves = append(w.moves, func() {
			if f.Loc.Mem == Scratch && !bytes.Equal(f.memory, f.want) {
				w.t.Fatalf("rank %d: scratch of the frame %+v was used before its release", l.from, f.Action)
			}
			from.step(Event{Kind: Released, Ref: f.Ref})
		})
	}
}

// kernel runs at a moment of its own, not when it is asked for.
func (n *node) kernel(a Action) {
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
		first := n.memory(a.Args[0], span)
		if a.Kind == Copy {
			copy(dst, first)
		}
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
func (n *node) memory(l Loc, span int) []byte {
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
	if held, ok := n.slots[l.Off]; ok && held != span || l.Off%64 != 0 {
		n.t.Fatalf("rank %d: the slot at %d is used by spans %d and %d", n.rank, l.Off, held, span)
	}
	if s := n.plan.Spans[span]; s.Index < n.given[s.Rail] {
		n.t.Fatalf("rank %d: span %+v uses a slot that it has given up", n.rank, s)
	}
	n.slots[l.Off] = span
	return n.arena[l.Off : l.Off+l.Len]
}

// giveUp poisons the slots of the first spans of a rail: a grant says that they are free.
func (n *node) giveUp(rail, spans int) {
	if spans <= n.given[rail] {
		return
	}
	n.given[rail] = spans
	for off, span := range n.slots {
		if s := n.plan.Spans[span]; s.Rail == rail && s.Index < spans {
			_, length := n.plan.RangeOf(span, 0)
			fill(n.arena[off:off+length], 0xbb)
			delete(n.slots, off)
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
