package fault

import (
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/polyrail/polyrail/railactors/transport"
)

// conn decorates a connection. Every read and write goes in pieces, each of which is
// admitted first.
type conn struct {
	t     *Transport
	inner transport.Conn

	once  sync.Once
	gone  chan struct{} // closed when the connection ended here
	cause error         // why; set before gone is closed

	held             atomic.Bool // a write waits for admission
	reading, writing side
	pieces           [][]byte   // the writer's, of one piece of a write
	lineMu           sync.Mutex // guards line, which the writer makes and Close looks for
	line             *line      // nil until something was delayed
	frames           framer     // the writer's
	before           []byte     // a frame of an earlier connection; nil if there is none
}

// side is what a reader or a writer waits with.
type side struct {
	deadline deadline
	timer    *time.Timer
}

func newConn(t *Transport, inner transport.Conn) *conn {
	return &conn{t: t, inner: inner, gone: make(chan struct{})}
}

func (c *conn) ReadFull(p []byte) (n int, err error) {
	for n < len(p) {
		k, err := c.admit(&c.t.in, &c.reading, len(p)-n, true)
		if err != nil {
			return n, err
		}
		m, err := c.inner.ReadFull(p[n : n+k])
		n += m
		c.moved(&c.t.counters.BytesReceived, m)
		if err == io.EOF && n > 0 {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return n, c.failure(err)
		}
		// A stall that began while this piece was awaited holds it too.
		if _, err := c.admit(nil, &c.reading, 0, true); err != nil {
			return n, err
		}
	}
	return n, nil
}

// Progress is the wrapped connection's. During a stall a write that is held is one that nobody confirms.
func (c *conn) Progress() (p transport.Progress, ok bool) {
	if inner, can := c.inner.(transport.Confirmer); can {
		p, ok = inner.Progress()
	}
	c.t.mu.Lock()
	defer c.t.mu.Unlock()
	if c.t.stalled && ok {
		p.Awaiting = p.Awaiting || c.held.Load()
		p.LastAck = time.Since(c.t.since)
	}
	return p, ok
}

// Buffered is the wrapped connection's.
func (c *conn) Buffered() int { return c.inner.Buffered() }

func (c *conn) Write(bufs ...[]byte) (int64, error)    { return c.write(bufs, true) }
func (c *conn) TryWrite(bufs ...[]byte) (int64, error) { return c.write(bufs, false) }

func (c *conn) write(bufs [][]byte, wait bool) (sent int64, err error) {
	total := 0
	for _, b := range bufs {
		total += len(b)
	}
	if c.t.frames {
		if ok, err := c.tamper(wait); !ok {
			return 0, err
		}
	}
	rest := cursor{bufs: bufs}
	defer func() { clear(c.pieces[:cap(c.pieces)]) }() // hold no memory of the caller's
	for left := total; left > 0; {
		want, line := left, c.delayLine()
		if line != nil {
			want = min(left, maxQuantum) // it is a copy: none larger than what a line holds
		}
		c.held.Store(true)
		k, err := c.admit(&c.t.out, &c.writing, want, wait)
		c.held.Store(false)
		if err != nil || k == 0 {
			return sent, err
		}
		c.pieces = rest.take(k, c.pieces[:0])
		m, err := c.forward(line, c.pieces, k, wait)
		if m < k {
			c.t.refund(&c.t.out, k-m)
		}
		if c.t.frames {
			c.frames.wrote(c.t, c.pieces, m)
		}
		sent += int64(m)
		left -= m
		c.moved(&c.t.counters.BytesSent, m)
		if err != nil || m < k {
			return sent, c.failure(err)
		}
	}
	return sent, nil
}

// forward hands a piece of k bytes on, at once or, if there is one, through the delay line.
func (c *conn) forward(l *line, pieces [][]byte, k int, wait bool) (int, error) {
	if l != nil {
		return l.put(pieces, k, wait)
	}
	if wait {
		n, err := c.inner.Write(pieces...)
		return int(n), err
	}
	n, err := c.inner.TryWrite(pieces...)
	return int(n), err
}

// admit waits until bytes may pass and returns how many of those wanted; at most 0 if it
// must not wait. Without a limiter it only waits for a stall to end.
func (c *conn) admit(l *limiter, s *side, want int, wait bool) (int, error) {
	var r request
	for {
		select {
		case <-c.gone:
			return 0, c.opError(c.cause)
		default:
		}
		if s.deadline.hasPassed() {
			return 0, c.opError(os.ErrDeadlineExceeded)
		}
		n, after, changed := c.t.admit(l, &r, want, wait)
		if changed == nil {
			return n, nil
		}
		select {
		case <-changed:
		case <-s.after(after):
		case <-c.gone:
		case <-s.deadline.wait():
		}
	}
}

// after is a channel for a wait; nil, which blocks for ever, for none.
func (s *side) after(d time.Duration) <-chan time.Time {
	if d <= 0 {
		return nil
	}
	if s.timer == nil {
		s.timer = time.NewTimer(d)
	} else {
		s.timer.Reset(d)
	}
	return s.timer.C
}

// request is one read or write that asks for admission, perhaps several times.
type request struct {
	turn               turn
	stalled, throttled bool // was counted
}

// admit decides about a piece of want bytes: n may pass if changed is nil; otherwise ask
// again after a change or after the time, if that is not 0.
func (t *Transport) admit(l *limiter, r *request, want int, wait bool) (n int, after time.Duration, changed <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.stalled {
		if !r.stalled {
			r.stalled = true
			t.counters.Stalled++
		}
		if !wait {
			return 0, 0, nil
		}
		return 0, 0, t.changed
	}
	if l == nil {
		return 0, 0, nil
	}
	want = t.script.limit(want)
	if t.rate <= 0 {
		return want, 0, nil
	}
	now := time.Now()
	if !r.turn.valid || r.turn.generation != l.generation {
		if !wait && l.free.After(now) {
			return 0, 0, nil
		}
		r.turn = l.reserve(now, want, t.rate)
	}
	if left := r.turn.at.Sub(now); left > 0 {
		if !r.throttled {
			r.throttled = true
			t.counters.Throttled++
		}
		return 0, left, t.changed
	}
	return min(r.turn.bytes, want), 0, nil
}

func (t *Transport) refund(l *limiter, bytes int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.rate > 0 {
		l.refund(bytes, t.rate)
	}
}

// moved counts bytes that passed and takes the steps of the script that are due by them.
func (c *conn) moved(counter *int64, bytes int) {
	c.t.mu.Lock()
	*counter += int64(bytes)
	due := c.t.script.moved(bytes)
	c.t.mu.Unlock()
	for _, step := range due {
		c.t.apply(step)
	}
}

// failure is what the caller hears of an error of the wrapped connection: why it was
// ended here, if it was.
func (c *conn) failure(err error) error {
	select {
	case <-c.gone:
		if err != nil {
			return c.opError(c.cause)
		}
	default:
	}
	return err
}

func (c *conn) opError(err error) error {
	return &net.OpError{Op: "pass", Net: c.t.Protocol(), Source: c.LocalAddr(), Addr: c.RemoteAddr(), Err: err}
}

func (c *conn) SetReadDeadline(t time.Time) error {
	c.reading.deadline.set(t)
	return c.inner.SetReadDeadline(t)
}

func (c *conn) SetWriteDeadline(t time.Time) error {
	c.writing.deadline.set(t)
	if c.existingLine() != nil {
		return nil // the line does the wrapped connection's writes; what is under way arrives
	}
	return c.inner.SetWriteDeadline(t)
}

func (c *conn) LocalAddr() net.Addr  { return c.inner.LocalAddr() }
func (c *conn) RemoteAddr() net.Addr { return c.inner.RemoteAddr() }

func (c *conn) Close() error {
	c.end(net.ErrClosed)
	return nil
}

// end ends the connection with a cause. After a Close, unlike a loss, what is still
// under way in the delay line arrives.
func (c *conn) end(cause error) {
	c.once.Do(func() {
		c.cause = cause
		close(c.gone)
		c.reading.deadline.set(time.Time{}) // stops its timer
		c.writing.deadline.set(time.Time{})
		c.t.release(c)
		if l := c.existingLine(); l != nil && cause == net.ErrClosed {
			// The line closes the connection when it is empty, or late; the reader goes now.
			c.t.await(l)
			c.inner.SetReadDeadline(time.Unix(1, 0))
			c.inner.SetWriteDeadline(l.latest())
			return
		}
		c.inner.Close()
	})
}

// cursor walks over the bytes of several buffers.
type cursor struct {
	bufs   [][]byte
	offset int // in the first of them
}

// take appends the next n bytes to pieces, without copying them.
func (c *cursor) take(n int, pieces [][]byte) [][]byte {
	for n > 0 {
		b := c.bufs[0][c.offset:]
		if len(b) > n {
			c.offset += n
			return append(pieces, b[:n])
		}
		if len(b) > 0 {
			pieces = append(pieces, b)
		}
		n -= len(b)
		c.bufs, c.offset = c.bufs[1:], 0
	}
	return pieces
}
