package schedule

import "github.com/polyrail/polyrail/collective/op"

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
// reduce-scatter, within each group each rank gets from all others what concerns the owners
// that have its digit, and folds by ascending rank; then owners' finals go out
// in the reverse order of dimensions. A frame's step is different for each sender of a
// group (its distance from the receiver), so that (owner, step) names a frame at its receiver.
func (b *builder) bcube() {
	n, r, dims := b.p.N, int(b.p.Rank), Dimensions(b.p.N, b.p.Base)
	steps := 0 // of the reduce-scatter
	for _, d := range dims {
		steps += d - 1
	}
	b.p.Steps = 2 * steps
	for o := range n {
		// The way of the reduce-scatter: as long as our digits are the owner's, we fold.
		// apart: the first dimension in which we differ from the owner.
		value, apart := b.part(o, true, true), len(dims)
		stride, step := 1, 0
		for d, size := range dims {
			mine, theirs := r/stride%size, o/stride%size
			if mine != theirs {
				apart = d
				b.send(step+distance(theirs, mine, size), op.Rank(r+(theirs-mine)*stride), value)
				break
			}
			args := make([]Value, size)
			for digit := range args {
				if args[digit] = value; digit != mine {
					args[digit] = b.recv(step+distance(mine, digit, size), op.Rank(r+(digit-mine)*stride))
				}
			}
			if d == len(dims)-1 {
				value = b.reduceFinal(args...)
			} else {
				value = b.reduce(scratchOf(args), args...)
			}
			stride *= size
			step += size - 1
		}
		// The way back: the final value comes in the dimension that sets us apart, and goes
		// out in those before it.
		if apart < len(dims) {
			size := dims[apart]
			mine, theirs := r/stride%size, o/stride%size
			value = b.recvFinal(steps+step+distance(mine, theirs, size), op.Rank(r+(theirs-mine)*stride))
		}
		for d := apart - 1; d >= 0; d-- {
			size := dims[d]
			stride /= size
			step -= size - 1
			mine := r / stride % size
			for i := 1; i < size; i++ {
				digit := (mine + i) % size
				b.send(steps+step+distance(digit, mine, size), op.Rank(r+(digit-mine)*stride), value)
			}
		}
	}
}

// distance numbers the senders of a group of so many as one receiver sees them: 0 … size-2.
func distance(receiver, sender, size int) int {
	return (sender-receiver+size)%size - 1
}

// scratchOf is the first of args that lies in scratch, which is the first or second:
// only one of them is Input.
func scratchOf(args []Value) Value {
	if _, ok := args[0].Input(); ok {
		return args[1]
	}
	return args[0]
}
