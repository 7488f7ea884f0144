package engine

import (
	"sync"
	"time"

	"github.com/polyrail/polyrail/collective/op"
	"github.com/polyrail/polyrail/messages/wire"
	"github.com/polyrail/polyrail/railactors"
)

// This file records when operations do what, for those who read a timeline. While nothing is
// recorded it costs a look at a pointer.

// TraceKind says what an event of a trace is.
type TraceKind uint8

// The kinds.
const (
	TraceOperation TraceKind = iota // an operation, from its call to its end; Text: its error
	TraceSend                       // a frame of it was handed to its peer
	TraceReceive                    // a frame of it begins to come in; of one that came before the call: it is taken
	TraceGrant                      // this rank has room for a peer's spans, up to Count
	TraceGranted                    // a peer has
	TraceReduce                     // a kernel; a small operation's takes 0
	TraceNote                       // something happened to rails or communicators: Text, Detail
)

// TraceEvent is one of them. Fields that a kind doesn't have are 0; Peer and Rail are -1 then. A frame
// between this rank and the aggregation node of a tree has no Peer. Its First is the fragment's number
// in the operation's lane, and Text names the node.
type TraceEvent struct {
	At, Took     time.Duration // since TraceBegan
	Kind         TraceKind
	Operation    op.Kind
	Seq          uint64
	Lane, Rail   int
	Peer         int // rank
	First, Count int // rounds, of a frame; spans, of a grant
	Bytes        int
	Text, Detail string
}

// TraceBegan is what the times of traces are counted from.
func TraceBegan() time.Time { return processBegan }

// Trace keeps a communicator's last events.
type Trace struct {
	group *Group
	began time.Duration

	mu    sync.Mutex
	fresh []record // the last ones, which go to the ring together
	ring  []record
	next  int    // in ring
	count uint64 // of events that went there
	texts *texts // the last ones, since a tree's frames all have the same
}

// freshRecords stay in the caches. The ring does not fit there: to unlock after each record that was
// written to it waits for the memory, some 70 ns, where a copy of many waits about once.
const freshRecords = 32

// record is an event as it is kept: one cache line.
type record struct {
	at, took     time.Duration
	seq          uint64
	bytes        int
	texts        *texts // nil: none
	first, count uint32
	peer         int32
	lane, rail   int16
	kind         TraceKind
	operation    op.Kind
}

type texts struct{ text, detail string }

// StartTrace records from now on, in a ring of so many events. It takes the place of a trace that
// was recorded before.
func (g *Group) StartTrace(events int) *Trace {
	t := &Trace{group: g, began: time.Since(processBegan), fresh: make([]record, 0, freshRecords),
		ring: make([]record, events)}
	clear(t.ring) // the kernel gives the memory now, not while operations run
	g.trace.Store(t)
	return t
}

// Stop ends the recording. What was recorded stays.
func (t *Trace) Stop() { t.group.trace.CompareAndSwap(t, nil) }

// Events are what was recorded, in the order of recording, and how many were lost before them.
func (t *Trace) Events() (events []TraceEvent, lost uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.settle()
	n := min(t.count, uint64(len(t.ring)))
	events = make([]TraceEvent, 0, n)
	for i := t.count - n; i < t.count; i++ {
		events = append(events, t.ring[i%uint64(len(t.ring))].event())
	}
	return events, t.count - n
}

// add keeps an event. It is copied field by field: a wider read of what was just written in smaller
// pieces stalls the processor, which doubled the time of an event.
func (t *Trace) add(e *TraceEvent) {
	t.mu.Lock()
	if len(t.fresh) == freshRecords {
		t.settle()
	}
	t.fresh = t.fresh[:len(t.fresh)+1]
	r := &t.fresh[len(t.fresh)-1]
	r.at, r.took, r.seq, r.bytes = e.At, e.Took, e.Seq, e.Bytes
	r.first, r.count, r.peer = uint32(e.First), uint32(e.Count), int32(e.Peer)
	r.lane, r.rail, r.kind, r.operation = int16(e.Lane), int16(e.Rail), e.Kind, e.Operation
	r.texts = nil
	if e.Text != "" || e.Detail != "" {
		if t.texts == nil || *t.texts != (texts{e.Text, e.Detail}) {
			t.texts = &texts{e.Text, e.Detail}
		}
		r.texts = t.texts
	}
	t.mu.Unlock()
}

// settle moves the fresh records to the ring. Under mu.
func (t *Trace) settle() {
	t.count += uint64(len(t.fresh))
	for rest := t.fresh; len(rest) > 0; {
		n := copy(t.ring[t.next:], rest)
		t.next = (t.next + n) % len(t.ring)
		rest = rest[n:]
	}
	t.fresh = t.fresh[:0]
}

func (r *record) event() TraceEvent {
	e := TraceEvent{At: r.at, Took: r.took, Kind: r.kind, Operation: r.operation, Seq: r.seq,
		Lane: int(r.lane), Rail: int(r.rail), Peer: int(r.peer), First: int(r.first), Count: int(r.count), Bytes: r.bytes}
	if r.texts != nil {
		e.Text, e.Detail = r.texts.text, r.texts.detail
	}
	return e
}

// Note records that something happened, where a trace is recorded. Peer and rail are -1 where it is
// about none.
func (g *Group) Note(text, detail string, peer, rail, bytes int) {
	if t := g.trace.Load(); t != nil {
		t.add(&TraceEvent{At: time.Since(processBegan), Kind: TraceNote, Text: text, Detail: detail, Peer: peer,
			Rail: rail, Bytes: bytes})
	}
}

// Traced reports whether a trace is recorded.
func (g *Group) Traced() bool { return g.trace.Load() != nil }

// trace records a frame of a fragment, where a trace is recorded.
func (p *treePart) trace(kind TraceKind, rail int, number uint64, bytes int) {
	if t := p.operation.group.trace.Load(); t != nil {
		p.operation.record(t, &TraceEvent{At: time.Since(processBegan), Kind: kind, Lane: p.lane, Rail: rail, Peer: -1,
			First: int(number - p.first), Count: 1, Bytes: bytes, Text: p.tree.Node.Node()})
	}
}

// record adds an event of the operation.
func (o *Operation) record(t *Trace, e *TraceEvent) {
	e.Operation, e.Seq = o.shape.desc.Kind, o.Seq
	t.add(e)
}

// received records a frame that a rail brought. Under mu.
func (o *Operation) received(t *Trace, at time.Duration, rail int, from op.Rank, h *wire.Header) {
	o.record(t, &TraceEvent{At: at, Kind: TraceReceive, Lane: int(h.Lane), Rail: rail, Peer: int(from),
		First: int(h.Round), Count: int(h.Count), Bytes: int(h.Length)})
}

// stampedBytes is the largest operation for which a trace takes times only from outside: the call, a
// frame, a grant. What follows from that at once has the same time. Each reading of the clock is some
// 25 ns, of the 4 µs that 8 bytes take in memory.
const stampedBytes = 4 << 10

// stamp keeps the time of an event from outside.
func (o *Operation) stamp(at time.Duration) time.Duration {
	o.stamped.Store(int64(at))
	return at
}

// stampFrame is stamp for a frame that a peer's rail is bringing. The rail has read the clock for it.
func (o *Operation) stampFrame(from *railactors.Peer, rail int) time.Duration {
	return o.stamp(from.HeardAt(rail, processBegan))
}

// stampCall is stamp for a call that has got its number.
func (o *Operation) stampCall() {
	at := o.request.numbered
	if at == 0 { // nothing was recorded yet
		at = time.Since(processBegan)
	}
	o.stamp(at)
}

// now is the time of an event that follows from others.
func (o *Operation) now(t *Trace) time.Duration {
	if o.shape.config.Plan.Bytes <= stampedBytes && o.shape.desc.Code != op.CodeUser {
		if at := time.Duration(o.stamped.Load()); at >= t.began { // or it is of an earlier operation
			return at
		}
	}
	return time.Since(processBegan)
}
