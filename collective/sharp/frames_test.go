package sharp_test

import (
	"errors"
	"fmt"

	"github.com/polyrail/polyrail/collective/sharp"
)

// kind is one of frame.
type kind int

const (
	request  kind = iota // a child's operand, to its node
	response             // a result, to a child
	acked                // a node's frame has let go of its memory
	kernel               // a node folds
	held                 // to a node
	settle               // to a child
	noticed              // somebody finds that a node is lost, or believes so
	fence                // a rank hears of it
	repair               // a rank hears from where on
	datagram             // a result that was cast, to a child; it may be lost, or come twice
	asked                // to a node: a rank lacks responses
	answered             // a root tells its core late that a value is there; of a rule taken out
	kinds
)

func (k kind) String() string {
	return [kinds]string{"request", "response", "acked", "kernel", "held", "settle", "noticed", "fence",
		"repair", "datagram", "asked", "answered"}[k]
}

// frame is something on its way. Frames arrive in any order, each once.
type frame struct {
	kind   kind
	from   *node // response, settle, and a node's request; nil: a rank's
	by     *rank // request, held: of that rank
	child  int   // request, held: its number at node
	node   *node // to which
	rank   *rank // or to which
	number uint64
	what   sharp.Request
	memory *uint64 // that is read until the frame is whole at its receiver
	begun  bool    // it is being received
	value  uint64  // of a datagram
	least  uint64  // asked: the rank has the responses below
}

func (w *world) post(f *frame) { w.frames = append(w.frames, f) }

// deliver lets a frame go on. It returns false when the frame is still there.
func (w *world) deliver(f *frame) (done bool) {
	if f.node != nil && f.node.dead {
		return true
	}
	switch f.kind {
	case request:
		return w.deliverRequest(f)
	case response:
		if f.rank != nil {
			return w.deliverToRank(f)
		}
		return w.deliverToNode(f)
	case acked:
		w.release(f.node, f.number)
	case kernel:
		w.runKernel(f.node, f.number)
	case answered:
		for _, a := range f.node.core.Folded(f.number, nil) {
			if a.Kind != sharp.Respond { // which went before
				w.carryOut(f.node, a)
			}
		}
	case held:
		w.takeHeld(f)
	case settle:
		w.takeSettled(f)
	case datagram:
		return w.deliverCast(f)
	case asked:
		w.takeAsk(f)
	default:
		w.deliverRepair(f)
	}
	return true
}

// whole reports whether the rest of a frame that is being received came, or it is torn and sent
// again.
func (w *world) whole() bool {
	if w.without == foldWhole || w.rng.IntN(8) > 0 {
		return true
	}
	w.seen.torn++
	return false
}

func (w *world) deliverRequest(f *frame) bool {
	a := f.node
	at := &a.operands[f.child][f.number%uint64(a.window)]
	if !f.begun {
		what := f.what
		if w.without == requestsCompared {
			what = sharp.Request{}
		}
		if err := a.core.Place(f.child, f.number, what); err != nil {
			w.disagree(f, err)
			return true
		}
		a.requests[f.number] = f.what
		if at.used {
			w.fail("memory", "fragment %d of child %d of node %d comes where an operand still lies", f.number,
				f.child, a.id)
		}
		f.begun, at.used, at.value = true, true, torn
		if w.without == foldWhole {
			w.carry(a, a.core.Arrived(f.child, f.number, nil))
		}
		return false
	}
	if !w.whole() {
		if w.without != tornTaken {
			a.core.Torn(f.child, f.number)
		}
		f.begun, at.used = false, false
		return false
	}
	at.value = *f.memory
	if f.by != nil && at.value != original(f.by.id, int(f.number)) {
		w.fail("wrong", "rank %d's operand of fragment %d was overwritten on its way", f.by.id, f.number)
	}
	if w.without != foldWhole {
		w.carry(a, a.core.Arrived(f.child, f.number, nil))
	}
	w.acknowledge(f)
	return true
}

// disagree looks at what a node refuses: is it right to?
func (w *world) disagree(f *frame, err error) {
	var e *sharp.DisagreeError
	if !errors.As(err, &e) || w.opOf(e.Number).liar < 0 {
		w.fail("refused", "node %d: %v", f.node.id, err)
		return
	}
	if e.Number != f.number || e.B != f.child || e.A == e.B || e.OfA.Digest == e.OfB.Digest {
		w.fail("wrong", "node %d names the wrong children: %v", f.node.id, err)
	}
	w.disagreed = true
	w.seen.disagreed++
}

// acknowledge lets a node know some time that its frame is whole at the receiver.
func (w *world) acknowledge(f *frame) {
	if f.from != nil {
		w.post(&frame{kind: acked, node: f.from, number: f.number})
	}
}

func (w *world) deliverToRank(f *frame) bool {
	r := f.rank
	slot := &r.slots[r.leaf.Slot(f.number)]
	if !f.begun {
		if !r.leaf.Expects(f.number) {
			if w.results != sharp.Unicast && f.number < r.leaf.Sent() {
				w.seen.sunk++
			} else if !r.fenced {
				w.fail("refused", "rank %d doesn't expect the response to %d", r.id, f.number)
			}
			w.acknowledge(f)
			return true
		}
		f.begun, *slot = true, torn
		return false
	}
	if !w.whole() {
		f.begun = false
		return false
	}
	if w.results != sharp.Unicast && !r.fenced && !r.leaf.Expects(f.number) {
		w.seen.sunk++ // a cast of it came meanwhile
		w.acknowledge(f)
		return true
	}
	*slot = *f.memory
	w.arrived(r, f)
	w.acknowledge(f)
	return true
}

// arrived: a rank has a result in its slot.
func (w *world) arrived(r *rank, f *frame) {
	r.leaf.Arrived(f.number)
	r.highest = max(r.highest, f.number+1)
	w.responses++
	if w.opOf(f.number).copied || w.without == placedSettled {
		w.leave(r, int(f.number))
	}
	w.settled(r)
}

func (w *world) deliverToNode(f *frame) bool {
	a := f.node
	if !f.begun {
		if !a.core.Expects(f.number) {
			w.fail("refused", "node %d doesn't expect the response to %d", a.id, f.number)
			return true
		}
		f.begun, w.result(a, f.number).value = true, torn
		return false
	}
	if !w.whole() {
		f.begun = false
		return false
	}
	w.result(a, f.number).value = *f.memory
	w.carry(a, a.core.Returned(f.number, nil))
	w.acknowledge(f)
	return true
}

// runKernel folds what the children sent.
func (w *world) runKernel(a *node, number uint64) {
	values := make([]uint64, len(a.kids))
	for c := range values {
		at := &a.operands[c][number%uint64(a.window)]
		values[c] = at.value
		at.used = false
	}
	if len(w.nodes) > 1 {
		w.result(a, number).value = sum(values)
	} else {
		w.result(a, number).value = w.fold(int(number), values)
	}
	if w.without == doneFirst && a.parent == nil {
		for c := range a.kids {
			w.carryOut(a, sharp.Action{Kind: sharp.Respond, Number: number, Child: c})
		}
		w.post(&frame{kind: answered, node: a, number: number})
		return
	}
	w.carry(a, a.core.Folded(number, nil))
}

func (w *world) carry(a *node, actions []sharp.Action) {
	for _, x := range actions {
		w.carryOut(a, x)
	}
}

// carryOut does what a node's core wants done.
func (w *world) carryOut(a *node, x sharp.Action) {
	switch x.Kind {
	case sharp.Fold:
		a.results[x.Number] = &result{value: unfolded, readers: len(a.kids)}
		if a.parent != nil {
			a.results[x.Number].readers++
		}
		if len(a.results) == 2*a.window {
			w.seen.full++
		} else if len(a.results) > 2*a.window {
			w.fail("memory", "node %d keeps %d results", a.id, len(a.results))
		}
		w.post(&frame{kind: kernel, node: a, number: x.Number})
	case sharp.Forward:
		w.post(&frame{kind: request, from: a, child: a.child, node: a.parent, number: x.Number,
			what: a.requests[x.Number], memory: &w.result(a, x.Number).value})
		w.counted(a, x.Number)
	case sharp.Respond:
		f := &frame{kind: response, from: a, number: x.Number, memory: &w.result(a, x.Number).value}
		f.to(a.kids[x.Child])
		w.post(f)
		w.counted(a, x.Number)
	case sharp.Cast:
		w.cast(a, x.Number)
	case sharp.Free:
		if w.without != resultsBounded {
			w.free(a, x.Number)
		}
	case sharp.Hold:
		w.post(&frame{kind: held, child: a.child, node: a.parent, number: x.Number})
	case sharp.Settle:
		f := &frame{kind: settle, from: a, number: x.Number}
		f.to(a.kids[x.Child])
		w.post(f)
	}
}

func (f *frame) to(kid any) {
	switch k := kid.(type) {
	case *rank:
		f.rank = k
	case *node:
		f.node = k
	}
}

// counted tells the core at once that a frame has let go, where its bound is taken out.
func (w *world) counted(a *node, number uint64) {
	if w.without == resultsBounded {
		w.carry(a, a.core.Released(number, nil))
	}
}

// release: a frame was acknowledged.
func (w *world) release(a *node, number uint64) {
	if x := a.results[number]; x != nil {
		x.readers--
		if w.without == resultsKept || w.without == resultsBounded && x.readers == 0 {
			w.free(a, number)
		}
	}
	if w.without != resultsBounded {
		w.carry(a, a.core.Released(number, nil))
	}
}

// result is where the value of a fragment lies.
func (w *world) result(a *node, number uint64) *result {
	if x := a.results[number]; x != nil {
		return x
	}
	w.fail("memory", "node %d has no result of fragment %d any more", a.id, number)
	return &result{}
}

func (w *world) free(a *node, number uint64) {
	if x := a.results[number]; x != nil {
		x.value = freed
		delete(a.results, number)
	}
}

func (w *world) takeHeld(f *frame) {
	if w.without == heldByAll {
		for _, kid := range f.node.kids {
			s := &frame{kind: settle, from: f.node, number: f.number}
			s.to(kid)
			w.post(s)
		}
	}
	actions, err := f.node.core.Held(f.child, f.number, nil)
	if err != nil {
		w.fail("refused", "node %d: %v", f.node.id, err)
	}
	w.carry(f.node, actions)
}

func (w *world) takeSettled(f *frame) {
	if f.node != nil {
		actions, err := f.node.core.Settled(f.number, nil)
		if err != nil {
			w.fail("refused", "node %d: %v", f.node.id, err)
		}
		w.carry(f.node, actions)
		return
	}
	if f.rank.fenced {
		return
	}
	if err := f.rank.leaf.SettledTo(f.number); err != nil {
		w.fail("refused", "rank %d: %v", f.rank.id, err)
	}
	w.settled(f.rank)
}

func (f *frame) sender() string {
	switch {
	case f.by != nil:
		return fmt.Sprint("rank ", f.by.id)
	case f.from != nil:
		return fmt.Sprint("node ", f.from.id)
	}
	return "nobody"
}

func (f *frame) receiver() string {
	switch {
	case f.rank != nil:
		return fmt.Sprint("rank ", f.rank.id)
	case f.node != nil:
		return fmt.Sprint("node ", f.node.id)
	}
	return "all"
}
