package railactors

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/polyrail/polyrail/messages/wire"
)

// This file is about the bytes of a frame that follow its header.

const (
	sinkBytes  = 32 << 10 // what nobody wants is read into
	pieceBytes = 64 << 10 // of a payload, unless the rail is quick
	quickPiece = 64       // one that took at most this part of the rank timeout says that it is
)

// body is what follows a frame's header, as far as it hasn't been read.
type body struct {
	open      bool
	left      int      // bytes
	dst       []byte   // where they go; nil: nowhere, or to fold
	fold      Fold     // who uses them where they lie
	receiver  Receiver // who is to hear of the end; nil: nobody
	tag       uint64
	keeps     bool // the credit stays taken
	revocable bool // the memory may be taken back: see landing
}

// errUnfinished is a frame whose rest isn't there, for a caller that polls.
var errUnfinished = errors.New("the rest of the frame is to come")

// land opens the body of a frame that somebody wants: it is read to where it belongs, or lent to who
// folds it, and who borrows it hears of the end.
func (r *reader) land(l *Landing, revocable bool) {
	b := &r.body
	b.dst, b.receiver, b.tag, b.keeps, b.revocable = l.Dst, l.Receiver, l.Tag, l.Keeps, revocable
	if folder, ok := l.Receiver.(Folder); ok && r.lender != nil {
		if fold := folder.Fold(l.Tag, r.conn.Buffered() >= b.left); fold != nil {
			b.dst, b.fold, b.receiver = nil, fold, fold
		}
	}
}

// finish reads what is left of a frame, and does what is to be done with it.
func (r *reader) finish() error {
	b, err := &r.body, r.fill()
	late := errors.Is(err, os.ErrDeadlineExceeded)
	if late && r.polled && !r.revoked() {
		return errUnfinished
	}
	revoked := b.revocable && r.unpublish()
	switch {
	case err == nil:
		whole := *b
		r.body = body{}
		return r.complete(&whole)
	case late && revoked:
		b.receiver.Torn(b.tag, ErrRevoked)
		r.body = body{open: true, left: b.left} // the stream stays in step
		return nil
	}
	err = fmt.Errorf("read: %w", err)
	if b.receiver != nil {
		b.receiver.Torn(b.tag, err)
	}
	r.body = body{}
	return err
}

// complete does what is to be done with a frame that is there whole.
func (r *reader) complete(b *body) error {
	switch r.h.Kind {
	case wire.KindRefuse:
		return r.refused()
	case wire.KindControl:
		if err := r.controlMessage(); err != nil {
			return err
		}
	default:
		if b.receiver != nil {
			b.receiver.Arrived(b.tag, &r.batch)
		}
	}
	r.count(&r.h, !b.keeps)
	return nil
}

// fill reads what is left of the body. A caller that polls waits for longestTake at most.
func (r *reader) fill() (err error) {
	b := &r.body
	whole := r.conn.Buffered() >= b.left
	if r.polled && !whole {
		r.limit(time.Now().Add(longestTake))
		defer r.limit(time.Time{})
	}
	for b.left > 0 && err == nil {
		var n int
		switch {
		case b.fold != nil:
			n, err = r.lend(b.left, b.fold, whole)
		case b.dst != nil:
			n, err = r.payloadInto(b.dst)
			b.dst = b.dst[n:]
		default:
			if r.sink == nil {
				r.sink = make([]byte, sinkBytes)
			}
			n, err = r.payloadInto(r.sink[:min(b.left, sinkBytes)])
		}
		b.left -= n
	}
	return err
}

// limit is the deadline of a read, unless a revocation has set one.
func (r *reader) limit(t time.Time) {
	r.peer.mu.Lock()
	defer r.peer.mu.Unlock()
	if !r.landing.revoked {
		// An error means that the connection is closed, which the read tells.
		_ = r.conn.SetReadDeadline(t)
	}
}

// lend is payloadInto for who borrows the payload. Who lends is quick.
func (r *reader) lend(bytes int, to Fold, whole bool) (n int, err error) {
	if whole {
		return r.lender.Lend(bytes, to)
	}
	signal := &r.peer.signals[r.rail]
	r.batch.Flush()
	signal.busy.Store(false)
	n, err = r.lender.Lend(bytes, to)
	signal.busy.Store(true)
	if n > 0 {
		signal.heard.Store(int64(r.peer.fabric.now()))
	}
	return n, err
}

// payloadInto reads a payload. Where the rail isn't quick it does so in pieces, each of which shows
// that the peer lives: a frame may take longer than the rank timeout there. While it waits the reader
// isn't busy: a peer that stops in the middle of a frame is as silent as one that stops between two.
func (r *reader) payloadInto(dst []byte) (n int, err error) {
	if r.conn.Buffered() >= len(dst) { // it came with its header
		return r.conn.ReadFull(dst)
	}
	f, signal := r.peer.fabric, &r.peer.signals[r.rail]
	r.batch.Flush() // to wait for the rest may take a while
	for n < len(dst) && err == nil {
		piece := len(dst) - n
		if !r.quick {
			piece = min(piece, pieceBytes)
		}
		before := signal.heard.Load()
		signal.busy.Store(false)
		var k int
		k, err = r.conn.ReadFull(dst[n : n+piece])
		signal.busy.Store(true)
		if n += k; k > 0 {
			now := int64(f.now())
			signal.heard.Store(now)
			if k >= pieceBytes { // less tells nothing
				r.quick = now-before <= int64(f.cfg.RankTimeout/quickPiece)
			}
		}
	}
	return n, err
}
