package fault

import (
	"github.com/polyrail/polyrail/messages/wire"
)

// Tampering is what can be done to the frames of a stream, besides its bytes' being late or lost.
// Each puts one more frame between two that the node itself writes, which every receiver has to
// notice.
type Tampering uint8

// The ways of tampering.
const (
	Duplicate Tampering = 1 + iota // the last frame comes twice
	Corrupt                        // the last frame comes again, with a bit of its header turned
	Replay                         // the first frame of this connection comes again
	Stale                          // a frame of an earlier connection comes on this one
)

// maxKept bounds the frames that are kept to be put in again; longer ones aren't.
const maxKept = 16 << 10

// Tamper does it once, to the next frame that is written on any connection where it can be done. It
// needs Options.Frames.
func (t *Transport) Tamper(how Tampering) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.tampering = how
}

// framer follows the frames of what is written on a connection. It belongs to the writer.
type framer struct {
	header     [wire.Size]byte
	have       int    // bytes of header
	left       int    // bytes of payload that are to come
	number     uint64 // of the last numbered frame; 0: there was none
	generation uint8  // that frame's
	bytes      []byte // of this frame, if it is to be kept

	first, last []byte // numbered frames
	pending     []byte // the rest of a frame that is being put in
}

// between reports whether the last frame is complete.
func (f *framer) between() bool { return f.have == 0 && f.left == 0 }

// wrote takes bytes that were written.
func (f *framer) wrote(t *Transport, pieces [][]byte, n int) {
	for _, p := range pieces {
		p = p[:min(len(p), n)]
		n -= len(p)
		for len(p) > 0 {
			p = p[f.follow(t, p):]
		}
	}
}

// follow takes up to the end of a header or of a payload.
func (f *framer) follow(t *Transport, p []byte) (n int) {
	if f.left == 0 {
		n = copy(f.header[f.have:], p)
		if f.have += n; f.have < wire.Size {
			return n
		}
		var h wire.Header
		if wire.Decode(f.header[:], &h) == nil && h.Kind.Numbered() {
			f.number, f.generation = h.Number, h.Generation
			if h.Length <= maxKept {
				f.bytes = append(make([]byte, 0, wire.Size+int(h.Length)), f.header[:]...)
			}
		}
		f.left = int(h.Length)
	} else {
		n = min(f.left, len(p))
		f.left -= n
		if f.bytes != nil {
			f.bytes = append(f.bytes, p[:n]...)
		}
	}
	if f.left == 0 {
		f.have = 0
		f.end(t)
	}
	return n
}

// end keeps a frame that is complete.
func (f *framer) end(t *Transport) {
	if f.bytes == nil {
		return
	}
	if f.first == nil {
		f.first = f.bytes
	}
	f.last, f.bytes = f.bytes, nil
	t.mu.Lock()
	t.lastFrame = f.last
	t.mu.Unlock()
}

// due reports whether a frame could be the connection's next one: it may be another pair's of the
// same generation.
func (f *framer) due(h *wire.Header) bool {
	return h.Number == f.number+1 && (f.number == 0 || h.Generation == f.generation)
}

// tampered is what is to be written before the next frame, once; nil: nothing.
func (c *conn) tampered() []byte {
	t, f := c.t, &c.frames
	t.mu.Lock()
	defer t.mu.Unlock()
	var frame []byte
	switch t.tampering {
	case Duplicate:
		frame = f.last
	case Corrupt:
		if frame = append([]byte(nil), f.last...); len(frame) > 0 {
			frame[wire.Size/2] ^= 0x10
		}
	case Replay:
		frame = f.first
	case Stale:
		var h wire.Header
		if wire.Decode(c.before, &h) == nil && !f.due(&h) {
			frame = c.before
		}
	}
	if len(frame) > 0 {
		t.tampering = 0
		t.counters.Tampered++
	}
	return frame
}

// tamper puts a frame in, if that is asked for and it is time. It reports whether the writer may go on.
func (c *conn) tamper(wait bool) (bool, error) {
	f := &c.frames
	if len(f.pending) == 0 && f.between() {
		f.pending = c.tampered()
	}
	if len(f.pending) == 0 {
		return true, nil
	}
	n, err := c.forward(c.delayLine(), [][]byte{f.pending}, len(f.pending), wait)
	f.pending = f.pending[n:]
	return err == nil && len(f.pending) == 0, c.failure(err)
}
