package schedule

import (
	"slices"

	"github.com/polyrail/polyrail/collective/op"
)

// TreeRadix is the largest group of a tree: a rank has at most TreeRadix-1 children on a level.
const TreeRadix = 8

// A tree has the root at its top. On level l the ranks whose distance from the root is a
// multiple of TreeRadix^(l+1) are the parents of the next TreeRadix-1 multiples of
// TreeRadix^l. So below a rank lie its followers, and the last group of a level is what is
// left. Each direction takes n-1 frames, one on the way of any rank up to TreeRadix ranks:
// where a frame costs a host more than it takes to travel, fewer frames are faster than
// fewer steps (doubling takes n·log₂ n).

// child is a link of the tree, by distances from the root.
type child struct {
	rank op.Rank
	at   int // of the rank
	end  int // of the first rank that is no longer below it
	step int // of frames on the link, in its direction
}

// treeSteps is the number of steps in one direction.
func treeSteps(n int) (steps int) {
	for reach := 1; reach < n; reach *= TreeRadix {
		steps += TreeRadix - 1
	}
	return steps
}

// treeDepth is the largest number of links between a rank and the root: at the rank with the most
// digits that are not 0.
func treeDepth(n int) (depth int) {
	for repunit := 1; repunit < n; repunit = TreeRadix*repunit + 1 {
		depth++
	}
	return depth
}

// links are this rank's children by level, ascending, and what is above it: nil at the root.
func (b *builder) links() (levels [][]child, parent op.Rank, up *child) {
	if b.p.Algorithm == op.Leaders {
		return b.leaderLinks()
	}
	return links(b.p.N, b.relative(), 0, b.ranked)
}

// links are those of the rank at distance d in a tree of n ranks, whose steps begin with step.
func links(n, d, step int, ranked func(d int) op.Rank) (levels [][]child, parent op.Rank, up *child) {
	stride := 1
	for ; stride < n && d/stride%TreeRadix == 0; stride *= TreeRadix {
		var level []child
		for c := 1; c < TreeRadix && d+c*stride < n; c++ {
			at := d + c*stride
			level = append(level, child{ranked(at), at, min(at+stride, n), step + c - 1})
		}
		levels = append(levels, level)
		step += TreeRadix - 1
	}
	if stride >= n {
		return levels, 0, nil
	}
	c := d / stride % TreeRadix
	return levels, ranked(d - c*stride), &child{at: d, end: min(d+stride, n), step: step + c - 1}
}

// stepsUp is the number of steps in one direction of this program's tree.
func (b *builder) stepsUp() int {
	if b.p.Algorithm == op.Leaders {
		h := b.p.Hosts.among(b.p.N)
		return treeSteps(h.most) + treeSteps(len(h.ranks))
	}
	return treeSteps(b.p.N)
}

// fold reduces what comes from below, level by level, each rank's own value first, then its
// children's by ascending distance. So the order of the sum is that of groups of TreeRadix
// neighbours, then of groups of groups. At the root the sum is final.
func (b *builder) fold(levels [][]child, root bool, own Value) Value {
	value := own
	for l, level := range levels {
		args := []Value{value}
		for _, c := range level {
			args = append(args, b.recv(c.step, c.rank))
		}
		switch {
		case len(args) == 1: // the last group of its level, of one
		case root && l == len(levels)-1:
			value = b.reduceFinal(args...)
		default:
			value = b.reduce(args[1], args...)
		}
	}
	return value
}

// spread sends a value to all children, the farthest first.
func (b *builder) spread(levels [][]child, from int, value Value) {
	for l := len(levels) - 1; l >= 0; l-- {
		for _, c := range levels[l] {
			b.send(from+c.step, c.rank, value)
		}
	}
}

// tree is the allreduce that folds to rank 0 and sends the result back: 2(n-1) frames.
func (b *builder) tree() {
	levels, parent, up := b.links()
	steps := b.stepsUp()
	b.p.Steps = 2 * steps
	value := b.fold(levels, up == nil, b.part(0, true, true))
	if up != nil {
		b.send(up.step, parent, value)
		value = b.recvFinal(steps+up.step, parent)
	}
	b.spread(levels, steps, value)
}

// reduceTree is tree's way up, to the root.
func (b *builder) reduceTree() {
	levels, parent, up := b.links()
	b.p.Steps = b.stepsUp()
	value := b.fold(levels, up == nil, b.part(0, true, up == nil))
	if up != nil {
		b.send(up.step, parent, value)
	}
}

// broadcastTree is tree's way down, from the root.
func (b *builder) broadcastTree() {
	levels, parent, up := b.links()
	b.p.Steps = b.stepsUp()
	value := b.part(0, up == nil, up != nil)
	if up != nil {
		value = b.recvFinal(up.step, parent)
	}
	b.spread(levels, 0, value)
}

// blocks are the numbers of blocks from one distance to another, in a program whose first block
// is that of a rank at distance base.
func blocks(from, to, base int) (b []int) {
	for d := from; d < to; d++ {
		b = append(b, d-base)
	}
	return b
}

// below is the range of distances that hang on this rank, itself included.
func (b *builder) below(up *child) (base, end int) {
	if up == nil {
		return b.relative(), b.p.N
	}
	return b.relative(), up.end
}

// gatherTree sends everything below a rank upwards in one frame: n-1 frames instead of
// n-1 at the root, which is what costs when there are many ranks.
func (b *builder) gatherTree() {
	levels, parent, up := b.links()
	b.p.Steps = b.stepsUp()
	base, end := b.below(up)
	own := Value(0)
	for d := base; d < end; d++ {
		v := b.ownOperand(int(b.ranked(d)), up == nil)
		if d == base {
			own = v
		}
	}
	parts := b.collect(levels, base, own)
	if up != nil {
		b.sendTo(0, up.step, parent, b.whole(blocks(base, end, base), parts))
		return
	}
	b.deliver(parts)
}

// collect receives what comes from below: with the rank's own, values that hold all blocks.
func (b *builder) collect(levels [][]child, base int, own Value) []Value {
	parts := []Value{own}
	for _, level := range levels {
		for _, c := range level {
			parts = append(parts, b.recvWide(0, c.step, c.rank, blocks(c.at, c.end, base)))
		}
	}
	return parts
}

// whole is one value of all blocks.
func (b *builder) whole(blocks []int, parts []Value) Value {
	if len(parts) == 1 {
		return parts[0]
	}
	var pieces []Value
	for _, v := range parts { // whose blocks follow each other
		for range b.blocksOf(v) {
			pieces = append(pieces, v)
		}
	}
	return b.pack(blocks, pieces)
}

// deliver copies blocks that lie in values into the user's memory.
func (b *builder) deliver(values []Value) {
	for _, v := range values {
		for _, block := range b.blocksOf(v) {
			b.block = block
			b.copyFinal(v)
		}
	}
}

// scatterTree sends everything below a child downwards in one frame.
func (b *builder) scatterTree() {
	levels, parent, up := b.links()
	b.p.Steps = b.stepsUp()
	base, end := b.below(up)
	held := make([]Value, 0, end-base) // by block, the value that holds it
	for d := base; d < end; d++ {
		k := Block{Part: int(b.ranked(d)), Source: None, Target: None}
		if up == nil {
			k.Source = k.Part
		}
		if d == base {
			k.Target = 0
		}
		v := b.begin(k)
		if up == nil {
			held = append(held, v)
		}
	}
	if up != nil {
		got := b.recvWide(0, up.step, parent, blocks(base, end, base))
		held = slices.Repeat([]Value{got}, end-base)
	}
	for l := len(levels) - 1; l >= 0; l-- {
		for _, c := range levels[l] {
			below := blocks(c.at, c.end, base)
			value := held[below[0]]
			if len(below) > 1 || up != nil {
				value = b.pack(below, held[below[0]:][:len(below)])
			}
			b.sendTo(0, c.step, c.rank, value)
		}
	}
	b.block = 0
	b.copyFinal(held[0])
}

// allGatherTree gathers to rank 0 and broadcasts everything: 2(n-1) frames, where the
// direct way takes n(n-1).
func (b *builder) allGatherTree() {
	levels, parent, up := b.links()
	steps := b.stepsUp()
	b.p.Steps = 2 * steps
	r, n := int(b.p.Rank), b.p.N
	var own Value
	for o := range n {
		if v := b.ownOperand(o, true); o == r {
			own = v
		}
	}
	parts := b.collect(levels, 0, own)
	var all Value
	if up == nil {
		all = b.whole(blocks(0, n, 0), parts)
	} else {
		b.sendTo(0, up.step, parent, b.whole(blocks(r, up.end, 0), parts))
		all = b.recvWide(0, steps+up.step, parent, blocks(0, n, 0))
	}
	for l := len(levels) - 1; l >= 0; l-- {
		for _, c := range levels[l] {
			b.sendTo(0, steps+c.step, c.rank, all)
		}
	}
	b.deliver([]Value{all})
}
