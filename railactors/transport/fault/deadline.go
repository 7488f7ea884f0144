package fault

import (
	"sync"
	"time"
)

// deadline is a deadline as a channel that is closed when it has passed.
type deadline struct {
	mu         sync.Mutex
	passed     chan struct{}
	isPassed   bool
	generation int // fences a timer that fired while it was stopped
	timer      *time.Timer
}

func (d *deadline) set(t time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.generation++
	if d.timer != nil {
		d.timer.Stop()
		d.timer = nil
	}
	if d.passed == nil || d.isPassed {
		d.passed, d.isPassed = make(chan struct{}), false
	}
	if t.IsZero() {
		return
	}
	left := time.Until(t)
	if left <= 0 {
		d.pass()
		return
	}
	generation := d.generation
	d.timer = time.AfterFunc(left, func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		if d.generation == generation {
			d.pass()
		}
	})
}

func (d *deadline) pass() {
	d.isPassed = true
	close(d.passed)
}

// wait is nil, which blocks for ever, while no deadline was ever set.
func (d *deadline) wait() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.passed
}

func (d *deadline) hasPassed() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.isPassed
}
