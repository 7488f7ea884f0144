package sharp_test

import (
	"testing"

	"github.com/polyrail/polyrail/collective/op"
	"github.com/polyrail/polyrail/collective/sharp"
)

// cast sends a result to all ranks below a node. A datagram has it as it is now.
func (w *world) cast(a *node, number uint64) {
	w.seen.casts++
	x := w.result(a, number)
	x.readers++
	a.cast = max(a.cast, number+1)
	for _, kid := range a.kids {
		r, ok := kid.(*rank)
		if !ok {
			continue
		}
		if w.chance.Float64() < w.loss {
			w.seen.lostCasts++
			continue
		}
		w.post(&frame{kind: datagram, from: a, rank: r, number: number, value: x.value})
	}
	if w.loss == 1 && w.chance.IntN(4) == 0 { // the device says that it sent nothing
		w.carry(a, a.core.CastFailed(number, nil))
	}
	if w.without == castsKept {
		w.free(a, number)
	}
	w.release(a, number)
}

// deliverCast brings a datagram, and leaves it to come again at times.
func (w *world) deliverCast(f *frame) (done bool) {
	r := f.rank
	done = w.chance.IntN(8) > 0
	r.leaf.Heard()
	if !r.leaf.Expects(f.number) || w.landing(r, f.number) {
		return done
	}
	r.slots[r.leaf.Slot(f.number)] = f.value
	w.arrived(r, f)
	return done
}

// landing reports whether a frame with a result is being received.
func (w *world) landing(r *rank, number uint64) bool {
	for _, f := range w.frames {
		if f.kind == response && f.rank == r && f.number == number && f.begun {
			return true
		}
	}
	return false
}

// takeAsk has a node send what a rank lacks.
func (w *world) takeAsk(f *frame) {
	to := f.number
	if w.without == askRemembered {
		to = max(f.least, min(to, f.node.cast))
	}
	actions, err := f.node.core.Ask(f.child, f.least, to, nil)
	if err != nil {
		w.fail("refused", "node %d: %v", f.node.id, err)
	}
	w.carry(f.node, actions)
}

// A result that a child misses goes to it by unicast, once, and is kept until the node knows that all
// children have it.
func TestACastIsKeptUntilAllHaveIt(t *testing.T) {
	const window = 2
	n := sharp.NewNode(sharp.NodeConfig{Children: 2, Window: window, Root: true, Results: sharp.Multicast,
		Casts: []bool{true, true}})
	request := sharp.Request{Seq: 1, Desc: op.Descriptor{Kind: op.KindAllReduce}, Bytes: 8}
	fold := func(number uint64) []sharp.Action {
		t.Helper()
		var actions []sharp.Action
		for child := range 2 {
			if err := n.Place(child, number, request); err != nil {
				t.Fatal(err)
			}
			actions = n.Arrived(child, number, actions)
		}
		return n.Folded(number, nil)
	}
	wantActions(t, fold(0), sharp.Action{Kind: sharp.Cast})
	wantActions(t, n.Released(0, nil)) // the datagram has left
	actions, err := n.Ask(1, 0, 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	wantActions(t, actions, sharp.Action{Kind: sharp.Respond, Child: 1})
	if actions, _ = n.Ask(1, 0, 1, nil); len(actions) > 0 {
		t.Errorf("asked again it answers %v", actions)
	}
	wantActions(t, n.Released(0, nil)) // child 0 may lack it
	fold(1)
	n.Released(1, nil)
	// With the next fragment child 0 says that it has the first response.
	if err := n.Place(0, 2, request); err != nil {
		t.Fatal(err)
	}
	wantActions(t, n.Arrived(0, 2, nil), sharp.Action{Kind: sharp.Free})
	if _, err := n.Ask(0, 3, 4, nil); err == nil {
		t.Error("a child has responses that were not sent")
	}
}

// What is asked for before it is there goes by unicast when it is.
func TestAnAskIsRemembered(t *testing.T) {
	n := sharp.NewNode(sharp.NodeConfig{Children: 2, Window: 1, Root: true, Results: sharp.Multicast,
		Casts: []bool{true, true}})
	request := sharp.Request{Seq: 1, Desc: op.Descriptor{Kind: op.KindBarrier}}
	if err := n.Place(0, 0, request); err != nil {
		t.Fatal(err)
	}
	n.Arrived(0, 0, nil)
	if actions, err := n.Ask(0, 0, 1, nil); err != nil || len(actions) > 0 {
		t.Fatalf("%v, %v", actions, err)
	}
	if err := n.Place(1, 0, request); err != nil {
		t.Fatal(err)
	}
	n.Arrived(1, 0, nil)
	wantActions(t, n.Folded(0, nil), sharp.Action{Kind: sharp.Cast}, sharp.Action{Kind: sharp.Respond, Child: 0})
}

// A rank whose network carries no casts stops waiting for them.
func TestARankThatHearsNoCastsAsksForAll(t *testing.T) {
	l := sharp.NewLeaf(1)
	for number := range uint64(100) {
		l.Take(1)
		if !l.Send(number) {
			t.Fatalf("fragment %d can't be sent", number)
		}
		l.SentForCast(number)
		if !l.Awaits() {
			if number < 8 || number > 20 {
				t.Errorf("it waits no more for fragment %d", number)
			}
			return
		}
		l.Overdue()
		if to, ok := l.Overdue(); !ok || to != number+1 && to != sharp.All {
			t.Fatalf("fragment %d: it asks up to %d, %v", number, to, ok)
		}
		l.Arrived(number)
		l.Placed(number + 1)
	}
	t.Error("it waits for ever")
}

func wantActions(t *testing.T, got []sharp.Action, want ...sharp.Action) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%v, want %v", got, want)
	}
	for i := range got {
		if got[i] != want[i] {
			t.Errorf("%v, want %v", got, want)
		}
	}
}
