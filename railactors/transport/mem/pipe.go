package mem

import (
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/polyrail/polyrail/railactors/transport"
)

// Bytes that one direction of a connection holds: like a socket's buffer it starts
// small and doubles up to the limit.
const (
	firstBuffer = 4 << 10
	maxBuffer   = 256 << 10
)

// pipe is one direction of a connection: a bounded ring of bytes with a reader's end
// and a writer's end.
type pipe struct {
	mu       sync.Mutex
	readable sync.Cond // something changed for the reader
	writable sync.Cond // something changed for the writer

	buf        []byte // ring; grows to maxBuffer
	head, size int    // first unread byte, unread bytes

	held         bool // the network is silent: neither further bytes nor ends pass
	written      uint64
	acked        uint64    // of written, what a host at the other end would have confirmed
	ackedAt      time.Time // when it did
	blocked      int       // writers that wait for room
	holders      [2]*atomic.Int64
	wasReset     bool
	readerClosed bool
	writerClosed bool
	readExpired  deadline
	writeExpired deadline
}

func newPipe() *pipe {
	p := &pipe{buf: make([]byte, firstBuffer)}
	p.readable.L = &p.mu
	p.writable.L = &p.mu
	return p
}

// deadline is guarded by its pipe's mutex; generation fences a timer that fired late.
type deadline struct {
	expired    bool
	generation int
	timer      *time.Timer
}

func (p *pipe) setDeadline(d *deadline, wake *sync.Cond, t time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	d.generation++
	if d.timer != nil {
		d.timer.Stop()
		d.timer = nil
	}
	d.expired = false
	if t.IsZero() {
		return
	}
	left := time.Until(t)
	if left <= 0 {
		d.expired = true
		wake.Broadcast()
		return
	}
	generation := d.generation
	d.timer = time.AfterFunc(left, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if d.generation == generation {
			d.expired = true
			wake.Broadcast()
		}
	})
}

func (p *pipe) setReadDeadline(t time.Time)  { p.setDeadline(&p.readExpired, &p.readable, t) }
func (p *pipe) setWriteDeadline(t time.Time) { p.setDeadline(&p.writeExpired, &p.writable, t) }

// readFull fills b. At the end of the stream it returns io.EOF, or
// io.ErrUnexpectedEOF when a part of b was read.
func (p *pipe) readFull(b []byte) (n int, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for n < len(b) {
		switch {
		case p.readerClosed:
			return n, net.ErrClosed
		case p.readExpired.expired:
			return n, os.ErrDeadlineExceeded
		case p.held && p.arrived() > 0:
			n += p.take(b[n:min(len(b), n+p.arrived())])
			p.writable.Broadcast()
		case p.held:
			p.readable.Wait()
		case p.wasReset:
			return n, syscall.ECONNRESET
		case p.size > 0:
			n += p.take(b[n:])
			p.writable.Broadcast()
		case p.writerClosed && n > 0:
			return n, io.ErrUnexpectedEOF
		case p.writerClosed:
			return n, io.EOF
		default:
			p.readable.Wait()
		}
	}
	return n, nil
}

// write puts the buffers in, waiting for room if wait is set.
func (p *pipe) write(bufs [][]byte, wait bool) (n int64, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.held {
		for _, h := range p.holders {
			h.Add(1)
		}
	}
	for _, b := range bufs {
		for len(b) > 0 {
			switch {
			case p.writerClosed:
				return n, net.ErrClosed
			case p.writeExpired.expired:
				return n, os.ErrDeadlineExceeded
			case p.wasReset:
				return n, syscall.ECONNRESET
			case p.readerClosed && !p.held:
				return n, syscall.EPIPE
			case p.size < maxBuffer:
				k := p.put(b)
				b = b[k:]
				n += int64(k)
				p.written += uint64(k)
				if !p.held {
					p.ack()
				}
				p.readable.Broadcast()
			case !wait:
				return n, nil
			default:
				p.blocked++
				p.writable.Wait()
				p.blocked--
			}
		}
	}
	return n, nil
}

// take moves bytes out of the ring into b.
func (p *pipe) take(b []byte) int {
	n := copy(b, p.buf[p.head:min(p.head+p.size, len(p.buf))])
	if n < len(b) && n < p.size {
		n += copy(b[n:], p.buf[:p.size-n])
	}
	p.head = (p.head + n) % len(p.buf)
	p.size -= n
	return n
}

// put moves bytes of b into the ring, which grows if it must and may.
func (p *pipe) put(b []byte) int {
	if room := len(p.buf) - p.size; room < len(b) && len(p.buf) < maxBuffer {
		p.grow(p.size + len(b))
	}
	n := min(len(b), len(p.buf)-p.size)
	tail := (p.head + p.size) % len(p.buf)
	k := copy(p.buf[tail:min(tail+n, len(p.buf))], b[:n])
	copy(p.buf, b[k:n])
	p.size += n
	return n
}

func (p *pipe) grow(want int) {
	capacity := len(p.buf)
	for capacity < min(want, maxBuffer) {
		capacity *= 2
	}
	size, bigger := p.size, make([]byte, capacity)
	p.take(bigger[:size])
	p.buf, p.head, p.size = bigger, 0, size
}

func (p *pipe) buffered() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.wasReset || p.readerClosed {
		return 0
	}
	return p.arrived()
}

// arrived are the unread bytes that the reader's host has, and has confirmed: no silence keeps
// those from the reader.
func (p *pipe) arrived() int { return p.size - int(p.written-p.acked) }

func (p *pipe) hold(held bool) {
	p.change(func() {
		if held != p.held {
			p.ack() // all until now, or all that waited
		}
		p.held = held
	})
}

// ack: the other host, whose buffer this is, confirms what it holds.
func (p *pipe) ack() { p.acked, p.ackedAt = p.written, time.Now() }

// progress is the writer's. A reader that takes its time confirms by its host; silence doesn't,
// and doesn't answer the probes of a writer without room either.
func (p *pipe) progress() transport.Progress {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := transport.Progress{Awaiting: p.held && (p.written > p.acked || p.blocked > 0), Acked: p.acked}
	if p.held {
		s.LastAck = time.Since(p.ackedAt)
	}
	return s
}

func (p *pipe) reset()       { p.change(func() { p.wasReset = true }) }
func (p *pipe) closeReader() { p.change(func() { p.readerClosed = true; p.stopTimer(&p.readExpired) }) }
func (p *pipe) closeWriter() {
	p.change(func() { p.writerClosed = true; p.stopTimer(&p.writeExpired) })
}

func (p *pipe) stopTimer(d *deadline) {
	d.generation++
	if d.timer != nil {
		d.timer.Stop()
	}
}

func (p *pipe) change(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f()
	p.readable.Broadcast()
	p.writable.Broadcast()
}
