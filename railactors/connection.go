package railactors

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/polyrail/polyrail/messages/wire"
	"github.com/polyrail/polyrail/railactors/transport"
)

var (
	errClosedByPeer = errors.New("the other node closed this generation")
	errPairStopped  = errors.New("the pair's actor stopped")
)

// urgency is a set of frames without number and payload that are to be sent.
type urgency uint8

const (
	urgentAck urgency = 1 << iota
	urgentPing
	urgentPong
	urgentFarewell // nothing follows it
)

// connection is one generation of a pair. Its reader and its writer goroutine end with it.
//
// The writing side has one owner at a time: the one that set writing. That is the
// writer goroutine, or whoever pumps a small frame inline without blocking.
type connection struct {
	peer       *Peer
	rail       int
	generation uint64
	conn       transport.Conn
	reader     *reader
	born       time.Time
	inline     int           // a frame up to this is written by whoever sends it
	wake       chan struct{} // capacity 1: there may be something to write
	done       chan struct{} // closed when open becomes false
	ackTimer   *time.Timer

	// Guarded by peer.mu.
	open    bool
	err     error
	holders int // reader, writer, and who pumps: they may hold memory
	writing bool
	hurried bool // a write deadline is set, because of a revocation
	urgent  urgency
	landing landing

	// The owner's of the writing side.
	headers [maxBatchFrames][wire.Size]byte
	bufs    [][]byte // what is to be written
	rest    [][]byte // what an inline write left to the writer goroutine; its memory is that of bufs
}

// connected puts a fresh connection into use, or closes it where the generation is of the past or
// the rail has one: vacate has waited for its end. It is called on a goroutine that the fabric
// counts.
func (p *Peer) connected(rail int, generation uint64, conn transport.Conn) error {
	c := &connection{peer: p, rail: rail, generation: generation, conn: conn, born: time.Now(), inline: inlineBytes, open: true, holders: 2,
		wake: make(chan struct{}, 1), done: make(chan struct{}), bufs: make([][]byte, 0, 2*maxBatchFrames)}
	c.reader = &reader{connection: c, next: 1, batch: Batch{conn: conn}}
	c.reader.poller, _ = conn.(transport.Poller)
	c.reader.lender, _ = conn.(transport.Lender)
	if rail == p.fabric.memory {
		c.inline = memoryInline
	}
	fx := newEffects()
	p.mu.Lock()
	if err := p.cause; err != nil || !p.core.Connected(rail, generation, &fx.Effects) {
		p.unlock(fx)
		conn.Close()
		return cmp.Or(err, fmt.Errorf("generation %d is of the past, or the rail is connected", generation))
	}
	c.ackTimer = time.AfterFunc(time.Hour, c.ackDue)
	c.ackTimer.Stop()
	p.conns[rail] = c
	p.view(conn)
	if c.reader.poller != nil {
		p.pollable[rail].Store(c)
	}
	p.attempts[rail] = nil
	p.unquiet++
	p.live.Connected(rail)
	p.silence.Reset(rail)
	p.forgive(rail)
	p.signals[rail].heard.Store(int64(p.fabric.now()))
	if p.met.Has(rail) {
		p.fabric.rails[rail].reconnects.Add(1)
	}
	if p.met == 0 {
		p.fabric.lastMet.Store(int64(p.fabric.now()))
	}
	p.met.Add(rail)
	p.predecessor = nil
	p.nearReady()
	p.fabric.rails[rail].astray.Store(nil)
	p.fabric.group.Go(c.read)
	p.fabric.group.Go(c.write)
	p.unlock(fx)
	p.tellPair(rail, &connectionUp{conn: c})
	return nil
}

// fail closes the connection. Only the first reason counts.
func (c *connection) fail(err error) {
	fx := newEffects()
	c.peer.mu.Lock()
	c.failLocked(err, fx)
	c.peer.unlock(fx)
}

func (c *connection) failLocked(err error, fx *effects) {
	if !c.open {
		return
	}
	p := c.peer
	c.open, c.err = false, err
	close(c.done)
	c.ackTimer.Stop()
	p.conns[c.rail] = nil
	p.pollable[c.rail].Store(nil)
	p.attempts[c.rail] = err
	p.live.Disconnected(c.rail)
	p.silence.Reset(c.rail)
	p.core.Down(c.rail, c.generation, &fx.Effects)
	fx.failed = append(fx.failed, c)
}

// letGo: a goroutine that could hold memory through this connection doesn't any more.
func (c *connection) letGo(fx *effects) {
	if c.holders--; c.holders > 0 {
		return
	}
	c.peer.unquiet--
	c.peer.core.Quiesced(c.rail, c.generation, &fx.Effects)
	c.peer.quieter(fx)
}

// hurry limits how long the write in progress may go on.
func (c *connection) hurry() {
	if c.writing && !c.hurried {
		c.hurried = c.conn.SetWriteDeadline(time.Now().Add(revokeGrace)) == nil
	}
}

// ackDue runs when the acknowledgement timer does.
func (c *connection) ackDue() {
	fx := newEffects()
	c.peer.mu.Lock()
	c.peer.core.AckTimer(c.rail, c.generation, &fx.Effects)
	c.peer.unlock(fx)
}

// fill numbers and encodes what goes next, up to about limit bytes; the first frame may be
// larger unless small is set. It returns the bytes in bufs. The caller holds mu, and then
// owns the writing side.
func (c *connection) fill(limit int, small bool) (total int) {
	p := c.peer
	now := p.fabric.now()
	p.at(now)
	c.bufs = c.bufs[:0]
	n := 0
	put := func(h *wire.Header, payload []byte) {
		h.Ack, h.Credit = p.core.Stamp(c.rail)
		h.Generation = uint8(c.generation)
		h.Encode(c.headers[n][:])
		c.bufs = append(c.bufs, c.headers[n][:])
		n++
		total += wire.Size + len(payload)
		if len(payload) > 0 {
			c.bufs = append(c.bufs, payload)
		}
	}
	if c.urgent&urgentPing != 0 {
		put(&wire.Header{Kind: wire.KindPing}, nil)
	}
	if c.urgent&urgentPong != 0 {
		put(&wire.Header{Kind: wire.KindPong}, nil)
	}
	beats := n // whose silence is the rank timeout's business
	stats := p.fabric.rails[c.rail]
	for n < maxBatchFrames-1 { // the last place is for a farewell or an acknowledgement
		next := p.core.NextBytes(c.rail, c.generation)
		if next == 0 || total+next > limit && (total > 0 || small) {
			break
		}
		it, number, _ := p.core.Take(c.rail, c.generation)
		it.Frame.Header.Number = number
		if it.Uncredited {
			it.Frame.Header.Flags |= wire.FlagUncredited
		}
		if it.AckNow {
			it.Frame.Header.Flags |= wire.FlagAckNow
		}
		put(&it.Frame.Header, it.Frame.Payload)
		stats.countSent(it.Frame, it.Resent)
	}
	switch {
	case c.urgent&urgentFarewell != 0:
		put(&wire.Header{Kind: wire.KindRefuse, Length: uint32(len(farewell))}, farewell)
	case c.urgent&urgentAck != 0 && n == 0:
		put(&wire.Header{Kind: wire.KindAck}, nil)
	}
	c.urgent = 0
	if n > 0 {
		p.signals[c.rail].sent.Store(int64(now))
	}
	if n > beats {
		p.wrote()
	}
	return total
}

// busy reports whether there is something to write.
func (c *connection) busy() bool {
	return c.urgent != 0 || c.peer.core.NextBytes(c.rail, c.generation) > 0
}

// pump writes what is small and goes without blocking, on the calling goroutine, in one write; the
// rest is the writer goroutine's.
func (c *connection) pump() {
	if _, more := c.pumpOnce(); more {
		c.rouse()
	}
}

// pumpAll is pump in as many writes as it takes.
func (c *connection) pumpAll() {
	whole, more := true, true
	for whole && more {
		whole, more = c.pumpOnce()
	}
	if more {
		c.rouse()
	}
}

// rouse has the writer goroutine look for something to write.
func (c *connection) rouse() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// pumpOnce reports whether it wrote all that it took, and whether there is more to write.
func (c *connection) pumpOnce() (whole, more bool) {
	p := c.peer
	fx := newEffects()
	p.mu.Lock()
	if !c.open || c.writing {
		// Who writes looks again when it is done.
		p.mu.Unlock()
		fx.free()
		return false, false
	}
	total := c.fill(c.inline, true)
	if total > 0 {
		c.writing = true
		c.holders++
		p.mu.Unlock()
		n, err := c.conn.TryWrite(c.bufs...)
		p.mu.Lock()
		switch {
		case err != nil:
			c.writing = false
			c.failLocked(fmt.Errorf("write: %w", err), fx)
		case n < int64(total):
			c.rest = remainder(c.bufs, n)
		default:
			c.written(fx)
			whole = true
		}
		c.letGo(fx)
	}
	more = c.open && (c.rest != nil || c.busy())
	p.unlock(fx)
	return whole, more
}

// remainder is what of bufs is left after n bytes. It uses the memory of bufs.
func remainder(bufs [][]byte, n int64) [][]byte {
	for len(bufs) > 0 && n >= int64(len(bufs[0])) {
		n -= int64(len(bufs[0]))
		bufs = bufs[1:]
	}
	bufs[0] = bufs[0][n:]
	return bufs
}

// written ends a write: everything that was taken is handed over.
func (c *connection) written(fx *effects) {
	c.writing = false
	c.rest = nil
	if c.hurried {
		c.hurried = false
		if err := c.conn.SetWriteDeadline(time.Time{}); err != nil {
			c.failLocked(fmt.Errorf("write deadline: %w", err), fx)
		}
	}
	c.peer.core.Written(c.rail, c.generation, &fx.Effects)
}

// write is the writer goroutine.
func (c *connection) write() {
	defer c.peer.fabric.rails[c.rail].settle(c.peer.fabric.log)()
	defer c.leave()
	for {
		select {
		case <-c.wake:
		case <-c.done:
			return
		}
		for c.writeBatch() {
		}
	}
}

// writeBatch writes what there is, and reports whether there may be more.
func (c *connection) writeBatch() bool {
	p := c.peer
	fx := newEffects()
	p.mu.Lock()
	bufs := c.rest
	if bufs == nil && c.open && !c.writing && c.fill(wire.MaxPayload, false) > 0 {
		bufs = c.bufs
	}
	if bufs == nil || !c.open {
		p.mu.Unlock()
		fx.free()
		return false
	}
	c.writing = true
	p.mu.Unlock()

	_, err := c.conn.Write(bufs...)
	p.mu.Lock()
	if err != nil {
		c.writing = false
		if c.hurried {
			err = fmt.Errorf("memory that it sends was revoked: %w", err)
		}
		c.failLocked(fmt.Errorf("write: %w", err), fx)
	} else {
		c.written(fx)
	}
	p.unlock(fx)
	return err == nil
}

// leave ends hold. It is the last thing that the reader and the writer goroutine do.
func (c *connection) leave() {
	c.peer.mu.Lock()
	if c.holders > 1 {
		c.holders--
		c.peer.mu.Unlock()
		return
	}
	fx := newEffects()
	c.letGo(fx)
	c.peer.unlock(fx)
}
