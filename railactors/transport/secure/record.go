package secure

import (
	"encoding/binary"
	"fmt"
)

const (
	headerBytes = 4        // of a record: the length of its text
	maxText     = 64 << 10 // of a record
	// smallText is up to which texts share a record: several small frames then cost one, and the text
	// of a large one begins a record, which is opened where the payload lands.
	smallText = 4 << 10
	maxShared = 16 << 10 // of a record that several share
	// flushBytes are sealed before they are written: the next ones are sealed while those travel.
	flushBytes = 64 << 10
)

// opening is the reading half: one record at a time.
type opening struct {
	seal   *sealer
	buf    []byte // the record, with its header
	got    int    // bytes of it
	text   []byte // opened and not read; its memory is buf's
	header [headerBytes]byte
}

// wanted is how many bytes are missing of the part of the record that is known of; 0: none.
func (r *opening) wanted() (int, error) {
	if r.got < headerBytes {
		if cap(r.buf) == 0 {
			r.buf = make([]byte, headerBytes, headerBytes+smallText+tagBytes)
		}
		r.buf = r.buf[:headerBytes]
		return headerBytes - r.got, nil
	}
	n := int64(binary.LittleEndian.Uint32(r.buf))
	if n == 0 || n > maxText {
		return 0, fmt.Errorf("record %d has %d bytes, the limit is %d", r.seal.number, n, maxText)
	}
	whole := headerBytes + int(n) + tagBytes
	if whole > cap(r.buf) {
		larger := make([]byte, headerBytes, headerBytes+maxText+tagBytes)
		copy(larger, r.buf[:headerBytes])
		r.buf = larger
	}
	r.buf = r.buf[:whole]
	return whole - r.got, nil
}

// size is the length of the text of a record that is whole.
func (r *opening) size() int { return len(r.buf) - headerBytes - tagBytes }

// open opens a record that is whole into dst, or where it is if dst is nil. Nothing of it is seen
// before it has proved authentic.
func (r *opening) open(dst []byte) error {
	number := r.seal.number
	nonce, err := r.seal.next()
	if err != nil {
		return err
	}
	r.header = [headerBytes]byte(r.buf)
	sealed := r.buf[headerBytes:]
	if dst == nil {
		dst = sealed[:0]
	}
	if r.text, err = r.seal.aead.Open(dst, nonce, sealed, r.header[:]); err != nil {
		return fmt.Errorf("record %d %s", number, r.seal.flaw)
	}
	r.got = 0
	return nil
}

// sealing is the writing half.
type sealing struct {
	seal   *sealer
	buf    []byte // sealed
	rest   []byte // of buf, yet to be written
	text   int    // bytes of the caller's in buf and share, not reported as sent
	share  []byte // small texts that share a record
	header [headerBytes]byte
	one    [1][]byte
}

// pending reports whether something is sealed and not written.
func (w *sealing) pending() bool { return len(w.rest) > 0 }

// full reports whether it is time to write.
func (w *sealing) full() bool { return len(w.buf)+len(w.share) >= flushBytes }

// take seals some of b, at least a byte, and returns how much.
func (w *sealing) take(b []byte) (int, error) {
	if len(b) <= smallText && len(w.share)+len(b) <= maxShared {
		w.share = append(w.share, b...)
		w.text += len(b)
		return len(b), nil
	}
	if err := w.shared(); err != nil {
		return 0, err
	}
	n := min(len(b), maxText)
	if err := w.record(b[:n]); err != nil {
		return 0, err
	}
	w.text += n
	return n, nil
}

// shared seals the small texts.
func (w *sealing) shared() error {
	if len(w.share) == 0 {
		return nil
	}
	err := w.record(w.share)
	w.share = w.share[:0]
	return err
}

// record seals one text.
func (w *sealing) record(text []byte) error {
	nonce, err := w.seal.next()
	if err != nil {
		return err
	}
	if len(w.rest) == 0 {
		w.buf = w.buf[:0]
	}
	if need := len(w.buf) + headerBytes + len(text) + tagBytes; need > cap(w.buf) {
		w.buf = append(make([]byte, 0, max(need, 2*cap(w.buf))), w.buf...)
	}
	binary.LittleEndian.PutUint32(w.header[:], uint32(len(text)))
	w.buf = append(w.buf, w.header[:]...)
	w.buf = w.seal.aead.Seal(w.buf, nonce, text, w.header[:])
	w.rest = w.buf
	return nil
}
