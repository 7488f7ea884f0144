package railactors

import (
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/polyrail/polyrail/collective/fault"
	"github.com/polyrail/polyrail/collective/peer"
	"github.com/polyrail/polyrail/messages"
	"github.com/polyrail/polyrail/messages/wire"
	"github.com/polyrail/polyrail/railactors/transport"
)

// errFarewell ends a reader after the other node's farewell.
var errFarewell = errors.New("the other node disconnected")

// landing is the memory that a reader is about to fill, so that it can be revoked. It is
// guarded by Peer.mu.
type landing struct {
	asking   bool     // Inbound.Land is on its way
	owners   []any    // revoked meanwhile
	receiver Receiver // whose memory is being written; nil: nobody's
	revoked  bool
}

// revoke takes the memory back if it is this owner's.
func (l *landing) revoke(owner any, conn transport.Conn) {
	switch {
	case l.asking:
		l.owners = append(l.owners, owner)
	case any(l.receiver) == owner:
		l.revoked = true
		// An error means that the connection is closed: the reader lets go anyway.
		_ = conn.SetReadDeadline(time.Unix(1, 0))
	}
}

// reader is the reading side of a connection. It belongs to one goroutine at a time: the one
// that has the turn. That is the connection's own, or a caller that waits for its operation
// and looks for its frames itself (Peer.Poll). Where the transport cannot be polled the
// connection's own goroutine needs no turn.
type reader struct {
	*connection
	turn    sync.Mutex
	hushed  atomic.Bool      // the goroutine sleeps through input: somebody polls
	poller  transport.Poller // nil: can't be polled
	lender  transport.Lender // nil: payloads are copied
	header  [wire.Size]byte
	h       wire.Header // decoded
	body    body        // what is left of its frame
	next    uint64      // number of the next numbered frame
	control []byte      // payload of a control frame
	sink    []byte
	batch   Batch // of what receivers send while frames are at hand
	polled  bool  // by a caller, who waits for what is to come for longestTake at most
	quick   bool  // the last piece of pieceBytes or more took little
}

// read is the reader goroutine.
func (c *connection) read() {
	defer c.peer.fabric.rails[c.rail].settle(c.peer.fabric.log)()
	defer c.leave()
	r := c.reader
	defer c.peer.signals[c.rail].busy.Store(false)
	for {
		if err := r.serve(); err != nil {
			c.fail(err)
			return
		}
	}
}

// serve waits for input and handles it.
func (r *reader) serve() error {
	if r.poller == nil {
		return r.guard(r.frame)
	}
	// A deadline is whoever's has the turn: it revokes what that one reads into.
	if err := r.poller.Await(); err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		return fmt.Errorf("read: %w", err)
	}
	r.turn.Lock()
	defer r.yield()
	return r.guard(r.takeAll)
}

// takeAll handles what has arrived, and leaves nothing at hand: Await would not see it.
func (r *reader) takeAll() error {
	_, err := r.take(0)
	return err
}

// take is takeAll for a caller that polls: it handles frames for so long. With 0 there is no limit.
// It reports whether it has left something: frames, or the rest of one.
func (r *reader) take(limit time.Duration) (rest bool, err error) {
	signal := &r.peer.signals[r.rail]
	defer signal.busy.Store(false)
	r.polled = limit > 0
	for began := time.Duration(0); ; {
		if !r.body.open {
			n, err := r.poller.Poll()
			if err != nil && n == 0 {
				return false, fmt.Errorf("read: %w", err)
			}
			if n == 0 {
				return false, nil
			}
			if r.polled && n < wire.Size {
				return true, nil
			}
		}
		if err := r.frame(); err == errUnfinished {
			return true, nil
		} else if err != nil {
			return false, err
		}
		if !r.body.open && r.poller.Drained() {
			return false, nil
		}
		heard := time.Duration(signal.heard.Load()) // when the frame came
		if began == 0 {
			began = heard
		}
		if limit > 0 && heard-began > limit {
			return true, nil
		}
	}
}

// guard makes a panic an error: whatever a callback did, it costs this connection, not the process.
func (r *reader) guard(f func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			r.peer.fabric.log.Error("reader panicked", "peer", r.peer.node, "rail", r.peer.fabric.rails[r.rail].name,
				"reason", fmt.Sprint(v), "stack", string(debug.Stack()))
			err = fmt.Errorf("%w: reader panicked: %v", fault.ErrInternal, v)
		}
		if err != nil {
			r.batch.Flush()
		} else {
			r.flushAtRest()
		}
	}()
	return f()
}

// frame reads one frame and does what it says, or goes on with the one that was begun.
func (r *reader) frame() error {
	if !r.body.open {
		if err := r.head(); err != nil || !r.body.open {
			return err
		}
	}
	return r.finish()
}

// head reads a frame's header, does what it says, and opens the body if there is one.
func (r *reader) head() error {
	p := r.peer
	signal := &p.signals[r.rail]
	signal.busy.Store(false)
	r.flushAtRest()
	_, err := r.conn.ReadFull(r.header[:])
	signal.busy.Store(true)
	if err != nil {
		return fmt.Errorf("read: %w", err)
	}
	now := p.fabric.now()
	signal.heard.Store(int64(now))
	h := &r.h
	if err := wire.Decode(r.header[:], h); err != nil {
		return err
	}
	if late := h.Kind == wire.KindRefuse && h.Generation == 0; h.Generation != uint8(r.generation) && !late { // late: the handshake's
		return fmt.Errorf("frame of generation %d (its last byte), this connection is generation %d", h.Generation, r.generation)
	}
	if h.Kind.Numbered() {
		if h.Number != r.next {
			return fmt.Errorf("frame number %d, want %d", h.Number, r.next)
		}
		r.next++
	}
	// What is at hand is read without waiting: nobody needs to be able to interrupt it.
	ask := h.Kind == wire.KindData && (int(h.Length) > inlineBytes || r.conn.Buffered() < int(h.Length))
	if err := r.account(h, now, ask); err != nil {
		return err
	}
	return r.dispatch(h, ask)
}

// account takes what every header says: acknowledgement and credit.
func (r *reader) account(h *wire.Header, now time.Duration, ask bool) error {
	p := r.peer
	fx := newEffects()
	p.mu.Lock()
	p.at(now)
	err := p.core.Acked(r.rail, r.generation, h.Ack, &fx.Effects)
	if err == nil {
		err = p.core.Credited(h.Credit, &fx.Effects)
	}
	if onCredit(h) && p.core.Overdraws(int(h.Length)+wire.EagerCost) {
		err = fmt.Errorf("%d bytes of eager data beyond the credit given", h.Length)
	}
	if queued := p.core.QueuedAhead(); queued >= 2*maxControlQueue && asks(h) {
		err = fmt.Errorf("it asks and takes no answers: %d wait", queued)
	}
	if ask {
		r.landing.asking = true
	}
	p.unlock(fx)
	return err
}

// onCredit reports whether a frame's data was sent on the credit that this node gave.
func onCredit(h *wire.Header) bool {
	return h.Kind == wire.KindData && h.Flags&(wire.FlagEager|wire.FlagUncredited) == wire.FlagEager
}

// asks reports whether a frame may make this node queue an answer.
func asks(h *wire.Header) bool { return h.Kind == wire.KindWant || h.Kind == wire.KindControl }

func (r *reader) dispatch(h *wire.Header, ask bool) error {
	p := r.peer
	in := p.fabric.in
	var err error
	switch h.Kind {
	case wire.KindData:
		return r.data(h, ask)
	case wire.KindGrant:
		if h.Flags&wire.FlagUncredited != 0 {
			r.granted(h)
		} else {
			err = in.Granted(p, h)
		}
	case wire.KindWant:
		err = in.Wanted(p, h)
	case wire.KindControl, wire.KindRefuse:
		if cap(r.control) < int(h.Length) {
			r.control = make([]byte, h.Length)
		}
		r.control = r.control[:h.Length]
		r.body = body{open: true, left: int(h.Length), dst: r.control}
		return nil
	case wire.KindAck, wire.KindPong:
		return nil
	case wire.KindPing:
		r.answerPing()
		return nil
	default:
		return fmt.Errorf("frame of kind %d in the middle of a stream", h.Kind)
	}
	if err != nil {
		return err
	}
	r.count(h, false)
	return nil
}

// count: the frame is received whole and its arrival stands. Credit says whether the
// credit that it took goes back at once.
func (r *reader) count(h *wire.Header, credit bool) {
	p := r.peer
	fx := newEffects()
	p.mu.Lock()
	if onCredit(h) {
		p.core.Took(int(h.Length) + wire.EagerCost)
		if credit {
			p.core.ReturnCredit(int(h.Length)+wire.EagerCost, &fx.Effects)
		}
	}
	p.core.Received(r.rail, r.generation, wire.Size+int(h.Length), h.Flags&wire.FlagAckNow != 0, &fx.Effects)
	p.unlock(fx)
	p.fabric.rails[r.rail].countReceived(h)
}

// data asks where a frame's payload belongs.
func (r *reader) data(h *wire.Header, ask bool) error {
	l, err := r.peer.fabric.in.Land(r.peer, r.rail, h)
	if err == nil && l.Receiver != nil && len(l.Dst) != int(h.Length) {
		err = fmt.Errorf("%w: %d bytes of room for a frame of %d", fault.ErrInternal, len(l.Dst), h.Length)
		l.Receiver.Torn(l.Tag, err)
	}
	if err != nil {
		return err // the landing ends with the connection
	}
	if ask && !r.publish(l.Receiver) {
		l.Receiver.Torn(l.Tag, ErrRevoked)
		l.Receiver = nil
	}
	r.body = body{open: true, left: int(h.Length)}
	if l.Receiver != nil {
		r.land(&l, ask)
	}
	return nil
}

// flushAtRest writes what receivers hold unless a header is at hand: to wait for one may
// take a while.
func (r *reader) flushAtRest() {
	if len(r.batch.held) > 0 && r.conn.Buffered() < wire.Size {
		r.batch.Flush()
	}
}

// publish makes the landing revocable. It returns false if that happened already.
func (r *reader) publish(receiver Receiver) bool {
	p := r.peer
	p.mu.Lock()
	defer p.mu.Unlock()
	revoked := false
	for _, o := range r.landing.owners {
		revoked = revoked || receiver != nil && o == any(receiver)
	}
	clear(r.landing.owners)
	r.landing = landing{owners: r.landing.owners[:0]}
	if !revoked && receiver != nil {
		r.landing.receiver = receiver
	}
	return !revoked
}

// revoked reports whether the landing's memory was taken back.
func (r *reader) revoked() bool {
	r.peer.mu.Lock()
	defer r.peer.mu.Unlock()
	return r.landing.revoked
}

// unpublish ends the landing and reports whether it was revoked.
func (r *reader) unpublish() bool {
	p := r.peer
	p.mu.Lock()
	defer p.mu.Unlock()
	revoked := r.landing.revoked
	r.landing = landing{owners: r.landing.owners}
	if revoked {
		// An error means that the connection is closed, which the next read tells.
		_ = r.conn.SetReadDeadline(time.Time{})
	}
	return revoked
}

func (r *reader) controlMessage() error {
	m := new(messages.Control)
	if err := proto.Unmarshal(r.control, m); err != nil {
		return fmt.Errorf("control message: %w", err)
	}
	if m.GetRailOpened() != nil {
		r.peer.opened(m.GetRailOpened())
		return nil
	}
	closed := m.GetRailClosed()
	if closed == nil {
		r.peer.fabric.in.Control(r.peer, m)
		return nil
	}
	p := r.peer
	fx := newEffects()
	p.mu.Lock()
	err := p.core.PeerClosed(peer.Statement{Rail: p.fabric.RailIndex(closed.Rail), Generation: closed.Generation,
		Received: closed.Received, Answer: closed.Answer}, &fx.Effects)
	p.unlock(fx)
	return err
}

// granted: the other node takes an operation's waiting frames without credit.
func (r *reader) granted(h *wire.Header) {
	p := r.peer
	fx := newEffects()
	p.mu.Lock()
	p.core.EagerGranted(peer.Operation{Comm: h.Comm, Seq: h.Seq}, &fx.Effects)
	p.unlock(fx)
}

func (r *reader) answerPing() {
	fx := newEffects()
	r.peer.mu.Lock()
	r.urgent |= urgentPong
	fx.kicks = append(fx.kicks, r.connection)
	r.peer.unlock(fx)
}

// refused: the other node closes the connection and says why.
func (r *reader) refused() error {
	var m messages.Refuse
	if err := proto.Unmarshal(r.control, &m); err != nil {
		return fmt.Errorf("refusal: %w", err)
	}
	refusal := &refusal{code: m.Code, reason: clip(m.Reason)}
	if m.Code != messages.Refuse_LEAVING {
		return refusal
	}
	p := r.peer
	fx := newEffects()
	p.mu.Lock()
	p.parted = true
	p.core.Farewell(r.rail, r.generation, &fx.Effects)
	r.failLocked(errFarewell, fx)
	p.unlock(fx)
	return errFarewell
}
