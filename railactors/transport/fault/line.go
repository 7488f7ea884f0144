package fault

import (
	"sync"
	"time"
)

const (
	// lineBytes is what can be under way in one direction of a delayed connection.
	lineBytes = 4 << 20
	// linger is how long a closed connection may take to hand over what was under way,
	// beyond the delay.
	linger = time.Second
)

// line keeps the bytes of a delayed connection while they are under way. A goroutine
// hands them over when their time has come; it ends with the connection.
type line struct {
	c *conn

	mu    sync.Mutex
	queue []parcel
	bytes int
	err   error         // of the wrapped connection
	more  chan struct{} // signals the carrier, holds one
	room  chan struct{} // signals the writer, holds one
	ended chan struct{} // closed when the carrier has
}

type parcel struct {
	due  time.Time
	data []byte
}

// delayLine returns the line that a write has to take, or nil. Once there is one all
// writes take it, lest they overtake.
func (c *conn) delayLine() *line {
	c.t.mu.Lock()
	delayed := c.t.delay > 0
	c.t.mu.Unlock()
	c.lineMu.Lock()
	defer c.lineMu.Unlock()
	if c.line == nil && delayed {
		select {
		case <-c.gone:
			return nil // the wrapped connection is closed: a write on it says so
		default:
		}
		c.inner.SetWriteDeadline(time.Time{})
		c.line = &line{c: c, more: make(chan struct{}, 1), room: make(chan struct{}, 1), ended: make(chan struct{})}
		go c.line.carry()
	}
	return c.line
}

func (c *conn) existingLine() *line {
	c.lineMu.Lock()
	defer c.lineMu.Unlock()
	return c.line
}

// put copies a piece of k bytes into the line.
func (l *line) put(pieces [][]byte, k int, wait bool) (int, error) {
	for !l.hasRoom(k) {
		if !wait {
			return 0, nil
		}
		select {
		case <-l.room:
		case <-l.c.gone:
			return 0, l.c.opError(l.c.cause)
		case <-l.c.writing.deadline.wait():
			_, err := l.c.admit(nil, &l.c.writing, 0, false)
			return 0, err
		}
	}
	data := make([]byte, 0, k)
	for _, p := range pieces {
		data = append(data, p...)
	}
	l.c.t.mu.Lock()
	due := time.Now().Add(l.c.t.delay)
	l.c.t.counters.DelayedBytes += int64(k)
	l.c.t.mu.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil {
		return 0, l.err
	}
	l.queue = append(l.queue, parcel{due, data})
	l.bytes += k
	signal(l.more)
	return k, nil
}

// hasRoom is also true after a failure, which put returns.
func (l *line) hasRoom(k int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.bytes == 0 || l.bytes+k <= lineBytes || l.err != nil
}

// carry hands parcels over until the connection ended and, after a Close, all is handed over.
func (l *line) carry() {
	defer close(l.ended)
	defer l.c.inner.Close()
	var held side
	gone := l.c.gone
	for {
		p, ok := l.first()
		if !ok && gone == nil {
			return
		}
		if !ok {
			select {
			case <-l.more:
			case <-gone:
				gone = nil
			}
			continue
		}
		for wait := time.Until(p.due); wait > 0; wait = time.Until(p.due) {
			<-held.after(wait)
		}
		// A stall holds it. An error says that the connection ended here: after a Close
		// the parcel is to arrive all the same, after a loss the write fails.
		l.c.admit(nil, &held, 0, true)
		_, err := l.c.inner.Write(p.data)
		l.done(p, err)
		if err != nil {
			return
		}
	}
}

// latest is when the line of a connection that is closed now gives up.
func (l *line) latest() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	at := time.Now()
	if n := len(l.queue); n > 0 && l.queue[n-1].due.After(at) {
		at = l.queue[n-1].due
	}
	return at.Add(linger)
}

func (l *line) first() (parcel, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.queue) == 0 {
		return parcel{}, false
	}
	p := l.queue[0]
	l.queue[0] = parcel{}
	l.queue = l.queue[1:]
	return p, true
}

func (l *line) done(p parcel, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.bytes -= len(p.data)
	l.err = err
	signal(l.room)
}

func (l *line) hasEnded() bool {
	select {
	case <-l.ended:
		return true
	default:
		return false
	}
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
