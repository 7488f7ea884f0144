package railactors

import (
	"fmt"

	"github.com/polyrail/polyrail/messages/wire"
)

// This file is about the bytes of a frame that follow its header.

const (
	sinkBytes  = 32 << 10 // what nobody wants is read into
	pieceBytes = 64 << 10 // of a payload, unless the rail is quick
	quickPiece = 64       // one that took at most this part of the rank timeout says that it is
)

// receive reads a payload to where it lands, or lends it to who folds it, and returns who is to hear
// of that.
func (r *reader) receive(l *Landing) (to Receiver, n int, err error) {
	if folder, ok := l.Receiver.(Folder); ok && r.lender != nil {
		whole := r.conn.Buffered() >= len(l.Dst)
		if fold := folder.Fold(l.Tag, whole); fold != nil {
			n, err = r.lend(len(l.Dst), fold, whole)
			return fold, n, err
		}
	}
	n, err = r.payloadInto(l.Dst)
	return l.Receiver, n, err
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

// settle reads what a frame owes: the stream stays in step, and its bytes go nowhere.
func (r *reader) settle() error {
	if err := r.drain(r.owed); err != nil {
		return err
	}
	r.owing = false
	r.count(&r.h, true)
	return nil
}

// drain reads n bytes that nobody wants.
func (r *reader) drain(n int) error {
	if n > 0 && r.sink == nil {
		r.sink = make([]byte, sinkBytes)
	}
	for n > 0 {
		k, err := r.payloadInto(r.sink[:min(n, sinkBytes)])
		if err != nil {
			return fmt.Errorf("read: %w", err)
		}
		n -= k
	}
	return nil
}

// payload reads the payload of a frame that isn't data.
func (r *reader) payload(h *wire.Header) ([]byte, error) {
	if cap(r.control) < int(h.Length) {
		r.control = make([]byte, h.Length)
	}
	b := r.control[:h.Length]
	if _, err := r.payloadInto(b); err != nil {
		return nil, fmt.Errorf("read: %w", err)
	}
	return b, nil
}
