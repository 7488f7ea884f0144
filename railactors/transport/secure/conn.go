package secure

import (
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/polyrail/polyrail/railactors/transport"
	"github.com/polyrail/polyrail/railactors/transport/secure/keys"
)

// conn seals what is written and opens what is read. The first read or write makes the handshake. The
// reader and the writer each own their half.
type conn struct {
	inner  transport.Conn
	shake  handshake
	dialed bool

	once  sync.Once
	ready atomic.Bool   // the handshake went well
	err   error         // why it did not; once is done
	peer  keys.Identity // whose certificate the other side has shown; none without keys
	plain bool          // the other side speaks plain text: it can be told so

	forged atomic.Pointer[error] // what came is not authentic; nothing is read any more
	in     opening
	out    sealing
}

func newConn(inner transport.Conn, shake handshake, dialed bool) *conn {
	return &conn{inner: inner, shake: shake, dialed: dialed}
}

// begin makes the handshake, once.
func (c *conn) begin() error {
	c.once.Do(func() {
		if c.err = c.shake(c); c.err == nil {
			c.ready.Store(true)
		}
	})
	return c.err
}

// Identity implements transport.Authenticated.
func (c *conn) Identity() (node string, ok bool) {
	if !c.ready.Load() {
		return "", false
	}
	return c.peer.Node, c.peer.Node != ""
}

// ReadFull opens records, straight into p where all of one fits.
func (c *conn) ReadFull(p []byte) (n int, err error) {
	if !c.ready.Load() {
		if err := c.begin(); err != nil {
			return 0, err
		}
	}
	r := &c.in
	for n < len(p) {
		if len(r.text) > 0 {
			k := copy(p[n:], r.text)
			r.text = r.text[k:]
			n += k
			continue
		}
		if err := c.receive(); err != nil {
			if err == io.EOF && (n > 0 || r.got > 0) {
				err = io.ErrUnexpectedEOF
			}
			return n, err
		}
		var dst []byte
		size := r.size()
		if size <= len(p)-n {
			dst = p[n : n : n+size]
		}
		if err := c.open(dst); err != nil {
			return n, err
		}
		if dst != nil {
			r.text = nil
			n += size
		}
	}
	return n, nil
}

// receive reads what is missing of the next record.
func (c *conn) receive() error {
	for r := &c.in; ; {
		want, err := c.wanted()
		if err != nil || want == 0 {
			return err
		}
		k, err := c.inner.ReadFull(r.buf[r.got : r.got+want])
		r.got += k
		if err != nil {
			return err
		}
	}
}

// wanted is how many bytes are missing of the part of the record that is known of; 0: none.
func (c *conn) wanted() (int, error) {
	if err := c.forged.Load(); err != nil {
		return 0, *err
	}
	want, err := c.in.wanted()
	if err != nil {
		err = c.end(err)
	}
	return want, err
}

// open opens the record into dst, or where it is if dst is nil.
func (c *conn) open(dst []byte) error {
	if err := c.in.open(dst); err != nil {
		return c.end(err)
	}
	return nil
}

// end closes the connection: what was read is not what the other side has written, and whoever waits
// for input must hear of it.
func (c *conn) end(err error) error {
	c.forged.Store(&err)
	c.inner.Close()
	return err
}

// Buffered is what was opened, and not read.
func (c *conn) Buffered() int { return len(c.in.text) }

func (c *conn) Write(bufs ...[]byte) (int64, error)    { return c.write(bufs, true) }
func (c *conn) TryWrite(bufs ...[]byte) (int64, error) { return c.write(bufs, false) }

// write seals the buffers and writes them. What was sealed and could not be written is kept, and not
// reported as handed over: the caller goes on with the same bytes, as on any stream, and they are not
// sealed a second time.
func (c *conn) write(bufs [][]byte, wait bool) (sent int64, err error) {
	if !c.ready.Load() {
		if err := c.begin(); err != nil {
			if c.plain && !c.dialed { // so that who dialed is told
				return c.pass(bufs, wait)
			}
			return 0, err
		}
	}
	total := int64(0)
	for _, b := range bufs {
		total += int64(len(b))
	}
	if total == 0 {
		return 0, nil
	}
	w := &c.out
	skip := w.text // sealed before
	n, err := c.flush(wait)
	if sent = n; err != nil || w.pending() {
		return sent, err
	}
	for _, b := range bufs {
		k := min(skip, len(b))
		skip -= k
		for b = b[k:]; len(b) > 0; {
			k, err := w.take(b)
			if err != nil {
				return sent, err
			}
			if b = b[k:]; !w.full() {
				continue
			}
			n, err := c.flush(wait)
			if sent += n; err != nil || w.pending() {
				return sent, err
			}
		}
	}
	n, err = c.flush(wait)
	return sent + n, err
}

func (c *conn) pass(bufs [][]byte, wait bool) (int64, error) {
	if wait {
		return c.inner.Write(bufs...)
	}
	return c.inner.TryWrite(bufs...)
}

// flush writes what is sealed. It returns how many bytes of the caller's that were: none before all
// of it went.
func (c *conn) flush(wait bool) (text int64, err error) {
	w := &c.out
	if err := w.shared(); err != nil {
		return 0, err
	}
	if len(w.rest) > 0 {
		w.one[0] = w.rest
		n, err := c.pass(w.one[:], wait)
		w.rest = w.rest[n:]
		if len(w.rest) > 0 {
			return 0, err
		}
		w.buf = w.buf[:0]
	}
	text, w.text = int64(w.text), 0
	return text, nil
}

// Progress is the inner connection's, if it has any.
func (c *conn) Progress() (transport.Progress, bool) {
	if p, ok := c.inner.(transport.Confirmer); ok {
		return p.Progress()
	}
	return transport.Progress{}, false
}

func (c *conn) SetReadDeadline(t time.Time) error  { return c.inner.SetReadDeadline(t) }
func (c *conn) SetWriteDeadline(t time.Time) error { return c.inner.SetWriteDeadline(t) }
func (c *conn) LocalAddr() net.Addr                { return c.inner.LocalAddr() }
func (c *conn) RemoteAddr() net.Addr               { return c.inner.RemoteAddr() }
func (c *conn) Close() error                       { return c.inner.Close() }

// pollConn is a conn whose inner connection can be polled.
type pollConn struct {
	*conn
	poller transport.Poller
}

var errUnproven = errors.New("polled before the handshake")

// Await implements transport.Poller: Poll has left nothing behind that is a whole record.
func (c *pollConn) Await() error {
	err := c.poller.Await()
	if forged := c.forged.Load(); forged != nil {
		return *forged
	}
	return err
}

// Poll takes in what there is of the next record, and opens it when it is whole.
func (c *pollConn) Poll() (int, error) {
	if !c.ready.Load() {
		return 0, errUnproven
	}
	r := &c.in
	for len(r.text) == 0 {
		want, err := c.wanted()
		if err == nil && want == 0 {
			if err = c.open(nil); err == nil {
				break
			}
		}
		if err != nil {
			return 0, err
		}
		n, err := c.poller.Poll()
		if n == 0 {
			return 0, err
		}
		k, err := c.inner.ReadFull(r.buf[r.got : r.got+min(n, want)])
		r.got += k
		if err != nil {
			return 0, err
		}
	}
	return len(r.text), nil
}

// Drained implements transport.Poller.
func (c *pollConn) Drained() bool { return len(c.in.text) == 0 && c.poller.Drained() }

// Hush implements transport.Poller.
func (c *pollConn) Hush(on bool) { c.poller.Hush(on) }
