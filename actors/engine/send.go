package engine

import (
	"sync"
	"time"

	"github.com/polyrail/polyrail/collective/task"
	"github.com/polyrail/polyrail/messages/wire"
	"github.com/polyrail/polyrail/railactors"
	"github.com/polyrail/polyrail/railactors/memory"
)

// copyLimit is the largest operation, in bytes, whose sends are copied: the caller gets its memory back
// with the last value, where it would wait for a frame's acknowledgement to wake two processes, and the
// runtime re-sends, if need be, after it has returned.
const copyLimit = 256 << 10

var frames = sync.Pool{New: func() any { return new(railactors.Frame) }}

func recycle(f *railactors.Frame) {
	*f = railactors.Frame{}
	frames.Put(f)
}

// copies owns the frames whose payload is the runtime's own copy.
type copies struct{ pool *memory.Pool }

// Released implements railactors.FrameOwner. That a copy never arrived is no news here: the
// operation learns it from the loss of the peer.
func (c copies) Released(f *railactors.Frame, _ error) {
	if f.Payload != nil {
		c.pool.Put(f.Payload)
	}
	recycle(f)
}

// header is the part that all frames of the operation share.
func (o *Operation) header(kind wire.Kind) wire.Header {
	h := wire.Header{
		Kind: kind, Comm: o.group.ID, Seq: o.Seq,
		Table: o.shape.table, Digest: o.shape.digest, Desc: o.shape.desc,
	}
	if o.shape.eager {
		h.Flags = wire.FlagEager
	}
	return h
}

// send carries out a Send: a copy, if the operation is small and the pool has room, or the
// memory itself until it is acknowledged.
func (p *part) send(a *task.Action) {
	o := p.operation
	span := &p.task.Plan.Lanes[p.task.Lane].Spans[a.Span]
	f := frames.Get().(*railactors.Frame)
	f.Header, f.Rail, f.Rails = o.header(wire.KindData), p.rail, p.carriers
	f.Announced = p.announced
	f.Header.Lane = uint16(p.lane)
	f.Header.Step, f.Header.Block = uint32(a.Step), uint32(a.Mark)
	f.Header.Round, f.Header.Count = uint32(span.First), uint32(span.Count)
	f.Header.Length = uint32(a.Loc.Len)
	copied := a.Loc.Len == 0 && !o.shape.acknowledged
	if !copied && o.shape.config.Plan.Bytes <= copyLimit && !o.shape.acknowledged {
		if buf := o.group.engine.Pool.Get(a.Loc.Len); buf != nil {
			f.Payload = buf[:a.Loc.Len]
			copy(f.Payload, p.at(a.Loc))
			copied = true
		}
	}
	if copied {
		f.Owner = o.group.engine.copies
	} else {
		f.Payload, f.Owner, f.Tag = p.at(a.Loc), o, tag(a.Ref, p.lane, 0)
		if a.AckNow {
			f.Header.Flags |= wire.FlagAckNow
		}
	}
	t := o.group.trace.Load()
	var at time.Duration
	if t != nil {
		at = o.now(t)
	}
	o.owner.Hand(f, o.group.Peers[a.To])
	if t != nil { // now, while the frame is under way
		o.record(t, &TraceEvent{At: at, Kind: TraceSend, Lane: p.lane, Rail: p.rail, Peer: int(a.To), First: span.First,
			Count: span.Count, Bytes: a.Loc.Len})
	}
	if copied {
		o.step(p.lane, task.Event{Kind: task.Released, Ref: a.Ref})
	} else if o.aborted() { // since the core said so: the revocation may have missed this frame
		o.group.engine.Revoke(o)
	}
}

func (o *Operation) aborted() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.cause != nil
}

// grant tells a peer how many spans there is room for.
func (p *part) grant(a *task.Action) {
	o := p.operation
	f := frames.Get().(*railactors.Frame)
	f.Header, f.Rail = o.header(wire.KindGrant), p.rail
	f.Header.Lane, f.Header.Count = uint16(p.lane), uint32(a.Limit)
	f.Owner = o.group.engine.copies
	if t := o.group.trace.Load(); t != nil {
		o.record(t, &TraceEvent{At: o.now(t), Kind: TraceGrant, Lane: p.lane, Rail: -1, Peer: int(a.To), Count: a.Limit})
	}
	o.group.Peers[a.To].Send(f)
}
