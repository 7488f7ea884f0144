// Package plan cuts an operation: its data into blocks (Parts), rounds and segments
// (Layout), and the rounds over the lanes and into the spans that frames carry (Plan).
//
// Everything here is a pure function of its arguments, so that all ranks cut
// alike. It owns geometry only: which weights a size gets is decided in
// collective/balance and agreed on in collective/table; what is done with a span is
// in collective/task.
package plan

import (
	"fmt"

	"github.com/polyrail/polyrail/collective/op"
	"github.com/polyrail/polyrail/collective/schedule"
)

// Bounds of a segment, in bytes.
const (
	MinSegmentBytes = 256 // with 1 KiB six ranks divided 64 KiB in elevenths
	// With 128 KiB 64 MiB among six ranks had 96 rounds: few for rails of 10 : 1.
	MaxSegmentBytes = 64 << 10

	roundsOfBlock = 96 // aimed at, so that shares have a resolution of about 1 %
	evenly        = 12 // more are a multiple of it, as those are: 2, 3 and 4 rails divide them evenly
	alignment     = 64 // bytes; a cache line, and a multiple of every element size
)

// Parts is how an operation's data is divided, the same on all ranks: the length of each part
// in bytes. What one owner reduces or one rank contributes is a part.
type Parts []int

// Even divides a buffer into n parts of as many whole cache lines; the trailing ones are shorter or
// empty.
func Even(bytes, n int) Parts {
	p := make(Parts, n)
	full := align(ceil(bytes, n))
	for i := range p {
		p[i] = max(0, min(full, bytes-i*full))
	}
	return p
}

// Equal is n parts of the same length.
func Equal(bytes, n int) Parts {
	p := make(Parts, n)
	for i := range p {
		p[i] = bytes
	}
	return p
}

// Total is the length of all parts together.
func (p Parts) Total() (bytes int) {
	for _, length := range p {
		bytes += length
	}
	return bytes
}

// Block is one block of an operation as a rank has it: where it begins in its source and
// its destination memory, in bytes (schedule.None: it isn't there), and how long it is.
type Block struct {
	Source, Target, Bytes int
}

// Place gives the blocks of a program their ranges.
func (p Parts) Place(blocks []schedule.Block) []Block {
	at := make([]int, len(p)+1)
	for i, length := range p {
		at[i+1] = at[i] + length
	}
	offset := func(part int) int {
		if part == schedule.None {
			return schedule.None
		}
		return at[part]
	}
	placed := make([]Block, len(blocks))
	for i, b := range blocks {
		placed[i] = Block{Source: offset(b.Source), Target: offset(b.Target), Bytes: p[b.Part]}
	}
	return placed
}

// Layout is the cut of an operation into rounds, which depends on its parts and its
// algorithm alone. Every block is cut into Rounds segments of whole cache lines, in
// proportion to its length, so that the segments of a block differ by a line at most; a
// round is one segment of every block. So consecutive rounds of a block are contiguous.
type Layout struct {
	Bytes   int // size of the operation: 0 if all of its blocks, on all ranks, are empty
	Blocks  []Block
	Segment int // bytes of the longest segment of the longest part, at least MinSegmentBytes
	Rounds  int // at least 1: the empty operation has one empty round, so that a barrier has frames

	full bool // every block has bytes in every round, or none has any
}

// NewLayout cuts the blocks that one rank has of an operation of so many bytes. What it decides
// follows from parts and cost alone. It panics when lengths or offsets are no multiples of
// elemSize, which must divide 64.
func NewLayout(bytes, elemSize int, parts Parts, blocks []schedule.Block, cost schedule.Cost) Layout {
	if elemSize < 1 || alignment%elemSize != 0 || bytes < 0 || bytes%elemSize != 0 {
		panic(fmt.Sprintf("plan: no layout of %d bytes in elements of %d", bytes, elemSize))
	}
	longest := 0
	for _, length := range parts {
		longest = max(longest, length)
		if length%elemSize != 0 {
			panic(fmt.Sprintf("plan: a part of %d bytes, in elements of %d", length, elemSize))
		}
	}
	rounds := RoundsOf(longest, cost)
	l := Layout{Bytes: bytes, Blocks: parts.Place(blocks), Rounds: rounds, full: true,
		Segment: max(align(ceil(longest, rounds)), MinSegmentBytes)}
	for _, b := range l.Blocks {
		l.full = l.full && (bytes == 0 || ceil(b.Bytes, alignment) >= rounds)
	}
	return l
}

// RoundsOf is the number of rounds of an operation whose longest part has so many bytes.
func RoundsOf(longest int, cost schedule.Cost) int {
	longest = align(longest)
	segment := max(min(MaxSegmentBytes, MaxSpanBytes/max(cost.Widest, 1)&^(alignment-1)), alignment)
	rounds := max(min(roundsOfBlock, longest/MinSegmentBytes), 1)
	if longest > rounds*segment {
		rounds = evenly * ceil(longest, evenly*segment)
	}
	return rounds
}

// start is where in a block a round begins; that of the round after the last one is the block's end.
func (l *Layout) start(round, blockBytes int) int {
	lines := int64(ceil(blockBytes, alignment))
	return min(alignment*int(int64(round)*lines/int64(l.Rounds)), blockBytes)
}

// Range is what rounds [first, first+count) of a block take: where it begins in the block, and how
// long it is, in bytes. The length may be 0 where the block is short.
func (l *Layout) Range(first, count, block int) (off, length int) {
	bytes := l.Blocks[block].Bytes
	off = l.start(first, bytes)
	return off, l.start(first+count, bytes) - off
}

// Full reports whether all blocks have bytes in all rounds; so does the empty operation, in which
// all blocks take part, too. Elsewhere blocks take no part in spans in which they have none.
func (l *Layout) Full() bool { return l.full }

// longest bounds what so many rounds of a block take, wherever they begin.
func (l *Layout) longest(count, block int) int {
	bytes := l.Blocks[block].Bytes
	lines := ceil(bytes, alignment)
	return min(alignment*ceil(count*lines, l.Rounds), bytes)
}

// ceil is a/b rounded up.
func ceil(a, b int) int { return (a + b - 1) / b }

func align(n int) int { return (n + alignment - 1) &^ (alignment - 1) }

// PartsOf is how an operation of so many bytes is divided among n ranks. Counts are the parts that
// callers gave, in bytes, where the kind lets them.
func PartsOf(k op.Kind, a op.Algorithm, n, bytes int, counts Parts) Parts {
	switch {
	case counts != nil:
		return counts
	case schedule.Parts(k, a, n) == 1:
		return Parts{bytes}
	case k == op.KindAllReduce || k.Empty():
		return Even(bytes, n)
	}
	return Equal(bytes/n, n)
}

// Buffers are the lengths of a rank's source and destination, in bytes. All parts together have all
// bytes, and the rank's own one has own.
func Buffers(k op.Kind, rank, root op.Rank, all, own int) (source, destination int) {
	at := func(r op.Rank, here, elsewhere int) int {
		if rank == r {
			return here
		}
		return elsewhere
	}
	switch k {
	case op.KindReduce:
		return all, at(root, all, 0)
	case op.KindReduceScatter:
		return all, own
	case op.KindAllGather:
		return own, all
	case op.KindGather:
		return own, at(root, all, 0)
	case op.KindScatter:
		return at(root, all, 0), own
	case op.KindBroadcast:
		return at(root, all, 0), at(root, 0, all)
	case op.KindExScan:
		return all, at(0, 0, all)
	}
	return all, all
}
