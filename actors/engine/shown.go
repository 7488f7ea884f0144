package engine

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/polyrail/polyrail/collective/fault"
	"github.com/polyrail/polyrail/collective/op"
	"github.com/polyrail/polyrail/collective/reduce"
	"github.com/polyrail/polyrail/collective/schedule"
	"github.com/polyrail/polyrail/collective/task"
	"github.com/polyrail/polyrail/messages/wire"
	"github.com/polyrail/polyrail/railactors"
	"github.com/polyrail/polyrail/railactors/board"
)

// This file is about operations whose operands the ranks show each other (Group.shows). They have
// no parts: each rank has all operands in the end, and folds them in the order of the algorithm.

// shown is such an operation at this rank.
type shown struct {
	active   bool
	missing  atomic.Uint64   // by rank, a bit: operands not come, or not given; changed under Operation.mu
	folds    []schedule.Fold // in the order of the algorithm
	stride   int
	operands []byte // by rank, stride apart
}

// operandAlign is a multiple of what any element type and any kernel wants.
const operandAlign = 64

// prepareShown readies an operation that was numbered. It stays with the operation when it is
// pooled.
func (o *Operation) prepareShown(c *cut, polls bool) {
	x := &o.shown
	x.active, x.folds = true, c.folds
	x.missing.Store(0) // until it is launched nothing is taken
	x.stride = (o.request.bytes + operandAlign - 1) &^ (operandAlign - 1)
	if need := x.stride * o.group.Size; len(x.operands) < need {
		x.operands = make([]byte, need)
	}
	o.work.boards = o.group.boards
	if polls {
		o.work.from = append(o.work.from[:0], source{boards: o.group.boards})
		if !o.group.boards.whole.Load() { // frames come too
			o.work.from = o.group.carriers(o.work.from)
		}
	}
	o.group.boards.enter(o)
}

// carriers appends the pairs over which any rank's frames come.
func (g *Group) carriers(from []source) []source {
	for _, p := range g.Peers {
		if p == nil {
			continue
		}
		if rail := p.Carrier(0); p.Pollable(rail) {
			from = append(from, source{peer: p, rail: rail})
		}
	}
	return from
}

func (o *Operation) operandOf(rank op.Rank) []byte {
	at := int(rank) * o.shown.stride
	return o.shown.operands[at : at+o.request.bytes : at+o.shown.stride]
}

// startShown is startParts of such an operation. Under mu.
func (o *Operation) startShown() {
	o.unresolved, o.unretired = 1, 1
	o.rails, o.outgoing = o.rails[:0], o.outgoing[:0]
	copy(o.operandOf(o.group.Rank), o.memory[task.Input])
	o.shown.missing.Store(o.group.boards.others | 1<<o.group.Rank)
}

// showOperand gives this rank's operand to the others.
func (o *Operation) showOperand() {
	g := o.group
	if t := g.trace.Load(); t != nil {
		for rank := range ranksOf(g.boards.others) {
			o.record(t, &TraceEvent{At: o.now(t), Kind: TraceSend, Rail: -1, Peer: int(rank), Count: 1, Bytes: o.request.bytes})
		}
	}
	for rank := range ranksOf(g.boards.show(o)) {
		f := frames.Get().(*railactors.Frame)
		f.Header, f.Owner = o.header(wire.KindData), loose{}
		f.Header.Count, f.Header.Length = 1, uint32(o.request.bytes)
		f.Payload = append([]byte(nil), o.operandOf(g.Rank)...)
		o.owner.Hand(f, g.Peers[rank])
	}
	o.mu.Lock() // only now may it be folded
	own := o.shown.missing.Load()&(1<<g.Rank) != 0 && o.came(g.Rank)
	o.mu.Unlock()
	if own {
		o.finishShown()
	} else if !o.request.Waits { // what came before the launch was not taken, and nobody polls
		g.boards.look()
	}
}

// loose owns frames whose payload is nobody's.
type loose struct{}

// Released implements railactors.FrameOwner. That the frame never arrived is no news: the loss of
// the peer is.
func (loose) Released(f *railactors.Frame, _ error) { recycle(f) }

// take takes what a rank shows. complete: it was the last operand; who took it calls finishShown.
// With an error the operation is held.
func (o *Operation) take(rank op.Rank, from board.Reader) (complete bool, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.cause != nil || o.shown.missing.Load()&(1<<rank) == 0 { // a frame may have brought it meanwhile
		return false, nil
	}
	took, other := from.Take(o.Seq, o.shape.digest, o.shape.table, o.operandOf(rank))
	switch {
	case took:
		if t := o.group.trace.Load(); t != nil {
			o.received(t, o.stamp(time.Since(processBegan)), o.group.Peers[rank].Carrier(0), rank,
				&wire.Header{Count: 1, Length: uint32(o.request.bytes)})
		}
		return o.came(rank), nil
	case !other:
		return false, nil
	}
	o.holds++
	call := from.Call(o.Seq)
	err = o.compare(rank, &wire.Header{Digest: call.Digest, Table: call.Table, Desc: call.Desc})
	if err == nil {
		err = fmt.Errorf("%w: rank %d (node %q) shows an operand of another length", fault.ErrInternal, rank, o.group.Nodes[rank])
	}
	return false, err
}

// came notes that a rank's operand is in its place, and reports whether it was the last one. Under
// mu.
func (o *Operation) came(rank op.Rank) (complete bool) {
	missing := o.shown.missing.Load() &^ (1 << rank)
	o.shown.missing.Store(missing)
	return missing == 0
}

// abortShown ends the operation, unless it has all operands and is about to end. It reports whether
// it has resolved with that. Under mu.
func (o *Operation) abortShown() (resolved bool) {
	if !o.shown.active || o.shown.missing.Load() == 0 {
		return false
	}
	o.shown.missing.Store(0)
	return o.end([]task.Action{{Kind: task.Resolve}, {Kind: task.Retire}})
}

// fits reports why a frame can't be a rank's operand.
func (o *Operation) fits(rank op.Rank, h *wire.Header) error {
	if err := o.compare(rank, h); err != nil {
		return err
	}
	if int(h.Length) != o.request.bytes {
		return fmt.Errorf("operand of %d bytes", h.Length)
	}
	return nil
}

// landOperand is land for a frame that brings an operand. It comes with mu locked, and unlocks it.
func (o *Operation) landOperand(rank op.Rank, from *railactors.Peer, rail int, h *wire.Header) (railactors.Landing, error) {
	err := o.fits(rank, h)
	if err == nil {
		defer o.mu.Unlock()
		return o.landEarly(rank, from, rail, h)
	}
	o.holds++
	defer o.leave()
	o.mu.Unlock()
	o.refuse(rank, h, err)
	return railactors.Landing{}, nil
}

// deliverOperand is deliver for such a frame. It comes with mu locked, and unlocks it.
func (e *earlyFrame) deliverOperand() {
	o, rank := e.operation, e.rank
	o.holds++
	defer o.leave()
	err := o.fits(rank, &e.header)
	complete := false
	if err == nil && o.shown.missing.Load()&(1<<rank) != 0 { // it was not taken from the rank's page
		if t := o.group.trace.Load(); t != nil {
			o.received(t, o.now(t), e.rail, rank, &e.header)
		}
		copy(o.operandOf(rank), e.data)
		complete = o.came(rank)
	}
	o.mu.Unlock()
	if err != nil {
		o.refuse(rank, &e.header, err)
	}
	e.drop()
	if complete {
		o.finishShown()
	}
}

// finishShown ends an operation that has all operands. Nothing is locked.
func (o *Operation) finishShown() {
	if o.request.bytes > 0 {
		if err := o.foldShown(); err != nil {
			o.fail(fmt.Errorf("operator %v: %w", o.request.Op, err))
		}
	}
	o.ended()
}

// foldShown folds the operands into the caller's memory.
func (o *Operation) foldShown() error {
	t := o.group.trace.Load()
	dst := o.memory[task.Final]
	last := len(o.shown.folds) - 1
	for i, f := range o.shown.folds {
		into := o.operandOf(f.Into)
		to := into
		if i == last {
			to = dst
		}
		if err := o.combine(to, into, o.operandOf(f.From)); err != nil {
			return err
		}
	}
	if o.shape.desc.Code == op.CodeAvg {
		reduce.Divide(o.shape.desc.DType, dst, o.group.Size)
	}
	if t != nil {
		o.record(t, &TraceEvent{At: o.now(t), Kind: TraceReduce, Rail: -1, Peer: -1, Bytes: len(dst)})
	}
	return nil
}
