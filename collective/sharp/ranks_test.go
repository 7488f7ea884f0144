package sharp_test

import (
	"fmt"
	"slices"

	"github.com/polyrail/polyrail/collective/sharp"
)

// act lets a rank do one thing that it can do: call the next operation, send, place a result, say
// what it holds.
func (w *world) act(r *rank) bool {
	acts := [...]func(*rank) bool{w.launch, w.send, w.place, w.hold, w.ask}
	first := w.rng.IntN(len(acts))
	for i := range acts {
		if acts[(first+i)%len(acts)](r) {
			return true
		}
	}
	return false
}

func (w *world) launch(r *rank) bool {
	if r.launched == len(w.ops) {
		return false
	}
	o := w.ops[r.launched]
	if first := r.leaf.Take(o.count); first != uint64(o.first) {
		w.fail("wrong", "rank %d numbers its operation from %d on, not %d", r.id, first, o.first)
	}
	if r.fenced {
		w.seen.late++
	}
	r.launched++
	w.log("rank %d launches %+v", r.id, o)
	return true
}

// taken is the number of fragments that a rank's operations have so far.
func (w *world) taken(r *rank) uint64 {
	if r.launched == 0 {
		return 0
	}
	o := w.ops[r.launched-1]
	return uint64(o.first + o.count)
}

func (w *world) send(r *rank) bool {
	number := r.leaf.Sent()
	if number >= w.taken(r) || !r.leaf.Send(number) {
		return false
	}
	w.post(&frame{kind: request, by: r, child: r.child, node: r.parent, number: number,
		what: w.request(r, number), memory: w.operand(r, number)})
	if w.results == sharp.Multicast {
		r.leaf.SentForCast(number)
	}
	w.log("rank %d sends %d", r.id, number)
	return true
}

// place moves the first settled result that is still in its slot.
func (w *world) place(r *rank) bool {
	f := slices.Index(r.left, false)
	if f < 0 || uint64(f) >= w.settledTo(r) {
		return false
	}
	if r.repaired {
		w.seen.saved++
	}
	w.leave(r, f)
	return true
}

// leave moves a result to the user's memory.
func (w *world) leave(r *rank, f int) {
	r.user[f] = r.slots[r.leaf.Slot(uint64(f))]
	w.log("rank %d places %d", r.id, f)
	w.moved(r, f)
}

// moved says that the result of a fragment is where it belongs, and ends what is complete.
func (w *world) moved(r *rank, f int) {
	r.left[f] = true
	first := slices.Index(r.left, false)
	if first < 0 {
		first = len(r.left)
	}
	r.leaf.Placed(uint64(first))
	for r.finished < r.launched {
		o := w.ops[r.finished]
		if first < o.first+o.count {
			return
		}
		for f := o.first; f < o.first+o.count; f++ {
			if r.user[f] != w.want[f] {
				w.fail("wrong", "rank %d gets %x for fragment %d, not %x", r.id, r.user[f], f, w.want[f])
			}
			r.user[f] = scribbled
			if o.copied && w.without == copiesKept {
				r.pool[f] = freed
			}
		}
		r.finished++
	}
}

// hold says at the end of an operation that its responses are here.
func (w *world) hold(r *rank) bool {
	if r.told == r.launched || r.fenced || w.without == heldTold {
		return false
	}
	o, here := w.ops[r.told], r.leaf.Received()
	if w.without == heldReceived {
		here = r.leaf.Sent()
	}
	end := uint64(o.first + o.count)
	if here < end {
		return false
	}
	r.told++
	w.post(&frame{kind: held, by: r, child: r.child, node: r.parent, number: end})
	w.log("rank %d holds those below %d", r.id, end)
	return true
}

// ask asks for the responses that may be lost.
func (w *world) ask(r *rank) bool {
	if w.results != sharp.Multicast || !r.leaf.Awaits() {
		return false
	}
	to, ok := r.leaf.Overdue()
	if !ok {
		return r.leaf.Awaits() // the next time it does
	}
	w.seen.asks++
	w.post(&frame{kind: asked, by: r, child: r.child, node: r.parent, number: to, least: r.leaf.Received()})
	w.log("rank %d asks for those below %d", r.id, to)
	return true
}

// settledTo is what a rank believes to be settled.
func (w *world) settledTo(r *rank) uint64 {
	s := r.leaf.Settled()
	if r.repaired {
		s = max(s, r.from)
	}
	if w.without == settledByWindow && r.highest > uint64(w.window) {
		s = max(s, min(r.highest-uint64(w.window), r.leaf.Received()))
	}
	return s
}

// settled lets go of the copies of operands that nobody folds again.
func (w *world) settled(r *rank) {
	to := w.settledTo(r)
	for f := range r.pool[:to] {
		r.pool[f] = freed
	}
	if w.without == slotsKept {
		r.leaf.Placed(to)
	}
}

// deliverRepair is the way from a lost node to the ranks' own folding (decision 035).
func (w *world) deliverRepair(f *frame) {
	switch f.kind {
	case noticed:
		for _, r := range w.ranks {
			w.post(&frame{kind: fence, rank: r})
		}
	case fence:
		w.fence(f.rank)
	case repair:
		r := f.rank
		if w.without == fenced {
			w.quiesce(r)
		}
		if r.from = f.number; w.without == agreedFrom {
			r.from = w.settledTo(r)
		}
		r.repaired = true
		if err := r.leaf.Repaired(r.from); err != nil {
			w.refusal = &failure{"refused", fmt.Sprintf("rank %d: %v", r.id, err)}
		}
		w.log("rank %d folds again from %d on", r.id, r.from)
		w.settled(r)
		w.repairs++
	}
}

// fence ends a rank's part, and reports. The last report tells from where on all fold again.
func (w *world) fence(r *rank) {
	if w.without != fenced {
		w.quiesce(r)
	}
	r.from = w.settledTo(r)
	if w.without == settledReported {
		r.from = r.leaf.Received()
	}
	w.log("rank %d reports %d", r.id, r.from)
	if w.reports++; w.reports < len(w.ranks) {
		return
	}
	from := w.ranks[0].from
	for _, r := range w.ranks {
		if w.without == highestFrom {
			from = min(from, r.from)
		} else {
			from = max(from, r.from)
		}
	}
	w.redone = int(from)
	if w.without == agreedFrom {
		w.redone = 0
	}
	for _, r := range w.ranks {
		w.post(&frame{kind: repair, rank: r, number: from})
	}
	w.seen.repaired++
}

// quiesce fences a rank: no frame reads or writes its memory any more.
func (w *world) quiesce(r *rank) {
	r.leaf.Fence()
	r.fenced = true
	w.frames = slices.DeleteFunc(w.frames, func(f *frame) bool {
		return f.by == r && f.kind == request || f.rank == r && f.begun
	})
}

// redo folds the next fragment again, without the group, once all ranks are at it.
func (w *world) redo() bool {
	if w.repairs < len(w.ranks) || w.redone == len(w.want) {
		return false
	}
	f, taking := w.redone, 0
	operands := make([]uint64, len(w.ranks))
	for i, r := range w.ranks {
		if uint64(f) >= w.taken(r) {
			return false
		}
		if uint64(f) >= r.from {
			taking++
		}
		operands[i] = *w.operand(r, uint64(f))
	}
	w.redone++
	switch {
	case taking == 0: // those who settled it alone: without the agreement only
		return true
	case taking < len(w.ranks):
		w.fail("stuck", "%d of %d ranks fold fragment %d again", taking, len(w.ranks), f)
		return true
	}
	for i, v := range operands {
		if v != original(i, f) {
			w.fail("wrong", "rank %d's operand of fragment %d is gone", i, f)
		}
	}
	w.seen.redone++
	v := w.fold(f, operands)
	for _, r := range w.ranks {
		if !r.left[f] {
			r.user[f] = v
			w.moved(r, f)
		}
	}
	return true
}
