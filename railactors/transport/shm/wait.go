package shm

import (
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/polyrail/polyrail/railactors/transport"
)

// waiter is one goroutine that may sleep.
type waiter struct {
	woken chan struct{} // capacity 1
}

func newWaiter() waiter { return waiter{woken: make(chan struct{}, 1)} }

// wake ends its sleep, or the next one.
func (w *waiter) wake() {
	select {
	case w.woken <- struct{}{}:
	default:
	}
}

// doorbell is the number under which the other end is to wake this one: see control.
type doorbell struct {
	mu      sync.Mutex
	number  *atomic.Uint32
	waiting int
}

// await counts a waiter, or counts it anew: the other end wakes this one for what it does from now
// on.
func (d *doorbell) await(first bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if first {
		d.waiting++
	}
	d.number.Add(1 + d.number.Load()&1) // the next odd one
}

// done takes a waiter back.
func (d *doorbell) done() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.waiting--; d.waiting == 0 {
		d.number.Add(d.number.Load() & 1) // an even one
	}
}

// deadline is a limit for one side. It wakes the side's waiter. The timer alone says when it has
// passed: the host's clock may be set meanwhile.
type deadline struct {
	mu     sync.Mutex
	timer  *time.Timer
	passed atomic.Bool
}

func (d *deadline) set(t time.Time, w *waiter) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.timer != nil {
		d.timer.Stop()
		d.timer = nil
	}
	d.passed.Store(false)
	if t.IsZero() {
		return
	}
	left := time.Until(t)
	if left <= 0 {
		d.passed.Store(true)
		w.wake()
		return
	}
	var timer *time.Timer
	timer = time.AfterFunc(left, func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		if d.timer == timer { // and not one that was too late to be stopped
			d.passed.Store(true)
			w.wake()
		}
	})
	d.timer = timer
}

// check returns os.ErrDeadlineExceeded if it has passed.
func (d *deadline) check() error {
	if d.passed.Load() {
		return os.ErrDeadlineExceeded
	}
	return nil
}

// How long an end looks for the other one's next move before it sleeps: about what waking it would
// cost both. In the middle of a frame the other end is at work on the rest.
const (
	spinFor  = 20 * time.Microsecond
	hotLooks = 30 // without leaving the processor to others
)

// spin looks until there is something, and reports whether there is.
func spin(ready func() bool) bool {
	for range hotLooks {
		if ready() {
			return true
		}
	}
	for start := time.Now(); time.Since(start) < spinFor; {
		transport.Yield()
		if ready() {
			return true
		}
	}
	return false
}
