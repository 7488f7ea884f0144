package schedule

import (
	"math/bits"

	"github.com/polyrail/polyrail/collective/op"
)

// doubling is recursive doubling: in round i ranks that differ in bit i of their number
// exchange what they have and both fold it, the lower rank's operand first. Where n is no
// power of two, 2^k being the one below, each odd one of the first 2(n-2^k) ranks gives its
// operand to its left neighbour before, and gets the final value from it after; the ranks
// that are left are numbered anew in their order. k or k+2 steps.
//
// Each value received has a slot, and the sum of round i lies in the slot received in
// round i: the sum of the round before may still be on its way to the partner.
func (b *builder) doubling() {
	n, r := b.p.N, int(b.p.Rank)
	rounds := bits.Len(uint(n)) - 1
	folded := n - 1<<rounds // pairs
	b.p.Steps = rounds + 2
	sum := b.part(0, true, true)
	if r < 2*folded && r%2 == 1 {
		b.send(0, op.Rank(r-1), sum)
		b.recvFinal(rounds+1, op.Rank(r-1))
		return
	}
	me := r - folded
	if r < 2*folded {
		me = r / 2
		got := b.recv(0, op.Rank(r+1))
		sum = b.reduce(got, sum, got)
	}
	for i := range rounds {
		other := me ^ 1<<i
		partner := op.Rank(other + folded)
		if other < folded {
			partner = op.Rank(2 * other)
		}
		b.send(1+i, partner, sum)
		got := b.recv(1+i, partner)
		args := []Value{sum, got}
		if other < me {
			args = []Value{got, sum}
		}
		if i == rounds-1 {
			sum = b.reduceFinal(args...)
		} else {
			sum = b.reduce(got, args...)
		}
	}
	if r < 2*folded {
		b.send(rounds+1, op.Rank(r+1), sum)
	}
}

// scanDoubling is the scan of Hillis and Steele (1986): in round i each rank sends the sum of
// the 2^i ranks up to itself to the rank 2^i beyond, which folds it before its own. The
// exclusive scan keeps a second sum, without the rank's own operand. ⌈log₂ n⌉ steps.
func (b *builder) scanDoubling() {
	n, r := b.p.N, int(b.p.Rank)
	exclusive := b.p.Kind == op.KindExScan
	sum := b.part(0, true, !exclusive || r > 0)
	before, has := Value(0), false // the sum of the ranks before this one, so far
	for i := 0; 1<<i < n; i++ {
		b.p.Steps = i + 1
		reach := 1 << i
		if r+reach < n {
			b.send(i, op.Rank(r+reach), sum)
		}
		if r < reach {
			continue
		}
		got := b.recv(i, op.Rank(r-reach))
		final := r < 2*reach // nobody before that is missing
		switch {
		case exclusive && r+2*reach < n: // others need it
			sum = b.reduceApart(got, sum)
		case exclusive:
		case final:
			sum = b.reduceFinal(got, sum)
		default:
			sum = b.reduce(got, got, sum)
		}
		if exclusive {
			before, has = b.precede(got, before, has, final), true
		}
	}
	if r == 0 && !exclusive {
		b.copyFinal(sum)
	}
}

// precede folds what a rank got before the sum of those before it.
func (b *builder) precede(got, before Value, has, final bool) Value {
	switch {
	case has && final:
		return b.reduceFinal(got, before)
	case has:
		return b.reduceApart(got, before)
	case final:
		b.copyFinal(got)
	}
	return got
}
