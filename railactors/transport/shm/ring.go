package shm

import (
	"errors"
	"sync/atomic"
)

// errCorrupt: the other end's indices are not those of a ring. Whatever it is, its memory is not
// read any more.
var errCorrupt = errors.New("the other end's ring is corrupt")

// control is what one end tells the other, at the beginning of its memory. The other end maps it
// read-only. What changes at different times is in cache lines of its own (128 bytes: processors
// fetch two at once).
type control struct {
	written atomic.Uint64 // bytes put into this end's ring, ever
	base    atomic.Uint64 // which of them is at the beginning of the ring; it changes while that is empty
	_       [112]byte
	read    atomic.Uint64 // bytes taken from the other end's ring, ever
	_       [120]byte
	// A number that is odd while this end sleeps and wants a byte on the socket, one for each such
	// number, when there is input …
	inputBell atomic.Uint32
	_         [124]byte
	// … or when there is room in its ring.
	roomBell atomic.Uint32
	_        [124]byte
}

// source is the ring that the other end writes, as this end sees it. Only who has the reading side
// uses it, but for ready.
type source struct {
	data   []byte // the other end's memory, of a power of two
	theirs *control
	ours   *control
	read   uint64 // ours.read
	end    uint64 // theirs.written, when it was last looked at
}

// ready reports whether there is input. It may be called by anybody who keeps the memory mapped.
func (s *source) ready() bool { return s.theirs.written.Load() != s.ours.read.Load() }

// look returns how much there is to take.
func (s *source) look() (int, error) {
	end := s.theirs.written.Load()
	if end-s.read > uint64(len(s.data)) || end < s.end {
		return 0, errCorrupt
	}
	s.end = end
	return int(end - s.read), nil
}

// next is the beginning of what there is, of n bytes at most. It is the other end's memory.
func (s *source) next(n int) []byte {
	n = min(n, int(s.end-s.read))
	at := int((s.read - s.theirs.base.Load()) & uint64(len(s.data)-1))
	end := min(at+n, len(s.data))
	return s.data[at:end:end]
}

// giveBack gives the other end the room of n bytes.
func (s *source) giveBack(n int) {
	s.read += uint64(n)
	s.ours.read.Store(s.read)
}

// free is how much room the other end has at least.
func (s *source) free() int { return len(s.data) - int(s.end-s.read) }

// sink is the ring that this end writes. Only who writes uses it.
type sink struct {
	data    []byte
	ours    *control
	theirs  *control
	written uint64 // what was put, the last of which may not be published yet
	start   uint64 // theirs.read, when it was last looked at
	base    uint64 // ours.base
}

// room returns how much can be put. An empty ring is filled from its beginning: what is in use of a
// large one stays in the cache.
func (s *sink) room() (int, error) {
	start := s.theirs.read.Load()
	if start < s.start || start > s.written {
		return 0, errCorrupt
	}
	s.start = start
	if start == s.written && s.base != start {
		s.base = start
		s.ours.base.Store(start)
	}
	return len(s.data) - int(s.written-start), nil
}

// put copies p, for which there is room.
func (s *sink) put(p []byte) {
	at := (s.written - s.base) & uint64(len(s.data)-1)
	n := copyBytes(s.data[at:], p)
	copyBytes(s.data, p[n:])
	s.written += uint64(len(p))
}

// publish lets the other end see what was put.
func (s *sink) publish() { s.ours.written.Store(s.written) }
