package schedule

import (
	"slices"

	"github.com/polyrail/polyrail/collective/op"
)

// relative is this rank's distance from the root.
func (b *builder) relative() int {
	if b.line != nil {
		return slices.Index(b.line, b.p.Rank)
	}
	return (int(b.p.Rank) - int(b.p.Root) + b.p.N) % b.p.N
}

// ranked is the rank at that distance from the root.
func (b *builder) ranked(distance int) op.Rank {
	if b.line != nil {
		return b.line[distance%b.p.N]
	}
	return op.Rank((int(b.p.Root) + distance) % b.p.N)
}

// Chains are pipelines: what a rank gets of one span it passes on while the next one comes.
// A long operation takes the time of its bytes on one link, S/B, which is the bound of each
// of these kinds, and as much again as one frame takes on the n-2 links beyond the first.

// reduceChain folds from rank root+1 through all ranks to the root: in the order root+1,
// root+2, …, root, as the ring does for the block that the root owns.
func (b *builder) reduceChain() {
	n, d := b.p.N, b.relative()
	b.p.Steps = 1
	sum := b.part(0, true, d == 0)
	if d != 1 {
		got := b.recv(0, b.ranked(d+n-1))
		if d == 0 {
			b.reduceFinal(got, sum)
			return
		}
		sum = b.reduce(got, got, sum)
	}
	b.send(0, b.ranked(d+1), sum)
}

// broadcastChain passes the root's buffer from rank to rank.
func (b *builder) broadcastChain() {
	n, d := b.p.N, b.relative()
	b.p.Steps = 1
	value := b.part(0, d == 0, d > 0)
	if d > 0 {
		value = b.recvFinal(0, b.ranked(d-1))
	}
	if d < n-1 {
		b.send(0, b.ranked(d+1), value)
	}
}

// scanChain hands the sum of all ranks before to each rank in turn: in the order 0, 1, 2, ….
// In an exclusive scan it is the result, in an inclusive one the rank's own operand comes
// to it.
func (b *builder) scanChain() {
	n, r := b.p.N, int(b.p.Rank)
	b.p.Steps = 1
	exclusive := b.p.Kind == op.KindExScan
	sum := b.part(0, true, !exclusive || r > 0)
	if r == 0 {
		b.send(0, 1, sum)
		if !exclusive {
			b.copyFinal(sum)
		}
		return
	}
	got := b.recv(0, op.Rank(r-1))
	switch {
	case !exclusive:
		sum = b.reduceFinal(got, sum)
	case r < n-1:
		sum = b.reduceApart(got, sum)
		b.copyFinal(got)
	default:
		b.copyFinal(got)
	}
	if r < n-1 {
		b.send(0, op.Rank(r+1), sum)
	}
}
