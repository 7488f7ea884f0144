package fault

import "time"

const (
	// burst is how long a limiter saves up while idle. It makes up for timers
	// that fire late: waits of less than a millisecond are rounded up by the system.
	burst = 4 * time.Millisecond
	// What passes at once is what the rate allows in a millisecond, within these bounds.
	minQuantum = 1 << 10
	maxQuantum = 64 << 10
)

// limiter hands out turns to send: a virtual clock that advances by the time that each
// turn's bytes take. Turns are given in the order of asking, so connections share fairly.
type limiter struct {
	free       time.Time // when the next turn begins
	generation int       // turns of an older one are void
}

// turn is a permission to move bytes at a time.
type turn struct {
	at         time.Time
	bytes      int
	generation int
	valid      bool
}

func (l *limiter) reserve(now time.Time, bytes int, rate int64) turn {
	if earliest := now.Add(-burst); l.free.Before(earliest) {
		l.free = earliest
	}
	bytes = min(bytes, quantum(rate))
	at := l.free
	l.free = at.Add(cost(bytes, rate))
	return turn{at: at, bytes: bytes, generation: l.generation, valid: true}
}

// refund gives back what a turn allowed and nobody moved.
func (l *limiter) refund(bytes int, rate int64) { l.free = l.free.Add(-cost(bytes, rate)) }

// forget voids the turns that are waited for: the rate changed.
func (l *limiter) forget() {
	l.free = time.Time{}
	l.generation++
}

func quantum(rate int64) int { return int(min(max(rate/1000, minQuantum), maxQuantum)) }

func cost(bytes int, rate int64) time.Duration {
	return time.Duration(float64(bytes) / float64(rate) * float64(time.Second))
}
