package schedule

import (
	"slices"

	"github.com/polyrail/polyrail/collective/op"
)

// halves is how far a rank is in a reduce-scatter, an allgather, or both, whose frames hold several
// blocks. A block has its owner's number.
type halves struct {
	*builder
	have map[int]Value // by block, what it lies in
	step int
}

func (b *builder) halves() halves { return halves{builder: b, have: make(map[int]Value, b.p.N)} }

// operands begins all blocks, each as begin does for its owner.
func (h *halves) operands(begin func(owner int) Value) {
	for o := range h.p.N {
		h.have[o] = begin(o)
	}
}

// whole is begin for an allreduce.
func (h *halves) whole(owner int) Value { return h.part(owner, true, true) }

// allGatherBy begins the blocks of an allgather, of which the rank has its own, and lets spread give
// it to all.
func (h *halves) allGatherBy(spread func()) {
	r := int(h.p.Rank)
	for o := range h.p.N {
		if v := h.ownOperand(o, true); o == r {
			h.have[o] = v
		}
	}
	spread()
	h.block = r
	h.copyFinal(h.have[r])
}

// gather is one value of these blocks: the one that they alone lie in, or a copy.
func (h *halves) gather(blocks []int) Value {
	if v := h.have[blocks[0]]; slices.Equal(h.blocksOf(v), blocks) {
		return v
	}
	pieces := make([]Value, len(blocks))
	for i, o := range blocks {
		pieces[i] = h.have[o]
	}
	return h.pack(blocks, pieces)
}

// take receives final values.
func (h *halves) take(step int, from op.Rank, blocks []int) {
	if len(blocks) == 1 {
		h.have[blocks[0]] = h.add(Instr{Kind: Recv, Blocks: blocks, Step: step, Peer: from, Store: Place{Kind: Final}})
		return
	}
	got := h.recvWide(0, step, from, blocks)
	for _, o := range blocks {
		h.block, h.have[o] = o, got
		h.copyFinal(got)
	}
}
