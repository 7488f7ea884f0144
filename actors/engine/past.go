package engine

import (
	"fmt"
	"slices"
	"time"

	"github.com/polyrail/polyrail/collective/fault"
	"github.com/polyrail/polyrail/collective/op"
	"github.com/polyrail/polyrail/messages/wire"
	"github.com/polyrail/polyrail/railactors"
)

// This file is about calls that differ between ranks where no frame meets the operation that it
// doesn't fit. Either the frame comes when that has ended, or no rank sends anything because each
// waits for another.

// remembered is how many operations a communicator remembers after their end.
const remembered = 64

// pastOperation is what a rank has called.
type pastOperation struct {
	seq    uint64
	desc   op.Descriptor
	digest uint64
}

// remember notes an operation that has ended well. Under g.mu.
func (g *Group) remember(o *Operation) {
	g.past[o.Seq%remembered] = pastOperation{o.Seq, o.shape.desc, o.shape.digest}
}

// late is a frame of an operation that is over here. Where all ranks call the same there is none:
// an operation ends with its last frame, and no frame is delivered twice. asks: it is no data, and
// may be late.
func (g *Group) late(rank op.Rank, h *wire.Header, asks bool) {
	g.mu.Lock()
	past, broken := g.past[h.Seq%remembered], g.broken != nil
	g.mu.Unlock()
	known := past.seq == h.Seq
	// An operand may have been taken from its rank's page, and come as a frame as well.
	asks = asks || g.mayShow(&h.Desc)
	if broken || asks && (!known || past.digest == h.Digest) {
		g.DroppedFrames.Add(1)
		return
	}
	e := &fault.MismatchError{Rank: rank, Node: g.Nodes[rank], Mine: "an operation that has ended",
		Theirs: h.Desc.String()}
	if known {
		e.Mine = past.desc.String()
		if past.desc == h.Desc {
			e.Explanation = "the operation's name, its counts or the lengths of a batch's buffers differ"
		}
	}
	g.Fail(fmt.Errorf("seq %d: %w", h.Seq, e), h.Seq)
}

// stallAfter is how long an operation may take before its links are asked whether they run the same
// one.
const stallAfter = time.Second

// askTick is the look at which they are asked: it has seen a whole period.
const askTick = 2

// watchStalls has the operations in flight looked at after a while. Under g.mu.
func (g *Group) watchStalls() {
	if g.stalls == nil {
		g.stalls = time.AfterFunc(stallAfter, g.askStalled)
	}
}

// askStalled asks, of each operation that takes long, every rank that it has a link to, once. The
// frame carries what was called here. A rank that called something else ends both.
func (g *Group) askStalled() {
	g.mu.Lock()
	g.stalls = nil
	if g.broken != nil || g.active == 0 {
		g.mu.Unlock()
		return
	}
	g.watchStalls()
	var stalled []*Operation
	for _, o := range g.open {
		o.mu.Lock()
		if o.phase == phaseRunning && o.cause == nil && !o.retired {
			if o.ticks++; o.ticks == askTick {
				o.holds++
				stalled = append(stalled, o)
			}
		}
		o.mu.Unlock()
	}
	g.mu.Unlock()
	for _, o := range stalled {
		o.ask()
		o.leave()
	}
}

// ask tells the ranks that the operation has to do with what was called here; over a tree, all that
// are connected.
func (o *Operation) ask() {
	program := o.shape.config.Program
	ranks := slices.Concat(program.From, program.To)
	all := o.shown.active || o.request.External != nil
	for rank, p := range o.group.Peers {
		if p != nil && (all || len(o.trees) > 0 && p.Awake()) {
			ranks = append(ranks, op.Rank(rank))
		}
	}
	slices.Sort(ranks)
	for _, rank := range slices.Compact(ranks) {
		f := frames.Get().(*railactors.Frame)
		f.Header, f.Owner = o.header(wire.KindGrant), o.group.engine.copies
		f.Header.Flags &^= wire.FlagEager
		o.group.Peers[rank].Send(f)
	}
}
