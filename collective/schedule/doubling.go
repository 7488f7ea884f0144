package schedule

import "github.com/polyrail/polyrail/collective/op"

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
	rounds := 0
	for 2<<rounds <= n {
		rounds++
	}
	folded := n - 1<<rounds // pairs
	b.p.Steps = rounds + 2
	b.owner()
	if r < 2*folded && r%2 == 1 {
		b.send(0, op.Rank(r-1), Input)
		b.recvFinal(rounds+1, op.Rank(r-1))
		return
	}
	me, sum := r-folded, Input
	if r < 2*folded {
		me = r / 2
		got := b.recv(0, op.Rank(r+1))
		sum = b.reduce(got, Input, got)
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
