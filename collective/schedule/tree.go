package schedule

import "github.com/polyrail/polyrail/collective/op"

// TreeRadix is the largest group of Tree: a rank has at most TreeRadix-1 children on a level.
const TreeRadix = 8

// tree reduces to rank 0 and sends the result back the same way. On level l the ranks whose
// number is a multiple of TreeRadix^(l+1) fold their own value and those of the next
// TreeRadix-1 multiples of TreeRadix^l, by ascending rank. So the order of the sum is that of
// groups of TreeRadix neighbours, then of groups of groups, the last group of a level
// being what is left. A frame's step is its level's first and the number of the child.
//
// 2(n-1) frames in all, two on the way of any rank up to TreeRadix ranks. Doubling
// takes n·log₂ n frames and as many on the way as there are rounds, four with six ranks:
// where a frame costs a host more than it takes to travel, fewer frames are faster.
func (b *builder) tree() {
	n, r := b.p.N, int(b.p.Rank)
	levels := 0
	for reach := 1; reach < n; reach *= TreeRadix {
		levels++
	}
	steps := levels * (TreeRadix - 1)
	b.p.Steps = 2 * steps
	b.owner()
	value, level, stride := Input, 0, 1
	for ; level < levels && r/stride%TreeRadix == 0; level, stride = level+1, stride*TreeRadix {
		args := []Value{value}
		for child := 1; child < TreeRadix && r+child*stride < n; child++ {
			args = append(args, b.recv(level*(TreeRadix-1)+child-1, op.Rank(r+child*stride)))
		}
		switch {
		case len(args) == 1: // the last group of its level, of one
		case level == levels-1:
			value = b.reduceFinal(args...)
		default:
			value = b.reduce(args[1], args...)
		}
	}
	if r > 0 {
		child := r / stride % TreeRadix
		step, parent := level*(TreeRadix-1)+child-1, op.Rank(r-child*stride)
		b.send(step, parent, value)
		value = b.recvFinal(steps+step, parent)
	}
	for level--; level >= 0; level-- {
		stride /= TreeRadix
		for child := 1; child < TreeRadix && r+child*stride < n; child++ {
			b.send(steps+level*(TreeRadix-1)+child-1, op.Rank(r+child*stride), value)
		}
	}
}
