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
	MinSegmentBytes = 256      // DESIGN has 1 KiB, by which six ranks divide 64 KiB in elevenths
	MaxSegmentBytes = 64 << 10 // DESIGN has 128 KiB, by which 64 MiB among six ranks have 96 rounds: few for rails of 10 : 1

	roundsOfBlock = 96 // aimed at, so that shares have a resolution of about 1 %
	evenly        = 12 // more are a multiple of it, as those are: 2, 3 and 4 rails divide them evenly
	alignment     = 64 // bytes; a cache line, and a multiple of every element size
)

// Layout is the cut of a buffer, which depends on its size and the number of owners
// alone. The buffer consists of one block per owner: Block bytes each, the trailing ones
// shorter or empty. A block is cut into Rounds segments, which differ by 64 bytes at most; a round is one segment of every block.
// So consecutive rounds of one owner are contiguous, and as many rounds are as many bytes.
type Layout struct {
	Bytes    int // size of the buffer
	ElemSize int // bytes of one element
	Owners   int // number of blocks
	Block    int // bytes of a full block, a multiple of 64
	Segment  int // bytes of its longest segment, a multiple of 64; MinSegmentBytes where the block is shorter
	Rounds   int // at least 1: the empty buffer has one empty round, so that a barrier has frames
}

// NewLayout cuts a buffer of so many bytes. It panics when the arguments are not
// sizes: bytes must be a multiple of elemSize, which must divide 64, and owners at least 1.
func NewLayout(bytes, elemSize, owners int) Layout {
	if elemSize < 1 || alignment%elemSize != 0 || bytes < 0 || bytes%elemSize != 0 || owners < 1 {
		panic(fmt.Sprintf("plan: no layout of %d bytes in elements of %d for %d owners", bytes, elemSize, owners))
	}
	block := align(ceil(bytes, owners))
	rounds := max(min(roundsOfBlock, block/MinSegmentBytes), 1)
	if block > roundsOfBlock*MaxSegmentBytes {
		rounds = evenly * ceil(block, evenly*MaxSegmentBytes)
	}
	return Layout{Bytes: bytes, ElemSize: elemSize, Owners: owners,
		Block: block, Segment: max(align(ceil(block, rounds)), MinSegmentBytes), Rounds: rounds}
}

// start is where in a block a round begins; that of the round after the last one is the block's end.
func (l Layout) start(round int) int {
	lines := int64(l.Block / alignment)
	return alignment * int(int64(min(round, l.Rounds))*lines/int64(l.Rounds))
}

// Range is the contiguous range of bytes that rounds [first, first+count) of the owner's
// block take in the buffer. The length is 0 where the block is short of those rounds.
func (l Layout) Range(first, count, owner int) (off, length int) {
	block := owner * l.Block
	off = min(block+l.start(first), l.Bytes)
	return off, min(block+l.start(first+count), l.Bytes) - off
}

// ceil is a/b rounded up.
func ceil(a, b int) int { return (a + b - 1) / b }

func align(n int) int { return (n + alignment - 1) &^ (alignment - 1) }
