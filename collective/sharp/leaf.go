package sharp

import "fmt"

// Leaf is a rank's part in a group: it numbers fragments, and says what may be sent, where a
// response is kept and what is settled.
//
// Results wait in 2 × window slots until they are settled: the slot of fragment N is Slot(N).
type Leaf struct {
	window   uint64
	next     uint64 // number of the next fragment that an operation takes
	sent     uint64 // fragments below were sent; they are sent in order
	received uint64 // the responses below are here
	beyond   []bool // of the window after received: here, too
	settled  uint64 // everybody has the responses below
	placed   uint64 // results below have left their slots
	fenced   bool
	missing  missing
}

// NewLeaf makes a rank's part. It panics when there is no window.
func NewLeaf(window int) *Leaf {
	if window < 1 {
		panic(fmt.Sprintf("sharp: a leaf of window %d", window))
	}
	return &Leaf{window: uint64(window), beyond: make([]bool, window)}
}

// Take numbers the fragments of the next operation, and returns the first one's number. Operations
// take them in their order, on all ranks alike.
func (l *Leaf) Take(count int) (first uint64) {
	first = l.next
	l.next += uint64(count)
	return first
}

// Send reports whether fragment number may be sent now, and notes that it is: it is the next one,
// an operation took it, its window is open, and so is the slot of its result.
func (l *Leaf) Send(number uint64) bool {
	if l.fenced || number != l.sent || number >= l.next || number >= l.received+l.window ||
		number >= l.placed+2*l.window {
		return false
	}
	l.sent++
	return true
}

// Taken is the number of the next fragment that an operation takes.
func (l *Leaf) Taken() uint64 { return l.next }

// Sent is the number of the next fragment to be sent.
func (l *Leaf) Sent() uint64 { return l.sent }

// Expects reports whether the response of a fragment may come: it was sent, and none came.
func (l *Leaf) Expects(number uint64) bool {
	return !l.fenced && number >= l.received && number < l.sent && !l.beyond[number%l.window]
}

// Arrived says that a response is here. What is settled by that, Settled tells: whoever responded
// to number had all operands of it, and each rank sends only what is less than a window beyond what
// it has. A response that isn't expected any more changes nothing: the second of two that came at
// once, or one that was whole only after the fence.
func (l *Leaf) Arrived(number uint64) {
	if !l.Expects(number) {
		return
	}
	l.beyond[number%l.window] = true
	for l.beyond[l.received%l.window] {
		l.beyond[l.received%l.window] = false
		l.received++
	}
	if number+1 > l.window {
		l.settled = max(l.settled, number+1-l.window)
	}
}

// Received is how many responses are here, from the first one on without a gap.
func (l *Leaf) Received() uint64 { return l.received }

// SettledTo takes the group's word that everybody has the responses below number. An error is a
// claim that can't be true.
func (l *Leaf) SettledTo(number uint64) error {
	if number > l.received {
		return fmt.Errorf("fragments below %d are said to be settled, those below %d are here", number, l.received)
	}
	l.settled = max(l.settled, number)
	return nil
}

// Settled is how many fragments are settled: everybody has their responses.
func (l *Leaf) Settled() uint64 { return l.settled }

// Placed says that results below number have left their slots.
func (l *Leaf) Placed(number uint64) { l.placed = max(l.placed, number) }

// Slot is where the result of a fragment waits.
func (l *Leaf) Slot(number uint64) int { return int(number % (2 * l.window)) }

// Slots is how many there are.
func (l *Leaf) Slots() int { return int(2 * l.window) }

// Fence ends the rank's part: nothing is sent, and no response is taken, any more.
func (l *Leaf) Fence() { l.fenced = true }

// Repaired says from which fragment on all ranks fold again what they hold (the highest that is
// settled on any of them). What is below is here. An error is a claim that can't be true.
func (l *Leaf) Repaired(from uint64) error {
	if !l.fenced || from < l.settled || from > l.received {
		return fmt.Errorf("a repair from fragment %d on: fenced %v, settled below %d, here below %d", from,
			l.fenced, l.settled, l.received)
	}
	l.settled = from
	return nil
}
