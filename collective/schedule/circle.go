package schedule

import (
	"slices"

	"github.com/polyrail/polyrail/collective/op"
)

// allReduceBruck halves what is left to be summed until each rank has its own block, and doubles what
// it has of the result in the reverse order (Bruck et al., 1997; Träff, 2024). It takes 2·⌈log₂ n⌉
// steps with one frame each, for any n, and sends as few bytes as the ring.
//
// A rank knows blocks by how far ahead of it their owners are. In a step of the reduce-scatter it
// sends the farther half, or less, to the rank that far ahead, and folds what comes behind what it has.
func (b *builder) allReduceBruck() {
	c := b.circle()
	c.reduceScatter(c.whole)
	c.allGather()
}

// reduceScatterBruck is the first half of allReduceBruck. A rank sends (n-1)/n of its source, which
// is the bound.
func (b *builder) reduceScatterBruck() { b.circle().reduceScatter(b.ownResult) }

// allGatherBruck is the second half of allReduceBruck (Bruck et al., 1997). A rank receives (n-1)/n
// of the output, which is the bound.
func (b *builder) allGatherBruck() {
	c := b.circle()
	c.allGatherBy(c.allGather)
}

// circle is how far a rank is in allReduceBruck.
type circle struct {
	halves
	cuts []cut
}

func (b *builder) circle() *circle { return &circle{b.halves(), halving(b.p.N)} }

// cut divides the blocks of the owners that are 0 … end-1 places ahead: at is where the farther ones
// begin, which are as many as the nearer ones or one less.
type cut struct{ at, end int }

// halving are the cuts that leave one of n.
func halving(n int) (cuts []cut) {
	for n > 1 {
		c := cut{(n + 1) / 2, n}
		cuts, n = append(cuts, c), c.at
	}
	return cuts
}

// far is how many blocks are beyond the cut.
func (c cut) far() int { return c.end - c.at }

// ahead is the rank so many places ahead, or behind if less than 0.
func (c *circle) ahead(places int) op.Rank {
	return op.Rank((int(c.p.Rank) + places + c.p.N) % c.p.N)
}

// owned are the blocks of those from … to-1 places ahead.
func (c *circle) owned(from, to int) (blocks []int) {
	for i := from; i < to; i++ {
		blocks = append(blocks, int(c.ahead(i)))
	}
	return blocks
}

// reduceScatter leaves each rank with the final value of its own block. begin begins the block of an
// owner.
func (c *circle) reduceScatter(begin func(owner int) Value) {
	c.operands(begin)
	for _, k := range c.cuts {
		c.sendTo(0, c.step, c.ahead(k.at), c.gather(c.owned(k.at, k.end)))
		blocks := c.owned(0, k.far())
		kept := c.gather(blocks)
		got := c.recvWide(0, c.step, c.ahead(-k.at), blocks)
		var sum Value
		if c.block = blocks[0]; k.at == 1 {
			sum = c.reduceFinal(kept, got)
		} else {
			sum = c.reduce(got, kept, got)
		}
		for _, o := range blocks {
			c.have[o] = sum
		}
		c.step++
	}
	c.p.Steps = c.step
}

// allGather gives all ranks what each has.
func (c *circle) allGather() {
	for _, k := range slices.Backward(c.cuts) {
		c.sendTo(0, c.step, c.ahead(-k.at), c.gather(c.owned(0, k.far())))
		c.take(c.step, c.ahead(k.at), c.owned(k.at, k.end))
		c.step++
	}
	c.p.Steps = c.step
}
