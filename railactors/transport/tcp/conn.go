package tcp

import (
	"errors"
	"io"
	"net"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/polyrail/polyrail/railactors/transport"
)

const (
	// aheadSize is how many bytes a small read takes in beyond what was asked for: many
	// small frames then cost one system call.
	aheadSize = 16 << 10
	// smallRead is where a read stops being small.
	smallRead = 4 << 10
	// tailSize is what a large read takes in beyond its payload: the next frame's header,
	// but little of the next payload, which would have to be copied from here.
	tailSize = 512
	// lowWater is how much input a large read waits for at a time (SO_RCVLOWAT): on a slow rail
	// the kernel would otherwise wake the reader for each packet.
	lowWater = 128 << 10
	// maxVector is how many buffers go into one system call (IOV_MAX).
	maxVector = 1024
)

// conn implements transport.Conn on a descriptor. Its loops run inside
// syscall.RawConn.Read and Write, which park the goroutine when they return false and
// know about deadlines and Close. What the loops work on is kept here rather than
// in closures, which would be allocated anew for every call.
type conn struct {
	tcp    *net.TCPConn
	raw    syscall.RawConn
	closed atomic.Bool

	reader  reader
	awaiter awaiter
	writer  writer
}

var _ transport.Poller = (*conn)(nil)

func newConn(c *net.TCPConn) (*conn, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		c.Close()
		return nil, err
	}
	n := &conn{tcp: c, raw: raw}
	n.reader.loop = n.reader.fill
	n.reader.try = n.reader.attempt
	n.reader.look = n.reader.takeIn
	n.reader.reset = func(fd uintptr) { n.reader.setWater(int(fd), n.reader.base) }
	n.reader.base, n.reader.water = 1, 1
	n.awaiter.loop = n.awaiter.readable
	n.writer.loop = n.writer.drain
	return n, nil
}

// reader is the state of the one goroutine that reads.
type reader struct {
	loop  func(fd uintptr) bool
	try   func(fd uintptr) // loop without waiting
	look  func(fd uintptr)
	reset func(fd uintptr)

	ahead      [aheadSize]byte
	start, end int // the bytes at hand are ahead[start:end]

	// The call in progress; reads happen only while nothing is at hand.
	vector [2]unix.Iovec // what is left of the caller's slice, and room ahead
	full   bool          // nothing is left to do
	err    error
	short  bool // the last read got less than it had room for
	bulk   bool // the last one was large
	water  int  // what SO_RCVLOWAT is set to
	base   int  // what it is to be between two reads
}

// ReadFull fills p: first from what was read ahead, then straight from the socket.
func (c *conn) ReadFull(p []byte) (int, error) {
	r := &c.reader
	n := copy(p, r.ahead[r.start:r.end])
	r.start += n
	if n == len(p) {
		return n, nil
	}
	room := tailSize
	if len(p) < smallRead {
		room = aheadSize
	}
	r.start, r.end, r.bulk = 0, 0, len(p) >= smallRead
	r.vector = [2]unix.Iovec{vector(p[n:]), vector(r.ahead[:room])}
	r.err = nil
	// First without waiting: Await may have the descriptor for waiting. Where the last read has left
	// nothing and any input ends Await, there is nothing to do first.
	r.full = false
	var err error
	if !r.short || r.base > 1 {
		err = c.raw.Control(r.try)
	}
	if err == nil && !r.full {
		err = c.raw.Read(r.loop)
	}
	if err == nil {
		err = r.err
	}
	c.calm()
	n = len(p) - int(r.vector[0].Len)
	r.vector = [2]unix.Iovec{} // the caller's memory is held no longer
	if err == io.EOF && n > 0 {
		err = io.ErrUnexpectedEOF
	}
	return n, c.opError("read", err)
}

// fill reads until the caller's slice is full. It returns false to be called again when
// the socket is readable.
func (r *reader) fill(fd uintptr) bool {
	if r.drain(fd) {
		return true
	}
	r.await(int(fd), int(r.vector[0].Len))
	return false
}

// attempt is fill where there is nobody to wait. An Await that sleeps through input is to end with
// what the read waits for.
func (r *reader) attempt(fd uintptr) {
	r.full = !r.short && r.drain(fd)
	if !r.full && r.base > 1 {
		r.await(int(fd), int(r.vector[0].Len))
	}
}

// drain reads what there is, and reports whether that was all: the slice is full, or the stream has
// ended.
func (r *reader) drain(fd uintptr) bool {
	for r.vector[0].Len > 0 {
		room := int(r.vector[0].Len + r.vector[1].Len)
		n, err := readVec(int(fd), r.vector[:])
		afterRead()
		r.short = n < room
		switch {
		case n > 0:
			k := min(n, int(r.vector[0].Len))
			forward(&r.vector[0], k)
			r.end = n - k
		case err == nil:
			r.err = io.EOF
			return true
		case err == unix.EINTR:
		case err == unix.EAGAIN:
			return false
		default:
			r.err = err
			return true
		}
	}
	return true
}

// await has the kernel wake the reader when all of a small rest is there, or a good part of a
// large one.
func (r *reader) await(fd, rest int) {
	water := 1
	if rest >= smallRead {
		water = min(rest, lowWater)
	}
	r.setWater(fd, water)
}

func (r *reader) setWater(fd, water int) {
	// A system that can't do this wakes the reader more often.
	if water != r.water && setLowWater(fd, water) {
		r.water = water
	}
}

// Hush implements transport.Poller: what wakes is what a large read waits for.
func (c *conn) Hush(on bool) {
	c.reader.base = 1
	if on {
		c.reader.base = lowWater
	}
	c.calm()
}

// calm undoes await.
func (c *conn) calm() {
	if c.reader.water != c.reader.base {
		// An error means that the connection is closed.
		_ = c.raw.Control(c.reader.reset)
	}
}

// takeIn is Poll's read. After one large payload comes the next, of which little is to be copied
// from ahead.
func (r *reader) takeIn(fd uintptr) {
	room := r.ahead[:]
	if r.bulk {
		room, r.bulk = room[:tailSize], false
	}
	for {
		n, err := readInto(int(fd), room)
		afterRead()
		r.short = n < len(room)
		switch {
		case n > 0:
			r.start, r.end = 0, n
		case err == nil:
			r.err = io.EOF
		case err == unix.EINTR:
			continue
		case err != unix.EAGAIN:
			r.err = err
		}
		return
	}
}

// Poll implements transport.Poller.
func (c *conn) Poll() (int, error) {
	r := &c.reader
	if r.start < r.end {
		return r.end - r.start, nil
	}
	r.err = nil
	err := c.raw.Control(r.look)
	if err == nil {
		err = r.err
	}
	return r.end - r.start, c.opError("read", err)
}

// Drained implements transport.Poller.
func (c *conn) Drained() bool { return c.reader.short && c.Buffered() == 0 }

// awaiter is the state of the one goroutine that waits for input.
type awaiter struct {
	loop  func(fd uintptr) bool
	poll  unix.PollFd
	asked bool // the system was asked, and said no
}

// Await implements transport.Poller.
func (c *conn) Await() error {
	c.awaiter.asked = false
	return c.opError("read", c.raw.Read(c.awaiter.loop))
}

// readable asks once. After a wake-up there is input, unless somebody else has taken it.
func (a *awaiter) readable(fd uintptr) bool {
	if a.asked {
		return true
	}
	a.asked = true
	a.poll = unix.PollFd{Fd: int32(fd), Events: unix.POLLIN}
	return hasInput(&a.poll)
}

func (c *conn) Buffered() int { return c.reader.end - c.reader.start }

// writer is the state of the one goroutine that writes.
type writer struct {
	loop func(fd uintptr) bool

	// The call in progress.
	all  []unix.Iovec // no empty ones
	left []unix.Iovec // those of all that were not written yet
	sent int64
	wait bool
	err  error
}

func (c *conn) Write(bufs ...[]byte) (int64, error)    { return c.write(bufs, true) }
func (c *conn) TryWrite(bufs ...[]byte) (int64, error) { return c.write(bufs, false) }

func (c *conn) write(bufs [][]byte, wait bool) (int64, error) {
	w := &c.writer
	w.all = w.all[:0]
	for _, b := range bufs {
		if len(b) > 0 {
			w.all = append(w.all, vector(b))
		}
	}
	if len(w.all) == 0 {
		return 0, nil
	}
	w.left, w.sent, w.wait, w.err = w.all, 0, wait, nil
	err := c.raw.Write(w.loop)
	if err == nil {
		err = w.err
	}
	clear(w.all) // the caller's memory is held no longer
	return w.sent, c.opError("write", err)
}

// drain writes what is left. It returns false to be called again when the socket is writable.
func (w *writer) drain(fd uintptr) bool {
	for len(w.left) > 0 {
		beforeWrite()
		n, err := writeVec(int(fd), w.left[:min(len(w.left), maxVector)])
		switch {
		case n > 0:
			w.advance(n)
		case err == unix.EINTR:
		case err == unix.EAGAIN:
			return !w.wait
		case err != nil:
			w.err = err
			return true
		}
	}
	return true
}

func (w *writer) advance(n int) {
	w.sent += int64(n)
	for n > 0 && n >= int(w.left[0].Len) {
		n -= int(w.left[0].Len)
		w.left = w.left[1:]
	}
	if n > 0 {
		forward(&w.left[0], n)
	}
}

// vector is a slice as the kernel sees it.
func vector(b []byte) unix.Iovec {
	v := unix.Iovec{Base: unsafe.SliceData(b)}
	v.SetLen(len(b))
	return v
}

// forward takes n bytes, at most all, off the front.
func forward(v *unix.Iovec, n int) { *v = vector(unsafe.Slice(v.Base, v.Len)[n:]) }

func (c *conn) SetReadDeadline(t time.Time) error  { return c.tcp.SetReadDeadline(t) }
func (c *conn) SetWriteDeadline(t time.Time) error { return c.tcp.SetWriteDeadline(t) }
func (c *conn) LocalAddr() net.Addr                { return c.tcp.LocalAddr() }
func (c *conn) RemoteAddr() net.Addr               { return c.tcp.RemoteAddr() }

func (c *conn) Close() error {
	if c.closed.Swap(true) {
		return nil
	}
	return c.tcp.Close()
}

// opError names the connection in an error, except for the ends of a stream, which
// callers compare with ==.
func (c *conn) opError(op string, err error) error {
	if err == nil || err == io.EOF || err == io.ErrUnexpectedEOF {
		return err
	}
	// RawConn wraps what it says itself, as "raw-read".
	if wrapped := (*net.OpError)(nil); errors.As(err, &wrapped) {
		err = wrapped.Err
	}
	return &net.OpError{Op: op, Net: "tcp", Source: c.LocalAddr(), Addr: c.RemoteAddr(), Err: err}
}
