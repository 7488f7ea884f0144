package shm

import (
	"io"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/polyrail/polyrail/railactors/transport"
)

// conn is one end of a connection. It implements transport.Conn, transport.Poller, transport.Lender and
// transport.Viewer.
type conn struct {
	device        *device
	local, remote Addr
	mine, others  *segment
	view          *transport.Memory // what the other process shows; nil: nothing
	bells         *bells
	gone          atomic.Bool // the other end is: what it has published is all that comes
	closed        atomic.Bool

	input      side
	source     source
	inputBell  doorbell
	reading    waiter // who is in ReadFull
	readBefore deadline
	awaiting   awaiting
	hasInput   func() bool

	output      side
	sink        sink
	roomBell    doorbell
	writing     waiter
	writeBefore deadline
	hasRoom     func() bool
}

var (
	_ transport.Poller = (*conn)(nil)
	_ transport.Lender = (*conn)(nil)
	_ transport.Viewer = (*conn)(nil)
)

// awaiting is the goroutine in Await. Guarded by mu.
type awaiting struct {
	waiter
	mu     sync.Mutex
	parked bool
	hushed atomic.Bool // changed under mu
}

// newConn makes an end of what was agreed on. It owns all memory and the socket.
func newConn(d *device, mine *segment, o others, b *bells, local Addr) *conn {
	c := &conn{device: d, local: local, remote: Addr(o.name), mine: mine, others: o.ring, bells: b,
		reading: newWaiter(), awaiting: awaiting{waiter: newWaiter()}, writing: newWaiter()}
	if o.shown != nil {
		c.view = transport.NewMemory(o.shown.memory, o.shown.unmap)
	}
	ours, theirs := mine.control(), o.ring.control()
	c.source = source{data: o.ring.ring(), ours: ours, theirs: theirs}
	c.sink = sink{data: mine.ring(), ours: ours, theirs: theirs}
	c.inputBell.number, c.roomBell.number = &ours.inputBell, &ours.roomBell
	c.hasInput = func() bool { return c.source.ready() || c.ended() }
	c.hasRoom = func() bool {
		n, err := c.sink.room()
		return n > 0 || err != nil || c.ended()
	}
	go c.listen()
	return c
}

func (c *conn) ended() bool { return c.gone.Load() || c.closed.Load() }

// listen passes on what the other end says. It ends with the socket.
func (c *conn) listen() {
	// However it ended: what the other end has published can still be read.
	_ = c.bells.listen(func(input, room, shown bool) {
		if input {
			c.reading.wake()
			c.awaiting.wake()
		}
		if room {
			c.writing.wake()
		}
		if shown {
			c.device.knocked.wake()
		}
	})
	c.gone.Store(true)
	c.wakeAll()
	c.device.knocked.wake() // it may not have heard the last one
}

func (c *conn) wakeAll() {
	c.reading.wake()
	c.awaiting.wake()
	c.writing.wake()
}

// View implements transport.Viewer.
func (c *conn) View() *transport.Memory {
	if c.view == nil || !c.enter(&c.input) {
		return nil
	}
	defer c.leave(&c.input)
	c.view.Hold()
	return c.view
}

// Knock implements transport.Viewer.
func (c *conn) Knock() bool { return c.bells.knock() }

// ReadFull implements transport.Conn.
func (c *conn) ReadFull(p []byte) (int, error) { return c.read(len(p), p, nil) }

// Lend implements transport.Lender.
func (c *conn) Lend(n int, to transport.Borrower) (int, error) { return c.read(n, nil, to) }

// read takes n bytes: to a borrower, or else into p.
func (c *conn) read(bytes int, p []byte, to transport.Borrower) (n int, err error) {
	if bytes == 0 {
		return 0, nil
	}
	if !c.enter(&c.input) {
		return 0, c.wrap("read", net.ErrClosed)
	}
	defer c.leave(&c.input)
	for {
		over := c.gone.Load() // before looking: what was published until then is seen
		k, err := c.take(bytes-n, p, to)
		if n += k; err != nil || n == bytes {
			return n, c.wrap("read", err)
		}
		if to == nil {
			p = p[k:]
		}
		switch {
		case c.closed.Load():
			return n, c.wrap("read", net.ErrClosed)
		case over && n > 0:
			return n, io.ErrUnexpectedEOF
		case over:
			return 0, io.EOF
		}
		if err := c.awaitInput(); err != nil {
			return n, c.wrap("read", err)
		}
	}
}

// take takes what there is of so many bytes, in pieces, so that the other end can go on meanwhile.
func (c *conn) take(bytes int, p []byte, to transport.Borrower) (n int, err error) {
	whole := len(c.source.data) / piecesPerRing
	for n < bytes {
		there, err := c.source.look()
		if there == 0 || err != nil {
			return n, err
		}
		afterTake()
		piece := c.source.next(min(whole, bytes-n))
		if to != nil {
			to.Borrow(piece)
		} else {
			copyBytes(p[n:], piece)
		}
		n += len(piece)
		c.source.giveBack(len(piece))
		if c.source.free() >= whole {
			c.bells.wake(&c.bells.room, &c.source.theirs.roomBell)
		}
	}
	return n, nil
}

// awaitInput waits for input, or the end, or the deadline.
func (c *conn) awaitInput() error {
	if err := c.readBefore.check(); err != nil {
		return err
	}
	if spin(c.hasInput) {
		return nil
	}
	c.inputBell.await(true)
	defer c.inputBell.done()
	for !c.hasInput() {
		if err := c.readBefore.check(); err != nil {
			return err
		}
		<-c.reading.woken
		c.inputBell.await(false)
	}
	return nil
}

// Buffered implements transport.Conn.
func (c *conn) Buffered() int {
	n, _ := c.buffered()
	return n
}

func (c *conn) buffered() (int, error) {
	if !c.enter(&c.input) {
		return 0, net.ErrClosed
	}
	defer c.leave(&c.input)
	return c.source.look()
}

// Poll implements transport.Poller.
func (c *conn) Poll() (int, error) {
	over := c.gone.Load()
	n, err := c.buffered()
	if err == nil && n == 0 && over {
		err = io.EOF
	}
	return n, c.wrap("read", err)
}

// Drained implements transport.Poller.
func (c *conn) Drained() bool { return c.Buffered() == 0 }

// Await implements transport.Poller.
func (c *conn) Await() error {
	if !c.enter(&c.input) {
		return c.wrap("read", net.ErrClosed)
	}
	defer c.leave(&c.input)
	a := &c.awaiting
	if !a.hushed.Load() && c.device.spins.CompareAndSwap(false, true) { // one goroutine of the process is enough
		found := spin(c.awaited)
		c.device.spins.Store(false)
		if found {
			return nil
		}
	}
	a.mu.Lock()
	a.parked = true
	if !a.hushed.Load() {
		c.inputBell.await(true)
	}
	a.mu.Unlock()
	for !c.awaited() {
		<-a.woken
		a.mu.Lock()
		if !a.hushed.Load() {
			c.inputBell.await(false)
		}
		a.mu.Unlock()
	}
	a.mu.Lock()
	a.parked = false
	if !a.hushed.Load() {
		c.inputBell.done()
	}
	a.mu.Unlock()
	return nil
}

// awaited reports whether Await is to end.
func (c *conn) awaited() bool {
	return c.ended() || !c.awaiting.hushed.Load() && c.source.ready()
}

// Hush implements transport.Poller.
func (c *conn) Hush(on bool) {
	a := &c.awaiting
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.hushed.Swap(on) == on {
		return
	}
	switch {
	case !a.parked:
	case on:
		c.inputBell.done()
	default:
		c.inputBell.await(true)
		if c.source.ready() {
			a.wake()
		}
	}
}

// Write implements transport.Conn.
func (c *conn) Write(bufs ...[]byte) (int64, error) { return c.write(bufs, true) }

// TryWrite implements transport.Conn.
func (c *conn) TryWrite(bufs ...[]byte) (int64, error) { return c.write(bufs, false) }

// piecesPerRing is in how many pieces a ring is filled and emptied: the two ends work at the same
// time.
const piecesPerRing = 8

func (c *conn) write(bufs [][]byte, wait bool) (n int64, err error) {
	if !c.enter(&c.output) {
		return 0, c.wrap("write", net.ErrClosed)
	}
	defer c.leave(&c.output)
	piece, unpublished := len(c.sink.data)/piecesPerRing, 0
	for _, buf := range bufs {
		for len(buf) > 0 {
			if c.ended() {
				return n, c.wrap("write", c.whyEnded())
			}
			room, err := c.sink.room()
			if err != nil {
				return n, c.wrap("write", err)
			}
			k := min(room, len(buf), piece-unpublished)
			c.sink.put(buf[:k])
			buf, n, unpublished = buf[k:], n+int64(k), unpublished+k
			if unpublished == piece || room == k {
				c.publish(unpublished)
				unpublished = 0
			}
			if k > 0 {
				continue
			}
			if err := c.awaitRoom(wait); err != nil || !wait {
				return n, c.wrap("write", err)
			}
		}
	}
	c.publish(unpublished)
	return n, nil
}

// publish shows the other end the last bytes that were put.
func (c *conn) publish(bytes int) {
	if bytes == 0 {
		return
	}
	beforePublish()
	c.sink.publish()
	c.bells.wake(&c.bells.input, &c.sink.theirs.inputBell)
}

func (c *conn) whyEnded() error {
	if c.closed.Load() {
		return net.ErrClosed
	}
	return syscall.EPIPE
}

// awaitRoom waits for room, or the end, or the deadline, if it is to wait.
func (c *conn) awaitRoom(wait bool) error {
	if err := c.writeBefore.check(); err != nil || !wait {
		return err
	}
	if spin(c.hasRoom) {
		return nil
	}
	c.roomBell.await(true)
	defer c.roomBell.done()
	for !c.hasRoom() {
		if err := c.writeBefore.check(); err != nil {
			return err
		}
		<-c.writing.woken
		c.roomBell.await(false)
	}
	return nil
}

// SetReadDeadline implements transport.Conn.
func (c *conn) SetReadDeadline(t time.Time) error { return c.limit(&c.readBefore, t, &c.reading) }

// SetWriteDeadline implements transport.Conn.
func (c *conn) SetWriteDeadline(t time.Time) error { return c.limit(&c.writeBefore, t, &c.writing) }

func (c *conn) limit(d *deadline, t time.Time, w *waiter) error {
	if c.closed.Load() {
		return c.wrap("set", net.ErrClosed)
	}
	d.set(t, w)
	return nil
}

// LocalAddr implements transport.Conn.
func (c *conn) LocalAddr() net.Addr { return c.local }

// RemoteAddr implements transport.Conn.
func (c *conn) RemoteAddr() net.Addr { return c.remote }

// Close implements transport.Conn.
func (c *conn) Close() error {
	if c.closed.Swap(true) {
		return nil
	}
	err := c.bells.socket.Close()
	<-c.bells.done
	c.wakeAll()
	c.readBefore.set(time.Time{}, &c.reading)
	c.writeBefore.set(time.Time{}, &c.writing)
	c.input.close()
	c.output.close()
	c.release()
	return err
}

// enter begins a use of the memory, if the connection isn't closed. It ends with leave.
func (c *conn) enter(s *side) bool {
	if s.enter() {
		return true
	}
	c.leave(s)
	return false
}

// leave is the end of a use of the memory.
func (c *conn) leave(s *side) {
	if s.leave() {
		c.release()
	}
}

// release unmaps the memory once nobody uses it.
func (c *conn) release() {
	if c.input.unused() && c.output.unused() && c.device.forget(c) {
		c.mine.release()
		c.others.release()
		if c.view != nil {
			c.view.Release()
		}
	}
}

// wrap names the connection in an error, except for the ends of a stream, which callers
// compare with ==.
func (c *conn) wrap(op string, err error) error {
	if err == nil || err == io.EOF || err == io.ErrUnexpectedEOF {
		return err
	}
	return &net.OpError{Op: op, Net: Protocol, Source: c.local, Addr: c.remote, Err: err}
}

// side counts those who use a connection's memory, so that it isn't unmapped under them. Reading
// and writing side have one each: they run on different cores.
type side struct {
	users atomic.Int64 // twice their number, and 1 when closed
	_     [120]byte
}

// enter reports whether the memory may be used. In either case leave follows.
func (s *side) enter() bool { return s.users.Add(2)&1 == 0 }

// leave reports whether that was the last one of a closed side.
func (s *side) leave() bool { return s.users.Add(-2) == 1 }

func (s *side) close()       { s.users.Or(1) }
func (s *side) unused() bool { return s.users.Load() == 1 }
