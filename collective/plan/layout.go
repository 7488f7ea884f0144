// Package plan cuts an operation: the buffer into blocks, rounds and segments
// (Layout), and the rounds over the rails and into the spans that frames carry (Plan).
//
// Everything here is a pure function of its arguments, so that all ranks cut
// alike. It owns geometry only: which weights a size gets is decided in
// collective/balance and agreed on in collective/table; what is done with a span is
// in collective/task.
package plan

import "fmt"

// Bounds of a segment, in bytes (DESIGN §4.3).
const (
	MinSegmentBytes = 256 // DESIGN has 1 KiB, by which six ranks divide 64 KiB in elevenths
	MaxSegmentBytes = 128 << 10

	segmentsPerBlock = 96 // aimed at, so that shares have a resolution of about 1 %
	alignment        = 64 // bytes; a cache line, and a multiple of every element size
)

// Layout is the cut of a buffer, which depends on its size and the number of owners
// alone. The buffer consists of one block per owner: Block bytes each, the trailing ones
// shorter or empty. A round is one segment of every block: round r is the bytes
// [r·Segment, (r+1)·Segment) of each. So consecutive rounds of one owner are contiguous.
type Layout struct {
	Bytes    int // size of the buffer
	ElemSize int // bytes of one element
	Owners   int // number of blocks
	Block    int // bytes of a full block, a multiple of 64
	Segment  int // bytes of a full segment, a multiple of 64
	Rounds   int // at least 1: the empty buffer has one empty round, so that a barrier has frames
}

// NewLayout cuts a buffer of so many bytes. It panics when the arguments are not
// sizes: bytes must be a multiple of elemSize, which must divide 64, and owners at least 1.
func NewLayout(bytes, elemSize, owners int) Layout {
	if elemSize < 1 || alignment%elemSize != 0 || bytes < 0 || bytes%elemSize != 0 || owners < 1 {
		panic(fmt.Sprintf("plan: no layout of %d bytes in elements of %d for %d owners", bytes, elemSize, owners))
	}
	block := align(ceil(bytes, owners))
	segment := min(max(align(ceil(bytes, segmentsPerBlock*owners)), MinSegmentBytes), MaxSegmentBytes)
	return Layout{
		Bytes: bytes, ElemSize: elemSize, Owners: owners,
		Block: block, Segment: segment, Rounds: max(ceil(block, segment), 1),
	}
}

// Range is the contiguous range of bytes that rounds [first, first+count) of the owner's
// block take in the buffer. The length is 0 where the block is short of those rounds.
func (l Layout) Range(first, count, owner int) (off, length int) {
	start := owner * l.Block
	off = min(start+min(first*l.Segment, l.Block), l.Bytes)
	end := min(start+min((first+count)*l.Segment, l.Block), l.Bytes)
	return off, end - off
}

// ceil is a/b rounded up.
func ceil(a, b int) int { return (a + b - 1) / b }

func align(n int) int { return (n + alignment - 1) &^ (alignment - 1) }
