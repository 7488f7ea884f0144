package engine

import "time"

// heldDelay is how long an aggregation node may not hear that responses of small operations are here.
// Nobody waits for that: what follows within a window tells as much. So it is said once the last of
// them has been here for a while, as a lone acknowledgement is.
const heldDelay = 5 * time.Millisecond

// lateHeld is a tree's notice of what it holds, when that isn't said at once. Under tree.mu.
type lateHeld struct {
	timer *time.Timer // nil before the first one
	armed bool
	now   bool // the time has come
}

// due reports whether it is time, and sees to it that the tree is asked when it is.
func (h *lateHeld) due(t *Tree) bool {
	if h.now {
		h.now = false
		return true
	}
	if h.armed || t.closed {
		return false
	}
	h.armed = true
	if h.timer == nil {
		h.timer = time.AfterFunc(heldDelay, t.heldLate)
	} else {
		h.timer.Reset(heldDelay)
	}
	return false
}

func (h *lateHeld) stop() {
	if h.timer != nil {
		h.timer.Stop()
	}
}

// heldLate: the time has come.
func (t *Tree) heldLate() {
	t.mu.Lock()
	t.late.armed, t.late.now = false, true
	t.mu.Unlock()
	t.advance()
	t.mu.Lock()
	t.late.now = false // there was nothing to say
	t.mu.Unlock()
}
