package engine

import (
	"sync"
	"sync/atomic"

	"github.com/polyrail/polyrail/collective/op"
	"github.com/polyrail/polyrail/messages/wire"
	"github.com/polyrail/polyrail/railactors"
)

// maxEarly bounds what one operation keeps of each peer's early frames, by number; by bytes they are
// bounded by the credits that this node gave.
const maxEarly = 4096

// maxUncredited bounds the early bytes of one rank that came without credit, because this node had
// granted them before it knew the communicator: one operation's, or of two that begin one another.
const maxUncredited = 4 << 20

// earlyFrame is an eager frame of an operation that was not called here yet: its data waits in
// memory of the runtime. Lookup-or-store and register-and-drain are atomic with each
// other under the operation's mu.
type earlyFrame struct {
	operation *Operation
	from      *railactors.Peer
	rank      op.Rank
	rail      int // that carried it
	header    wire.Header
	data      []byte
	own       bool // data is not the pool's
	whole     bool // under operation.mu
}

var earlies = sync.Pool{New: func() any { return new(earlyFrame) }}

// earlyGrant is a grant for an operation that was not called here yet.
type earlyGrant struct {
	from   op.Rank
	header wire.Header
}

// landEarly makes room for a frame that came before its operation. Under mu.
func (o *Operation) landEarly(rank op.Rank, from *railactors.Peer, rail int,
	h *wire.Header) (railactors.Landing, error) {
	if h.Flags&wire.FlagEager == 0 {
		return railactors.Landing{}, &earlyError{h.Seq, "data that was not granted"}
	}
	if len(o.early) >= maxEarly*o.group.Size {
		return railactors.Landing{}, &earlyError{h.Seq, "too many early frames"}
	}
	if h.Flags&wire.FlagUncredited != 0 && !o.group.uncredited.take(rank, h.Length) {
		return railactors.Landing{}, &earlyError{h.Seq, "too much data without credit"}
	}
	e := earlies.Get().(*earlyFrame)
	e.operation, e.from, e.rank, e.rail, e.header = o, from, rank, rail, *h
	e.data = o.group.engine.Pool.Get(int(h.Length))
	if e.data == nil { // the pool is at its limit: credits bound what this can be
		e.data, e.own = make([]byte, h.Length), true
	}
	o.early = append(o.early, e)
	o.holds++
	return railactors.Landing{Dst: e.data, Receiver: e, Keeps: true}, nil
}

// keepGrant keeps what a rank has granted so far on a lane: one grant of each. Under mu.
func (o *Operation) keepGrant(rank op.Rank, h *wire.Header) {
	for i := range o.grants {
		if g := &o.grants[i]; g.from == rank && g.header.Lane == h.Lane {
			if h.Count > g.header.Count || h.Digest != g.header.Digest {
				g.header = *h
			}
			return
		}
	}
	if int(h.Lane) < 2*o.group.engine.Rails { // others are no lane of ours
		o.grants = append(o.grants, earlyGrant{rank, *h})
	}
}

type earlyError struct {
	seq  uint64
	what string
}

func (e *earlyError) Error() string { return e.what + " of an operation that was not called here" }

// drain takes the early frames that are whole, and all wants. What a reader is still filling stays, and
// is delivered by that reader. Under mu.
func (o *Operation) drain() (whole []*earlyFrame, wants []*railactors.Peer) {
	if len(o.early) > 0 {
		kept := o.early[:0:0]
		for _, e := range o.early {
			if e.whole {
				whole = append(whole, e)
			} else {
				kept = append(kept, e)
			}
		}
		o.early = kept
	}
	// Their memory stays the operation's for its next life: it gets no more of them in this one.
	return whole, o.wants
}

// discard gives up what came early for an operation that will not run: its memory, its credit, and what
// peers hold back until it is granted, which is sunk here. It comes with mu locked, and unlocks it.
func (o *Operation) discard() {
	early, wants := o.drain()
	comm, seq := o.group.ID, o.Seq
	o.mu.Unlock()
	for _, e := range early {
		e.drop()
	}
	for _, p := range wants {
		p.GrantEager(comm, seq)
	}
}

// Arrived implements railactors.Receiver.
func (e *earlyFrame) Arrived(uint64, *railactors.Batch) {
	o := e.operation
	defer o.leave()
	o.mu.Lock()
	e.whole = true
	waits := o.phase != phaseRunning && o.cause == nil
	if !waits {
		o.removeEarly(e)
	}
	o.mu.Unlock()
	if !waits {
		if o.group.trace.Load() != nil {
			o.stampFrame(e.from, e.rail)
		}
		e.deliver()
	}
}

// Torn implements railactors.Receiver: the frame will come again, or nobody wants it.
func (e *earlyFrame) Torn(uint64, error) {
	o := e.operation
	defer o.leave()
	o.mu.Lock()
	o.removeEarly(e)
	o.mu.Unlock()
	e.free()
}

// removeEarly takes e off the list. Under mu.
func (o *Operation) removeEarly(e *earlyFrame) {
	for i, x := range o.early {
		if x == e {
			o.early = append(o.early[:i], o.early[i+1:]...)
			return
		}
	}
}

// deliver puts an early frame where it belongs, on a goroutine that may run kernels.
func (e *earlyFrame) deliver() {
	o := e.operation
	o.mu.Lock()
	if o.cause != nil {
		o.mu.Unlock()
		e.drop()
		return
	}
	if o.shown.active {
		e.deliverOperand()
		return
	}
	o.holds++
	defer o.leave()
	p, ref, loc, err := o.place(e.rank, &e.header)
	if err == nil {
		if t := o.group.trace.Load(); t != nil {
			o.received(t, o.now(t), e.rail, e.rank, &e.header)
		}
		o.landing(p.lane, e.rail, e.header.Length)
	}
	o.mu.Unlock()
	if err != nil {
		o.refuse(e.rank, &e.header, err)
		e.drop()
		return
	}
	copy(p.at(loc), e.data)
	rail := e.rail
	e.drop()
	o.arrived(p.lane, rail, ref)
}

// drop frees the frame, as the last thing that is done with it, and gives its credit back.
func (e *earlyFrame) drop() {
	if f := e.header.Flags; f&wire.FlagEager != 0 && f&wire.FlagUncredited == 0 {
		e.from.ReturnCredit(int(e.header.Length))
	}
	e.free()
}

func (e *earlyFrame) free() {
	if e.header.Flags&wire.FlagUncredited != 0 {
		e.operation.group.uncredited.give(e.rank, e.header.Length)
	}
	if !e.own {
		e.operation.group.engine.Pool.Put(e.data)
	}
	*e = earlyFrame{}
	earlies.Put(e)
}

// allowance counts, by rank, what early frames take that came without credit: as much as with credit.
type allowance []atomic.Int64

// take returns false where the rank has too many.
func (a allowance) take(rank op.Rank, length uint32) bool {
	if a[rank].Add(int64(length)+wire.EagerCost) <= maxUncredited {
		return true
	}
	a.give(rank, length)
	return false
}

func (a allowance) give(rank op.Rank, length uint32) {
	a[rank].Add(-int64(length) - wire.EagerCost)
}
