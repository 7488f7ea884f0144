package railactors

import (
	"sync"
	"sync/atomic"
	"time"
)

// lingerTime is how long rails stay hushed that nobody attends to; twice that at most. A sweep takes
// some 10 µs of processor time. What comes unexpected, as a heartbeat does, can wait so long.
const lingerTime = 2 * time.Millisecond

// quietRails are the rails that stay hushed from one small operation to the next. A caller that comes
// back within microseconds finds there what the other ranks have sent meanwhile. A wake-up for each
// such frame takes the processor from the callers (docs/decisions/017).
type quietRails struct {
	listeners atomic.Int32

	mu    sync.Mutex
	rails map[lingering]struct{}
	timer *time.Timer
}

type lingering struct {
	peer *Peer
	rail int
}

// leave has a rail stay hushed, unless somebody listens.
func (q *quietRails) leave(p *Peer, rail int) {
	p.left[rail].Store(true)
	if q.listeners.Load() == 0 && p.quiets[rail].Load() {
		return // as a rule: operations follow one another
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	l := lingering{p, rail}
	if q.listeners.Load() > 0 {
		p.quiets[rail].Store(false)
		delete(q.rails, l)
		return
	}
	p.quiets[rail].Store(true)
	if q.rails == nil {
		q.rails = make(map[lingering]struct{})
	}
	idle := len(q.rails) == 0
	q.rails[l] = struct{}{}
	switch {
	case !idle: // the timer runs
	case q.timer == nil:
		q.timer = time.AfterFunc(lingerTime, q.sweep)
	default:
		q.timer.Reset(lingerTime)
	}
}

// sweep ends the quiet of the rails that nobody has come back to.
func (q *quietRails) sweep() {
	q.wake(func(l *lingering) bool {
		return !l.peer.left[l.rail].Swap(false) && l.peer.attended[l.rail].Load() == 0
	})
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.rails) > 0 {
		q.timer.Reset(lingerTime)
	}
}

// wake ends the quiet of some rails.
func (q *quietRails) wake(which func(l *lingering) bool) {
	var woken []lingering
	q.mu.Lock()
	for l := range q.rails {
		if which(&l) {
			woken = append(woken, l)
			delete(q.rails, l)
			l.peer.quiets[l.rail].Store(false)
		}
	}
	q.mu.Unlock()
	for _, l := range woken {
		l.peer.hush(l.rail)
	}
}
