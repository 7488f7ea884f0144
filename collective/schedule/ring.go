package schedule

import "github.com/polyrail/polyrail/collective/op"

// neighbours are the ranks before and after this one in the ring.
func (b *builder) neighbours() (prev, next op.Rank) {
	n, r := b.p.N, int(b.p.Rank)
	return op.Rank((r + n - 1) % n), op.Rank((r + 1) % n)
}

// ring is the ring allreduce: owner o's block travels from rank o+1 through all ranks to
// rank o, each adding its own operand to what it received, then on from rank o to rank o-1
// as the final value. So the order of the sum is o+1, o+2, …, o. 2(n-1) steps, 2(n-1)/n of
// the buffer sent by each rank, which no other algorithm undercuts (Patarasuk and Yuan, 2009).
func (b *builder) ring() {
	n, r := b.p.N, int(b.p.Rank)
	b.p.Steps = 2 * (n - 1)
	prev, next := b.neighbours()
	for o := range n {
		sum := b.part(o, true, true)
		at := (r - o - 1 + 2*n) % n // position on the way to the owner: 0 … n-1
		if at > 0 {
			got := b.recv(at-1, prev)
			if at == n-1 {
				b.send(n-1, next, b.reduceFinal(got, sum))
				continue
			}
			sum = b.reduce(got, got, sum)
		}
		b.send(at, next, sum)
		final := b.recvFinal(n-1+at, prev)
		if at < n-2 {
			b.send(n+at, next, final)
		}
	}
}

// reduceScatterRing is the first half of ring: the sum of block o, in the order o+1, o+2, …,
// o, ends at rank o. n-1 steps, (n-1)/n of the input sent by each rank, which is the bound.
func (b *builder) reduceScatterRing() {
	n, r := b.p.N, int(b.p.Rank)
	b.p.Steps = n - 1
	prev, next := b.neighbours()
	for o := range n {
		sum := b.ownResult(o)
		at := (r - o - 1 + 2*n) % n
		if at > 0 {
			got := b.recv(at-1, prev)
			if at == n-1 {
				b.reduceFinal(got, sum)
				continue
			}
			sum = b.reduce(got, got, sum)
		}
		b.send(at, next, sum)
	}
}

// ownResult is a block of a reduce-scatter, whose result rank o alone wants, at the
// beginning of its destination.
func (b *builder) ownResult(o int) Value {
	k := Block{Part: o, Source: o, Target: None}
	if int(b.p.Rank) == o {
		k.Target = 0
	}
	return b.begin(k)
}

// ownOperand is a block of a gather, of which rank o alone has the operand, at the
// beginning of its source.
func (b *builder) ownOperand(o int, target bool) Value {
	k := Block{Part: o, Source: None, Target: None}
	if int(b.p.Rank) == o {
		k.Source = 0
	}
	if target {
		k.Target = o
	}
	return b.begin(k)
}

// allGatherRing is the second half of ring: block o travels from rank o to rank o-1. n-1
// steps, (n-1)/n of the output received by each rank, which is the bound.
func (b *builder) allGatherRing() {
	n, r := b.p.N, int(b.p.Rank)
	b.p.Steps = n - 1
	prev, next := b.neighbours()
	for o := range n {
		own := b.ownOperand(o, true)
		at := (r - o + n) % n // position on the way from the owner
		if at == 0 {
			b.send(0, next, own)
			b.copyFinal(own)
			continue
		}
		final := b.recvFinal(at-1, prev)
		if at < n-1 {
			b.send(at, next, final)
		}
	}
}
