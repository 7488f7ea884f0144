package engine

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/polyrail/polyrail/collective/fault"
	"github.com/polyrail/polyrail/collective/op"
	"github.com/polyrail/polyrail/collective/p2p"
	"github.com/polyrail/polyrail/railactors"
)

// Message is what a caller sends, or is ready to receive.
type Message struct {
	Rank  op.Rank // the other one; of a receive also p2p.AnySource
	Tag   p2p.Tag // of a receive also p2p.AnyTag
	DType op.DType
	Buf   []byte
	Exact bool // of a receive: a shorter message is an error, too

	exchange *Exchange // that it is a part of; nil for a caller's own
}

// Transfer is the handle of a send or a receive in flight. It is the owner of the frames that
// read its memory, and the receiver of those that write it.
type Transfer struct {
	transfers *Transfers
	message   Message
	buf       []byte // of message
	receives  bool
	send      *p2p.Send[*Transfer]
	recv      *p2p.Recv[*Transfer]
	done      chan struct{}
	status    p2p.Status
	err       error
	called    time.Time // where it is counted

	mu    sync.Mutex
	ended bool
	stop  func() bool // ends the watch of a context
}

// Send begins to send a message. It blocks while too many are in flight. The buffer is the
// runtime's until Done.
func (x *Transfers) Send(ctx context.Context, m Message) (*Transfer, error) {
	t, err := x.start(ctx, m, x.sends, false)
	if err != nil {
		return nil, err
	}
	e := x.group.engine
	var data []byte
	if len(m.Buf) <= min(transferEager, e.Config.EagerBytes) {
		if data = e.Pool.Get(len(m.Buf)); data != nil { // without one the message asks
			copy(data, m.Buf)
		}
	}
	envelope := p2p.Envelope{Tag: m.Tag, Type: m.DType, Count: uint64(len(m.Buf) / m.DType.Size())}
	err = x.begin(t, func(core *p2p.Core[*Transfer], fx *p2p.Effects[*Transfer]) error {
		s, err := core.Send(t, m.Rank, envelope, data, x.weights(len(m.Buf)), fx)
		if s != nil {
			t.send = s
		}
		if data != nil && (s == nil || s.Data == nil) {
			fx.Free = append(fx.Free, p2p.Buffer{Bytes: data})
		}
		data = nil
		return err
	})
	if data != nil { // the communicator was closed meanwhile: the core has not seen it
		e.Pool.Put(data)
	}
	return t, err
}

// Recv begins to receive a message. It blocks while too many are in flight. The buffer is
// the runtime's until Done.
func (x *Transfers) Recv(ctx context.Context, m Message) (*Transfer, error) {
	t, err := x.start(ctx, m, x.recvs, true)
	if err != nil {
		return nil, err
	}
	t.recv = &p2p.Recv[*Transfer]{Work: t, From: m.Rank, Exact: m.Exact,
		Room: p2p.Envelope{Tag: m.Tag, Type: m.DType, Count: uint64(len(m.Buf) / m.DType.Size())}}
	err = x.begin(t, func(core *p2p.Core[*Transfer], fx *p2p.Effects[*Transfer]) error {
		return core.Recv(t.recv, fx)
	})
	return t, err
}

// start checks a call and takes its place in flight.
func (x *Transfers) start(ctx context.Context, m Message, slots chan struct{},
	receives bool) (*Transfer, error) {
	g := x.group
	t := &Transfer{transfers: x, message: m, buf: m.Buf, receives: receives, done: make(chan struct{})}
	if err := m.check(g.Size, receives); err != nil {
		return nil, t.named(fmt.Errorf("%w: %w", fault.ErrArgument, err))
	}
	usable, closing := g.Usable, g.Closing
	if m.exchange != nil { // a close waits for its operation, and so for what that has yet to start
		usable, closing = g.Err, nil
	}
	if err := usable(); err != nil {
		return nil, err
	}
	if ctx.Err() != nil {
		return nil, t.named(context.Cause(ctx))
	}
	if m.Rank == p2p.AnySource {
		g.heedAny()
	} else {
		g.Heed(m.Rank)
	}
	select {
	case slots <- struct{}{}:
	default:
		select {
		case slots <- struct{}{}:
		case <-closing:
			return nil, usable()
		case <-g.Ended:
			return nil, usable()
		case <-ctx.Done():
			return nil, t.named(fmt.Errorf("waiting for one of %d in flight to end: %w", cap(slots),
				context.Cause(ctx)))
		}
	}
	if g.Meter != nil {
		t.called = time.Now()
	}
	return t, nil
}

// check reports a call that can't be run. Nobody else hears of it.
func (m *Message) check(ranks int, receives bool) error {
	switch size := m.DType.Size(); {
	case size == 0:
		return fmt.Errorf("%v is not an element type", m.DType)
	case len(m.Buf)%size != 0:
		return fmt.Errorf("%d bytes are no whole number of %v", len(m.Buf), m.DType)
	case (m.Rank < 0 || int(m.Rank) >= ranks) && !(receives && m.Rank == p2p.AnySource):
		return fmt.Errorf("there is no rank %d: they are 0 … %d", m.Rank, ranks-1)
	case !m.Tag.Valid() && !(receives && m.Tag == p2p.AnyTag):
		return fmt.Errorf("a tag must be 0 … %d", p2p.MaxTag)
	}
	return nil
}

// begin lets the core start a transfer that has a place in flight.
func (x *Transfers) begin(t *Transfer, start func(*p2p.Core[*Transfer], *p2p.Effects[*Transfer]) error) error {
	g := x.group
	g.mu.Lock()
	g.active++ // Close waits
	g.mu.Unlock()
	g.engine.Listening(1)
	err := x.do(func(c *p2p.Core[*Transfer], fx *p2p.Effects[*Transfer]) error {
		if x.closed { // the farewell has told the number of the last message
			return fault.ErrClosed
		}
		return start(c, fx)
	})
	if err != nil {
		t.leave(false)
		return t.named(err)
	}
	return nil
}

// leave gives back what a transfer takes of its communicator. The place of a send that was given
// up is a cancelNotice's.
func (t *Transfer) leave(noticed bool) {
	g := t.transfers.group
	g.engine.Listening(-1)
	switch {
	case t.receives:
		<-t.transfers.recvs
	case !noticed:
		<-t.transfers.sends
	}
	g.mu.Lock()
	g.deactivate()
	g.mu.Unlock()
}

// finish resolves the transfer, once.
func (t *Transfer) finish(d *p2p.Done[*Transfer]) {
	t.mu.Lock()
	t.ended, t.status = true, d.Status
	if d.Err != nil {
		t.err = t.named(d.Err)
		if e := t.message.exchange; e != nil {
			e.fail(t.err)
		}
	}
	if m := t.transfers.group.Meter; m != nil && t.message.exchange == nil {
		m.message(t.receives, t.moved(), time.Since(t.called), t.err)
	}
	if t.stop != nil {
		t.stop()
	}
	t.mu.Unlock()
	t.leave(d.Noticed)
	close(t.done)
}

// moved is how many bytes the message had.
func (t *Transfer) moved() int {
	if t.receives {
		return int(t.status.Count) * t.message.DType.Size()
	}
	return len(t.buf)
}

// named puts the call on a cause.
func (t *Transfer) named(err error) error {
	g, m := t.transfers.group, &t.message
	switch e := err.(type) { // the core knows no names; an error with one is somebody else's
	case *fault.MismatchError:
		if e.Node == "" {
			named := *e
			named.Node, err = g.nodeOf(e.Rank), &named
		}
	case *fault.AbortError:
		if e.Node == "" {
			named := *e
			named.Node, err = g.nodeOf(e.Rank), &named
		}
	}
	call, other := "send to", fmt.Sprintf("rank %d", m.Rank)
	if t.receives {
		call = "receive from"
	}
	switch {
	case m.Rank == p2p.AnySource && t.receives:
		other = "any rank"
	case m.Rank >= 0 && int(m.Rank) < g.Size:
		other += fmt.Sprintf(" (node %q)", g.Nodes[m.Rank])
	}
	switch {
	case m.Tag == p2p.AnyTag:
		other += ", any tag"
	case m.Tag == p2p.NoTag: // the caller's own is none of the type
		other += ", no valid tag"
	case m.Tag < p2p.Reserved: // a caller has given it
		other += fmt.Sprintf(", tag %d", m.Tag)
	}
	return fmt.Errorf("communicator %q, %s %s: %w", g.Name, call, other, err)
}

// Done is closed when the transfer has ended, right or with an error.
func (t *Transfer) Done() <-chan struct{} { return t.done }

func (t *Transfer) over() bool {
	select {
	case <-t.done:
		return true
	default:
		return false
	}
}

// Err is the error once Done is closed, nil before.
func (t *Transfer) Err() error {
	if t.over() {
		return t.err
	}
	return nil
}

// Status says which message a receive took. It is valid when Done is closed.
func (t *Transfer) Status() p2p.Status {
	if t.over() {
		return t.status
	}
	return p2p.Status{}
}

// Wait waits for the end. A context that ends first ends the transfer, and that alone; Wait
// returns when the runtime has let go of the caller's memory.
func (t *Transfer) Wait(ctx context.Context) error {
	if t.transfers.group.polls(ctx, t.sources(), false, t) {
		return t.err
	}
	select {
	case <-t.done:
	case <-ctx.Done():
		t.Cancel(context.Cause(ctx))
		<-t.done
	}
	return t.err
}

// WaitFor waits for the end for so long at most, and reports whether it has come. Unlike Wait it
// ends nothing.
func (t *Transfer) WaitFor(d time.Duration) bool {
	return t.transfers.group.waitFor(t.sources(), t, d)
}

// sources are where the message of a small receive comes from.
func (t *Transfer) sources() []source {
	g, rank := t.transfers.group, t.message.Rank
	if !t.receives || rank == p2p.AnySource || rank == g.Rank || len(t.buf) > transferEager || !g.tries(t.pace()) {
		return nil
	}
	s := source{peer: g.Peers[rank], rail: g.Peers[rank].Carrier(mainRail(t.transfers.weights(len(t.buf))))}
	if !s.peer.Pollable(s.rail) {
		return nil
	}
	return []source{s}
}

func (t *Transfer) pace() *pace { return t.transfers.paces.of(len(t.buf)) }

// Watch ends the transfer when the context ends, for a caller that may not Wait.
func (t *Transfer) Watch(ctx context.Context) {
	if ctx.Done() == nil {
		return
	}
	stop := context.AfterFunc(ctx, func() { t.Cancel(context.Cause(ctx)) })
	t.mu.Lock()
	defer t.mu.Unlock()
	t.stop = stop
	if t.ended {
		stop()
	}
}

// Cancel gives the transfer up, unless it has ended.
func (t *Transfer) Cancel(cause error) {
	_ = t.transfers.do(func(c *p2p.Core[*Transfer], fx *p2p.Effects[*Transfer]) error {
		if t.receives {
			c.CancelRecv(t.recv, cause, fx)
		} else {
			c.CancelSend(t.send, cause, fx)
		}
		return nil
	})
}

// Arrived implements railactors.Receiver.
func (t *Transfer) Arrived(tag uint64, _ *railactors.Batch) {
	_ = t.transfers.do(func(c *p2p.Core[*Transfer], fx *p2p.Effects[*Transfer]) error {
		c.Arrived(t.recv, p2p.Ref(tag), fx)
		return nil
	})
}

// Torn implements railactors.Receiver.
func (t *Transfer) Torn(tag uint64, err error) {
	_ = t.transfers.do(func(c *p2p.Core[*Transfer], fx *p2p.Effects[*Transfer]) error {
		c.Torn(t.recv, p2p.Ref(tag), errors.Is(err, railactors.ErrRevoked), fx)
		return nil
	})
}

// Released implements railactors.FrameOwner, for frames that read the caller's memory.
func (t *Transfer) Released(f *railactors.Frame, err error) {
	rail, length := int(f.Tag), len(f.Payload)
	recycle(f)
	_ = t.transfers.do(func(c *p2p.Core[*Transfer], fx *p2p.Effects[*Transfer]) error {
		c.Released(t.send, rail, length, t.transfers.group.Named(err), fx)
		return nil
	})
}

// cancelNotice owns the frame that tells of a send's end. The send's place in flight stays taken
// until then: so the receiver never has to remember more than that many numbers.
type cancelNotice Transfer

// Released implements railactors.FrameOwner.
func (t *cancelNotice) Released(f *railactors.Frame, _ error) {
	recycle(f)
	<-t.transfers.sends
}
