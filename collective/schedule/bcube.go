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
	n, r, dims := b.p.N, int(b.p.Rank), Dimensions(b.p.N, b.p.Base)
	have := make(map[int]Value, n) // the value that a block lies in
	blocks := make([]int, n)       // that it has: of the owners whose digits are its own so far
	for o := range n {
		blocks[o], have[o] = o, b.part(o, true, true)
	}
	stride, step := 1, 0
	for _, size := range dims {
		mine := r / stride % size
		args := make([]Value, size)
		var kept []int
		for digit := range size {
			theirs := slices.DeleteFunc(slices.Clone(blocks), func(o int) bool { return o/stride%size != digit })
			args[digit] = b.gather(theirs, have)
			if digit == mine {
				kept = theirs
			} else {
				b.sendTo(0, step+distance(digit, mine, size), op.Rank(r+(digit-mine)*stride), args[digit])
			}
		}
		for digit := range size {
			if digit != mine {
				args[digit] = b.recvWide(0, step+distance(mine, digit, size), op.Rank(r+(digit-mine)*stride), kept)
			}
		}
		b.block, blocks = kept[0], kept
		stride, step = stride*size, step+size-1
		sum := Value(0)
		if stride == n {
			sum = b.reduceFinal(args...)
		} else {
			sum = b.reduce(args[0], args...)
		}
		for _, o := range kept {
			have[o] = sum
		}
	}
	b.p.Steps = 2 * step
	for d := len(dims) - 1; d >= 0; d-- {
		size := dims[d]
		stride /= size
		mine, sent := r/stride%size, b.gather(blocks, have)
		for i := 1; i < size; i++ {
			digit := (mine + i) % size
			b.sendTo(0, step+distance(digit, mine, size), op.Rank(r+(digit-mine)*stride), sent)
		}
		for i := 1; i < size; i++ {
			digit := (mine + i) % size
			theirs := make([]int, 0, n)
			for _, o := range b.blocksOf(sent) {
				theirs = append(theirs, o+(digit-mine)*stride)
			}
			from, at := op.Rank(r+(digit-mine)*stride), step+distance(mine, digit, size)
			if len(theirs) == 1 {
				have[theirs[0]] = b.add(Instr{Kind: Recv, Blocks: theirs, Step: at, Peer: from, Store: Place{Kind: Final}})
			} else {
				got := b.recvWide(0, at, from, theirs)
				for _, o := range theirs {
					b.block, have[o] = o, got
					b.copyFinal(got)
				}
			}
			blocks = append(blocks, theirs...)
		}
		step += size - 1
	}
}

// gather is one value of these blocks: the one that they alone lie in, or a copy.
func (b *builder) gather(blocks []int, have map[int]Value) Value {
	if v := have[blocks[0]]; slices.Equal(b.blocksOf(v), blocks) {
		return v
	}
	pieces := make([]Value, len(blocks))
	for i, o := range blocks {
		pieces[i] = have[o]
	}
	return b.pack(blocks, pieces)
}

// distance numbers the senders of a group of so many as one receiver sees them: 0 … size-2.
func distance(receiver, sender, size int) int {
	return (sender-receiver+size)%size - 1
}
