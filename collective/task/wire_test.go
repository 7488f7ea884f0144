package task

import (
	"bytes"
	"errors"

	"github.com/polyrail/polyrail/collective/op"
)

// This file is about what a world does to frames.

type link struct {
	from, to op.Rank
	lane     int
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
	lane   int
	copied bool    // memory is the runtime's: the sender was told Released at once
	ref    Ref     // where it lands
	dst    []byte  // nil: hasn't begun to land
	fold   *Action // the Reduce that takes it from where it is; nil: it goes to dst
	left   bool    // it is the fold's left operand
	whole  bool    // it can't be torn any more
}

// send puts a frame on its wire, borrowed or copied.
func (n *lane) send(a Action) {
	n.t.Helper()
	if a.User != (a.Loc.Mem != Scratch) {
		n.t.Fatalf("rank %d: %+v", n.rank, a)
	}
	l := link{n.rank, a.To, n.index}
	if a.User {
		if n.lastUser[l] {
			n.t.Fatalf("rank %d: a frame of user memory on %+v follows the last one", n.rank, l)
		}
		n.lastUser[l] = a.AckNow
	}
	n.last[l] = a.AckNow
	memory := n.memory(a.Loc, a.Span)
	f := &frame{Action: a, lane: n.index, memory: memory, want: bytes.Clone(memory),
		copied: n.rng.IntN(3) == 0}
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
	f := wire.frames[i]
	from, to := w.nodes[l.from].lanes[l.lane], w.nodes[l.to].lanes[l.lane]
	if f.dst == nil {
		s := from.plan.Lanes[l.lane].Spans[f.Span]
		ref, loc, err := to.task.Place(Frame{l.from, s.First, s.Count, f.Mark, f.Step, f.Loc.Len})
		if err != nil && !(to.aborted && errors.Is(err, ErrAborted)) {
			w.t.Fatalf("rank %d: %v", l.to, err)
		}
		if err == nil {
			f.ref, f.dst = ref, to.memory(loc, f.Span)
			fill(f.dst, 0x99)
			to.claim(f)
			return
		}
	} else if !f.whole && w.rng.IntN(5) == 0 {
		fill(f.dst, 0x77)
		if f.fold != nil {
			w.torn++
		}
		f.dst, f.fold = nil, nil
		to.step(Event{Kind: Torn, Ref: f.ref})
		return
	}
	if !bytes.Equal(f.memory, f.want) {
		w.t.Fatalf("rank %d: what the frame %+v reads has changed on its way", l.from, f.Action)
	}
	wire.frames = append(wire.frames[:i], wire.frames[i+1:]...)
	switch {
	case f.dst == nil:
	case f.fold != nil:
		to.fold(f)
	default:
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

// claim has some frames folded from where they are, if the task lets them.
func (n *lane) claim(f *frame) {
	if n.rng.IntN(3) == 0 {
		return
	}
	whole := n.rng.IntN(2) == 0
	if a, operand, ok := n.task.Claim(f.ref, whole); ok {
		n.folded++
		f.fold, f.left, f.whole, f.dst = &a, operand == 0, whole, n.memory(a.Dst, f.Span)
		if !whole { // it may be half done when it is torn
			fill(f.dst, 0x55)
		}
	}
}

// fold is what arrives of a frame that was claimed.
func (n *lane) fold(f *frame) {
	a, b := f.memory, n.memory(f.fold.Args[0], f.Span)
	if f.left {
		b = n.memory(f.fold.Args[1], f.Span)
	} else {
		a, b = b, a
	}
	if err := add(f.dst, a, b); err != nil {
		n.t.Fatalf("%v", err)
	}
	n.step(Event{Kind: Folded, Ref: f.ref})
}
