package engine

import (
	"sync"
	"time"

	"github.com/polyrail/polyrail/collective/op"
)

// This file records when operations do what, for those who read a timeline. While nothing is
// recorded it costs a look at a pointer.

// TraceKind says what an event of a trace is.
type TraceKind uint8

// The kinds.
const (
	TraceOperation TraceKind = iota // an operation, from its call to its end; Text: its error
	TraceSend                       // a frame of it was handed to its peer
	TraceReceive                    // a frame of it begins to come in
	TraceGrant                      // this rank has room for a peer's spans, up to Count
	TraceGranted                    // a peer has
	TraceReduce                     // a kernel
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

	mu    sync.Mutex
	ring  []TraceEvent
	count uint64 // of events ever
}

// StartTrace records from now on, in a ring of so many events. It takes the place of a trace that
// was recorded before.
func (g *Group) StartTrace(events int) *Trace {
	t := &Trace{group: g, ring: make([]TraceEvent, events)}
	g.trace.Store(t)
	return t
}

// Stop ends the recording. What was recorded stays.
func (t *Trace) Stop() { t.group.trace.CompareAndSwap(t, nil) }

// Events are what was recorded, in the order of recording, and how many were lost before them.
func (t *Trace) Events() (events []TraceEvent, lost uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := min(t.count, uint64(len(t.ring)))
	for i := t.count - n; i < t.count; i++ {
		events = append(events, t.ring[i%uint64(len(t.ring))])
	}
	return events, t.count - n
}

func (t *Trace) add(e TraceEvent) {
	t.mu.Lock()
	t.ring[t.count%uint64(len(t.ring))] = e
	t.count++
	t.mu.Unlock()
}

// Note records that something happened, where a trace is recorded. Peer and rail are -1 where it is
// about none.
func (g *Group) Note(text, detail string, peer, rail, bytes int) {
	if t := g.trace.Load(); t != nil {
		t.add(TraceEvent{At: time.Since(processBegan), Kind: TraceNote, Text: text, Detail: detail, Peer: peer,
			Rail: rail, Bytes: bytes})
	}
}

// Traced reports whether a trace is recorded.
func (g *Group) Traced() bool { return g.trace.Load() != nil }

// trace records a frame of a fragment, where a trace is recorded.
func (p *treePart) trace(kind TraceKind, rail int, number uint64, bytes int) {
	if t := p.operation.group.trace.Load(); t != nil {
		e := p.operation.event(kind, p.lane, rail, -1, int(number-p.first), 1, bytes)
		e.Text = p.tree.Node.Node()
		t.add(e)
	}
}

// event is one of an operation, now.
func (o *Operation) event(kind TraceKind, lane, rail, peer, first, count, bytes int) TraceEvent {
	return TraceEvent{At: time.Since(processBegan), Kind: kind, Operation: o.shape.desc.Kind, Seq: o.Seq,
		Lane: lane, Rail: rail, Peer: peer, First: first, Count: count, Bytes: bytes}
}
