package mem

import (
	"errors"
	"io"
	"net"
	"sync/atomic"
	"time"

	"github.com/polyrail/polyrail/railactors/transport"
)

// conn is one end of a connection. It implements transport.Conn.
type conn struct {
	device        *device // this end's
	peer          *conn
	dialed        bool
	local, remote Addr
	in, out       *pipe // out is the peer's in
	closed        atomic.Bool
}

// newConnPair makes both ends; the dialing one has an address of its own, the accepting
// one that of its device.
func newConnPair(from, to *device, source Addr) (near, far *conn) {
	there, back := newPipe(), newPipe()
	near = &conn{device: from, dialed: true, local: source, remote: to.addr, in: back, out: there}
	far = &conn{device: to, local: to.addr, remote: source, in: there, out: back}
	near.peer, far.peer = far, near
	return near, far
}

func (c *conn) ReadFull(p []byte) (int, error) {
	n, err := c.in.readFull(p)
	return n, c.wrap("read", err)
}

func (c *conn) Buffered() int { return c.in.buffered() }

func (c *conn) Write(bufs ...[]byte) (int64, error) {
	n, err := c.out.write(bufs, true)
	return n, c.wrap("write", err)
}

func (c *conn) TryWrite(bufs ...[]byte) (int64, error) {
	n, err := c.out.write(bufs, false)
	return n, c.wrap("write", err)
}

// Progress implements transport.Confirmer.
func (c *conn) Progress() (transport.Progress, bool) { return c.out.progress(), !c.closed.Load() }

func (c *conn) SetReadDeadline(t time.Time) error {
	if c.closed.Load() {
		return c.wrap("set", net.ErrClosed)
	}
	c.in.setReadDeadline(t)
	return nil
}

func (c *conn) SetWriteDeadline(t time.Time) error {
	if c.closed.Load() {
		return c.wrap("set", net.ErrClosed)
	}
	c.out.setWriteDeadline(t)
	return nil
}

func (c *conn) LocalAddr() net.Addr  { return c.local }
func (c *conn) RemoteAddr() net.Addr { return c.remote }

func (c *conn) Close() error {
	if c.closed.Swap(true) {
		return nil
	}
	c.in.closeReader()
	c.out.closeWriter()
	c.device.network.forget(c)
	return nil
}

// wrap names the connection in an error, except for the ends of a stream, which callers
// compare with ==.
func (c *conn) wrap(op string, err error) error {
	if err == nil || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return err
	}
	return opError(op, c.local, c.remote, err)
}
