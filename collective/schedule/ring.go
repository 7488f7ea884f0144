package schedule

import "github.com/polyrail/polyrail/collective/op"

// ring is the ring allreduce: owner o's block travels from rank o+1 through all ranks to
// rank o, each adding its own operand to what it received, then on from rank o to rank o-1
// as the final value. So the order of the sum is o+1, o+2, …, o. 2(n-1) steps.
func (b *builder) ring() {
	n, r := b.p.N, int(b.p.Rank)
	b.p.Steps = 2 * (n - 1)
	prev, next := op.Rank((r+n-1)%n), op.Rank((r+1)%n)
	for o := range n {
		b.owner()
		at := (r - o - 1 + 2*n) % n // position on the way to the owner: 0 … n-1
		sum := Input
		if at > 0 {
			got := b.recv(at-1, prev)
			if at == n-1 {
				b.send(n-1, next, b.reduceFinal(got, Input))
				continue
			}
			sum = b.reduce(got, got, Input)
		}
		b.send(at, next, sum)
		final := b.recvFinal(n-1+at, prev)
		if at < n-2 {
			b.send(n+at, next, final)
		}
	}
}
