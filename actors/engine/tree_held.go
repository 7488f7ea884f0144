package engine

import "time"

// heldDelay is how long an aggregation node may not hear that responses of small operations are here.
// Nobody waits for that: what follows within a window tells as much. So it is said once the last of
// them has been here for a while, as a lone acknowledgement is.
const heldDelay = 5 * time.Millisecond

// later is a notice that a tree gives some time after it has a reason to. Under tree.mu.
type later struct {
	delay time.Duration
	timer *time.Timer // nil before the first one
	armed bool
	now   bool // the time has come
}

// due reports whether it is time, and sees to it that the tree is asked when it is.
func (l *later) due(t *Tree) bool {
	if l.now {
		l.now = false
		return true
	}
	if l.armed || t.closed {
		return false
	}
	l.armed = true
	if l.timer == nil {
		l.timer = time.AfterFunc(l.delay, func() { t.fire(l) })
	} else {
		l.timer.Reset(l.delay)
	}
	return false
}

func (l *later) stop() {
	if l.timer != nil {
		l.timer.Stop()
	}
}

// fire: the time of a notice has come.
func (t *Tree) fire(l *later) {
	t.mu.Lock()
	l.armed, l.now = false, true
	t.mu.Unlock()
	t.advance(nil)
	t.mu.Lock()
	l.now = false // there was nothing to say
	t.mu.Unlock()
}
