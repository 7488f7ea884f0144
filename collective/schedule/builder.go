package schedule

import (
	"slices"

	"github.com/polyrail/polyrail/collective/op"
)

// builder writes a program.
type builder struct {
	p       *Program
	block   int       // that instructions are of: the last one that was begun
	readers [][]Value // by block: what reads its input, so far
	line    []op.Rank // by distance from the root; nil: ranks follow each other
}

// part is a block with the length of a part, of which the rank has an operand and wants
// the result where the flags say so. Instructions that follow are of this block.
func (b *builder) part(part int, source, target bool) Value {
	k := Block{Part: part, Source: None, Target: None}
	if source {
		k.Source = part
	}
	if target {
		k.Target = part
	}
	return b.begin(k)
}

// begin adds a block and returns its input.
func (b *builder) begin(k Block) Value {
	b.p.Blocks = append(b.p.Blocks, k)
	b.readers = append(b.readers, nil)
	b.block = len(b.p.Blocks) - 1
	return Input(b.block)
}

func (b *builder) add(in Instr) Value {
	if in.Blocks == nil {
		in.Blocks = []int{b.block}
	}
	v := Value(len(b.p.Code))
	b.p.Code = append(b.p.Code, in)
	for _, a := range in.Args {
		if block, ok := a.Input(); ok {
			b.readers[block] = append(b.readers[block], v)
		}
	}
	return v
}

// hazards are the instructions so far that read the current block's input.
func (b *builder) hazards() []Value { return slices.Clone(b.readers[b.block]) }

// slot is scratch that no other value has used.
func (b *builder) slot(blocks []int) Place {
	b.p.Slots = append(b.p.Slots, blocks)
	return Place{Kind: Scratch, Slot: len(b.p.Slots) - 1}
}

// recv receives an operand into a scratch slot of its own: its sender may be any number
// of steps ahead of us, so that no other value's slot is sure to be free.
func (b *builder) recv(step int, from op.Rank) Value {
	return b.add(Instr{Kind: Recv, Step: step, Mark: b.block, Peer: from, Store: b.slot([]int{b.block})})
}

// recvWide receives several blocks in one frame.
func (b *builder) recvWide(mark, step int, from op.Rank, blocks []int) Value {
	return b.add(Instr{Kind: Recv, Blocks: blocks, Step: step, Mark: mark, Peer: from, Store: b.slot(blocks)})
}

// recvFinal receives the final value.
func (b *builder) recvFinal(step int, from op.Rank) Value {
	return b.add(Instr{Kind: Recv, Step: step, Mark: b.block, Peer: from, Store: Place{Kind: Final}})
}

// send sends a value to a rank in whose program it is of the block with the same number.
func (b *builder) send(step int, to op.Rank, v Value) Value { return b.sendTo(b.block, step, to, v) }

// sendTo sends a value to a rank in whose program it is of block mark.
func (b *builder) sendTo(mark, step int, to op.Rank, v Value) Value {
	return b.add(Instr{Kind: Send, Blocks: b.blocksOf(v), Step: step, Mark: mark, Peer: to, Args: []Value{v}})
}

func (b *builder) blocksOf(v Value) []int {
	if block, ok := v.Input(); ok {
		return []int{block}
	}
	return b.p.Code[v].Blocks
}

// reduce folds args over the value in scratch that is called over: the first or second of them.
func (b *builder) reduce(over Value, args ...Value) Value {
	v := b.p.Code[over]
	return b.add(Instr{Kind: Reduce, Blocks: v.Blocks, Args: args, Store: v.Store})
}

// reduceEach folds values over the first of them, each as soon as it is there and those before it
// are folded.
func (b *builder) reduceEach(args []Value) Value {
	sum := args[0]
	for _, a := range args[1:] {
		sum = b.reduce(sum, sum, a)
	}
	return sum
}

// reduceApart folds args into scratch of its own, where others still read them.
func (b *builder) reduceApart(args ...Value) Value {
	return b.add(Instr{Kind: Reduce, Args: args, Store: b.slot([]int{b.block})})
}

// reduceFinal folds args into Final. An Input beyond the second argument might be
// overwritten (it may be the same memory) before it is read, so what stands before it is
// folded first; the order stays the same.
func (b *builder) reduceFinal(args ...Value) Value {
	if i := slices.Index(args, Input(b.block)); i >= 2 {
		args = append([]Value{b.reduceEach(args[:i])}, args[i:]...)
	}
	return b.add(Instr{Kind: Reduce, Last: b.averages(), Args: args, Store: Place{Kind: Final},
		Hazards: b.hazards()})
}

// averages reports whether results are sums over all ranks. Those of a scan are not, and are sums
// that ranks pass on.
func (b *builder) averages() bool {
	return b.p.Kind.Reduces() && b.p.Kind != op.KindScan && b.p.Kind != op.KindExScan
}

// copyFinal copies a value, or the current block of a wide value, into Final.
func (b *builder) copyFinal(v Value) Value {
	return b.add(Instr{Kind: Copy, Args: []Value{v}, Store: Place{Kind: Final}, Hazards: b.hazards()})
}

// pack makes one wide value of blocks, each of which lies in the value of the same index.
func (b *builder) pack(blocks []int, pieces []Value) Value {
	var args []Value
	for _, v := range pieces {
		if !slices.Contains(args, v) {
			args = append(args, v)
		}
	}
	return b.add(Instr{Kind: Copy, Blocks: blocks, Args: args, Pieces: pieces, Store: b.slot(blocks)})
}

// alone is what one rank does by itself: it has all operands of each result.
func (b *builder) alone() {
	source, target := wants(b.p.Spec)
	for part := range b.p.Parts {
		in := b.part(part, source, target)
		if source && target {
			b.add(Instr{Kind: Copy, Last: b.averages(), Args: []Value{in}, Store: Place{Kind: Final}})
		}
	}
}

// finish derives what the program's readers look up.
func (b *builder) finish() *Program {
	p := b.p
	for v := range p.Code {
		b.derive(Value(v))
	}
	for _, recvs := range p.recvs {
		slices.SortFunc(recvs, func(x, y Value) int { return p.Code[x].Step - p.Code[y].Step })
	}
	slices.Sort(p.From)
	p.From = slices.Compact(p.From)
	slices.Sort(p.To)
	p.To = slices.Compact(p.To)
	for i := range p.Code {
		switch in := &p.Code[i]; in.Kind {
		case Recv:
			in.Link, _ = slices.BinarySearch(p.From, in.Peer)
		case Send:
			in.Link, _ = slices.BinarySearch(p.To, in.Peer)
		}
	}
	return p
}

// derive fills in what follows from one instruction.
func (b *builder) derive(v Value) {
	p := b.p
	in := &p.Code[v]
	for i, a := range append(slices.Clone(in.Args), in.After...) {
		if _, ok := a.Input(); ok {
			in.User = true
			continue
		}
		arg := &p.Code[a]
		if i < len(in.Args) {
			in.User = in.User || arg.Store.Kind == Final
			in.Scratch = in.Scratch || arg.Store.Kind == Scratch
		}
		if !slices.Contains(arg.Uses, v) {
			arg.Uses = append(arg.Uses, v)
		}
	}
	for _, h := range in.Hazards {
		p.Code[h].Frees = append(p.Code[h].Frees, v)
	}
	in.User = in.User || in.Store.Kind == Final
	in.Scratch = in.Scratch || in.Store.Kind == Scratch
	switch in.Kind {
	case Copy:
		if in.Pieces == nil {
			in.Pieces = in.Args // one block of one value
		}
	case Recv:
		p.From = append(p.From, in.Peer)
		for len(p.recvs) <= in.Mark {
			p.recvs = append(p.recvs, nil)
		}
		p.recvs[in.Mark] = append(p.recvs[in.Mark], v)
	case Send:
		p.To = append(p.To, in.Peer)
	}
}
