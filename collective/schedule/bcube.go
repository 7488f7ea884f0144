package schedule

import (
	"slices"

	"github.com/polyrail/polyrail/collective/op"
)

// Dimensions is how Bcube of a base arranges n ranks: the sizes of its groups, from the
// closest ranks outwards, whose product is n. They are n's prime factors in ascending
// order, each merged into the dimension before as long as the product stays within base;
// a prime factor above base is a dimension of its own.
func Dimensions(n, base int) []int {
	var dims []int
	group := 1
	for f := 2; n > 1; {
		if f*f > n {
			f = n // what is left is prime
		}
		if n%f != 0 {
			f++
			continue
		}
		n /= f
		if group*f <= base {
			group *= f
			continue
		}
		if group > 1 {
			dims = append(dims, group)
		}
		group = f
	}
	if group > 1 {
		dims = append(dims, group)
	}
	return dims
}

// bcube reduces dimension by dimension. Ranks are numbered in the mixed radix of the
// dimensions; a group of dimension d is the ranks that differ in digit d alone. In the
// reduce-scatter each rank sends each other one of its group the blocks whose owners have that
// one's digit, of those that it still has, in one frame. It folds what it gets by ascending rank.
// Then the final values go out in the reverse order of dimensions. With base 2 this is recursive
// halving and doubling (Rabenseifner, 2004). A frame's step is different for each sender of a
// group (its distance from the receiver), which names it at its receiver.
func (b *builder) bcube() {
	c := b.cube()
	c.reduceScatter(c.whole)
	c.allGather()
}

// reduceScatterBcube is the first half of bcube. A rank sends (n-1)/n of its source, which is the bound.
func (b *builder) reduceScatterBcube() { b.cube().reduceScatter(b.ownResult) }

// allGatherBcube is the second half of bcube. A rank receives (n-1)/n of the output, which is the bound.
func (b *builder) allGatherBcube() {
	c := b.cube()
	c.blocks, c.stride = []int{int(b.p.Rank)}, b.p.N
	c.allGatherBy(c.allGather)
}

// cube is how far a rank is in bcube.
type cube struct {
	halves
	dims   []int
	blocks []int // that it has: of the owners whose digits are its own so far
	stride int   // of the dimension at hand
}

func (b *builder) cube() *cube {
	return &cube{halves: b.halves(), dims: Dimensions(b.p.N, b.p.Base), stride: 1}
}

// reduceScatter leaves each rank with the final value of its own block. begin begins the block of an
// owner.
func (c *cube) reduceScatter(begin func(owner int) Value) {
	c.operands(begin)
	for o := range c.p.N {
		c.blocks = append(c.blocks, o)
	}
	for _, size := range c.dims {
		c.scatter(size)
	}
	c.p.Steps = c.step
}

// allGather gives all ranks what each has.
func (c *cube) allGather() {
	for _, size := range slices.Backward(c.dims) {
		c.spread(size)
	}
	c.p.Steps = c.step
}

// mine is this rank's digit in a dimension of that size.
func (c *cube) mine(size int) int { return int(c.p.Rank) / c.stride % size }

// partner is the rank of this one's group that has the digit.
func (c *cube) partner(digit, size int) op.Rank {
	return op.Rank(int(c.p.Rank) + (digit-c.mine(size))*c.stride)
}

// scatter gives each partner the blocks that are on their way to its digit, and folds those that
// stay.
func (c *cube) scatter(size int) {
	mine := c.mine(size)
	args := make([]Value, size)
	var kept []int
	for i := range size { // each rank to others first
		digit := (mine + 1 + i) % size
		theirs := slices.DeleteFunc(slices.Clone(c.blocks), func(o int) bool { return o/c.stride%size != digit })
		args[digit] = c.gather(theirs)
		if digit == mine {
			kept = theirs
		} else {
			c.sendTo(0, c.step+distance(digit, mine, size), c.partner(digit, size), args[digit])
		}
	}
	for digit := range size {
		if digit != mine {
			args[digit] = c.recvWide(0, c.step+distance(mine, digit, size), c.partner(digit, size), kept)
		}
	}
	c.block, c.blocks = kept[0], kept
	c.stride, c.step = c.stride*size, c.step+size-1
	var sum Value
	if c.stride == c.p.N {
		sum = c.reduceFinal(args...)
	} else {
		sum = c.reduce(args[0], args...)
	}
	for _, o := range kept {
		c.have[o] = sum
	}
}

// spread gives each partner the final values that this rank has, and takes those that it has.
func (c *cube) spread(size int) {
	c.stride /= size
	mine, sent := c.mine(size), c.gather(c.blocks)
	for i := 1; i < size; i++ {
		digit := (mine + i) % size
		c.sendTo(0, c.step+distance(digit, mine, size), c.partner(digit, size), sent)
	}
	for i := 1; i < size; i++ {
		digit := (mine + i) % size
		theirs := slices.Clone(c.blocksOf(sent))
		for k := range theirs {
			theirs[k] += (digit - mine) * c.stride
		}
		c.blocks = append(c.blocks, theirs...)
		c.take(c.step+distance(mine, digit, size), c.partner(digit, size), theirs)
	}
	c.step += size - 1
}

// distance numbers the senders of a group of so many as one receiver sees them: 0 … size-2.
func distance(receiver, sender, size int) int {
	return (sender-receiver+size)%size - 1
}
