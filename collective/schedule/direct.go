package schedule

import "github.com/polyrail/polyrail/collective/op"

// In direct algorithms every operand goes straight to the rank that wants it: one step. A
// rank sends to its successors first, each rank to others, so that no link waits for what
// another one is busy with.

// reduceScatterDirect sends the operand of block o to rank o, which folds in the order of the
// ring: o+1, o+2, …, o. One step, n(n-1) frames: for small operations.
func (b *builder) reduceScatterDirect() {
	n, r := b.p.N, int(b.p.Rank)
	b.p.Steps = n
	for i := range n {
		o := (r + 1 + i) % n
		own := b.ownResult(o)
		if o != r {
			b.sendTo(n-1, r, op.Rank(o), own) // a rank's own block is its last one
			continue
		}
		args := make([]Value, 0, n)
		for k := 1; k < n; k++ {
			from := (r + k) % n
			args = append(args, b.recv(from, op.Rank(from)))
		}
		b.reduceFinal(append(args, own)...)
	}
}

// allGatherDirect sends each operand to all. One step, n(n-1) frames.
func (b *builder) allGatherDirect() {
	n, r := b.p.N, int(b.p.Rank)
	b.p.Steps = 1
	for o := range n {
		own := b.ownOperand(o, true)
		if o != r {
			b.recvFinal(0, op.Rank(o))
			continue
		}
		for i := 1; i < n; i++ {
			b.send(0, op.Rank((r+i)%n), own)
		}
		b.copyFinal(own)
	}
}

// gatherDirect sends each operand to the root, whose link is the bound: (n-1)/n of the output.
func (b *builder) gatherDirect() {
	n, r, root := b.p.N, int(b.p.Rank), int(b.p.Root)
	b.p.Steps = 1
	if r != root {
		b.sendTo(r, 0, b.p.Root, b.ownOperand(r, false))
		return
	}
	for o := range n {
		own := b.ownOperand(o, true)
		if o == root {
			b.copyFinal(own)
		} else {
			b.recvFinal(0, op.Rank(o))
		}
	}
}

// scatterDirect sends each part of the root's source to its rank. The root's link is the
// bound: (n-1)/n of the input.
func (b *builder) scatterDirect() {
	n, r, root := b.p.N, int(b.p.Rank), int(b.p.Root)
	b.p.Steps = 1
	if r != root {
		b.begin(Block{Part: r, Source: None, Target: 0})
		b.recvFinal(0, b.p.Root)
		return
	}
	for i := range n {
		o := (r + 1 + i) % n
		if o == root {
			b.copyFinal(b.begin(Block{Part: o, Source: o, Target: 0}))
		} else {
			b.sendTo(0, 0, op.Rank(o), b.part(o, true, false))
		}
	}
}

// allToAllDirect sends part j of each rank's source to rank j, where it becomes part r of the
// destination. Each rank sends (n-1)/n of its source, which is the bound. It goes in turns
// (pairwise exchange): in turn t a rank sends to the one t beyond it, when what came from the
// one t-1 before it is there. Without turns several ranks send to one while another one's link
// is idle.
//
// In place the parts {i, j} and {j, i} change places: what is received waits in scratch until
// the part that lay there has gone. Then a rank takes no turns: by shift it would wait for a part
// whose place depends on its own send, and the others' turns need that none waits for it.
func (b *builder) allToAllDirect() {
	n, r := b.p.N, int(b.p.Rank)
	b.p.Steps = 1
	b.copyFinal(b.part(r, true, true))
	var before []Value // what came in the turn before
	for t := 1; t < n; t++ {
		to, from := (r+t)%n, (r-t+n)%n
		if b.p.InPlace {
			b.sendTo(turnMark(t), 0, op.Rank(to), b.part(to, true, true))
			got := b.add(Instr{Kind: Recv, Mark: turnMark(n - t), Peer: op.Rank(to),
				Store: b.slot([]int{b.block})})
			b.copyFinal(got)
			continue
		}
		sent := b.sendTo(turnMark(t), 0, op.Rank(to), b.part(to, true, false))
		b.part(from, false, true)
		b.p.Code[sent].After = before
		before = []Value{b.recvFinal(0, op.Rank(from))}
	}
}

// turnMark names what a rank gets from the one t before it: the same whether it works in place or
// not.
func turnMark(t int) int { return 2 * t }
