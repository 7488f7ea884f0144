package sharp_test

import (
	"testing"

	"github.com/polyrail/polyrail/collective/sharp"
)

// leaf is a rank of window 2 that has launched operations of so many fragments.
func leaf(fragments int) *sharp.Leaf {
	l := sharp.NewLeaf(2)
	l.Take(fragments)
	return l
}

// send sends fragments and fails at the caller's line if one may not be sent.
func send(t *testing.T, l *sharp.Leaf, numbers ...uint64) {
	t.Helper()
	for _, n := range numbers {
		if !l.Send(n) {
			t.Fatalf("fragment %d may not be sent", n)
		}
	}
}

// state compares what a rank knows with what it must know.
func state(t *testing.T, l *sharp.Leaf, sent, received, settled uint64) {
	t.Helper()
	if l.Sent() != sent || l.Received() != received || l.Settled() != settled {
		t.Errorf("sent %d, received %d, settled %d; want %d, %d, %d", l.Sent(), l.Received(), l.Settled(),
			sent, received, settled)
	}
}

func TestLeafNumbersFragmentsInTheOrderOfOperations(t *testing.T) {
	l := sharp.NewLeaf(2)
	for _, x := range []struct {
		count int
		first uint64
	}{{3, 0}, {1, 3}, {0, 4}, {2, 4}} {
		if first := l.Take(x.count); first != x.first {
			t.Errorf("%d fragments from %d on, want %d", x.count, first, x.first)
		}
	}
}

func TestLeafSendsInOrderWithinItsWindow(t *testing.T) {
	l := leaf(6)
	if l.Send(1) {
		t.Error("fragment 1 is sent before 0")
	}
	send(t, l, 0, 1)
	if l.Send(1) || l.Send(2) {
		t.Error("sent twice, or beyond the window")
	}
	l.Arrived(1) // out of order: 0 is missing, so the window stays
	if l.Send(2) {
		t.Error("the window opens with a gap")
	}
	state(t, l, 2, 0, 0)
	l.Arrived(0)
	state(t, l, 2, 2, 0)
	send(t, l, 2, 3)
	if l.Send(4) {
		t.Error("sent beyond the window")
	}
}

func TestLeafSendsNothingThatNoOperationHasTaken(t *testing.T) {
	l := leaf(1)
	send(t, l, 0)
	if l.Send(1) {
		t.Error("fragment 1 is nobody's")
	}
}

func TestLeafExpectsWhatItSentOnce(t *testing.T) {
	l := leaf(6)
	send(t, l, 0, 1)
	for number, want := range []bool{true, true, false} {
		if l.Expects(uint64(number)) != want {
			t.Errorf("expects the response to %d: %v", number, !want)
		}
	}
	l.Arrived(1)
	if l.Expects(1) || !l.Expects(0) {
		t.Error("a response that came is expected, or one that did not isn't")
	}
	l.Arrived(1) // the second of two at once
	l.Arrived(0)
	l.Arrived(0)
	state(t, l, 2, 2, 0)
	send(t, l, 2, 3)
	if !l.Expects(2) || !l.Expects(3) || l.Expects(0) || l.Expects(1<<63) || l.Expects(1<<64-1) {
		t.Error("after two responses 2 and 3 are expected")
	}
}

func TestLeafSettlesWhatIsAWindowBeforeAResponse(t *testing.T) {
	l := leaf(6)
	send(t, l, 0, 1)
	l.Arrived(0)
	l.Arrived(1)
	state(t, l, 2, 2, 0)
	send(t, l, 2, 3)
	l.Arrived(3)
	state(t, l, 4, 2, 2)
	l.Arrived(2)
	state(t, l, 4, 4, 2)
}

func TestLeafTakesTheGroupsWord(t *testing.T) {
	l := leaf(4)
	send(t, l, 0, 1)
	l.Arrived(0)
	for _, claim := range []uint64{2, 1 << 63, 1<<64 - 1} {
		if l.SettledTo(claim) == nil {
			t.Errorf("fragments below %d can't be settled, those below 1 are here", claim)
		}
	}
	state(t, l, 2, 1, 0)
	for _, claim := range []uint64{1, 0} { // the second one is older news
		if err := l.SettledTo(claim); err != nil {
			t.Error(err)
		}
	}
	state(t, l, 2, 1, 1)
}

func TestLeafKeepsSlotsUntilResultsHaveLeft(t *testing.T) {
	l := leaf(9)
	if l.Slots() != 4 || l.Slot(0) != l.Slot(4) || l.Slot(3) == l.Slot(4) {
		t.Errorf("%d slots, fragments 0, 3 and 4 in %d, %d and %d", l.Slots(), l.Slot(0), l.Slot(3), l.Slot(4))
	}
	for n := range uint64(4) {
		send(t, l, n)
		l.Arrived(n)
	}
	if l.Send(4) {
		t.Fatal("the response to 4 would overwrite that to 0")
	}
	l.Placed(1)
	l.Placed(0) // older news
	send(t, l, 4)
	l.Arrived(4)
	if l.Send(5) {
		t.Fatal("the response to 5 would overwrite that to 1")
	}
}

func TestLeafIsRepairedOnlyBehindTheFence(t *testing.T) {
	l := leaf(9)
	for n := range uint64(4) {
		send(t, l, n)
		if n < 3 { // the response to 3 is on its way
			l.Arrived(n)
		}
	}
	state(t, l, 4, 3, 1)
	if l.Repaired(2) == nil {
		t.Error("repaired without a fence")
	}
	l.Fence()
	if l.Send(4) || l.Expects(3) {
		t.Error("a fenced rank sends, or expects a response")
	}
	l.Arrived(3) // was on its way when the fence came
	state(t, l, 4, 3, 1)
	for _, claim := range []uint64{0, 4, 1<<64 - 1} {
		if l.Repaired(claim) == nil {
			t.Errorf("repaired from %d on: 1 is settled, 3 are here", claim)
		}
	}
	if err := l.Repaired(2); err != nil {
		t.Error(err)
	}
	state(t, l, 4, 3, 2)
	if first := l.Take(2); first != 9 {
		t.Errorf("operations that are launched later begin with %d, not 9", first)
	}
}

func TestLeafNeedsAWindow(t *testing.T) {
	panics(t, func() { sharp.NewLeaf(0) })
}

func panics(t *testing.T, f func()) {
	t.Helper()
	defer func() {
		t.Helper()
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	f()
}
