package polyrail

import (
	"context"
	"time"

	"github.com/polyrail/polyrail/actors/engine"
	"github.com/polyrail/polyrail/collective/op"
	"github.com/polyrail/polyrail/collective/p2p"
)

// Messages between two ranks of a communicator. They are no collective calls: they take no
// number of those, other ranks take no part, and any goroutine may send and receive at any time.
//
// Two messages of one rank to another one that have the same tag are received in the order in
// which they were sent, and so are all that one receive with AnyTag or AnySource could take.
//
// A message of up to 64 KiB (or Config.EagerBytes, if that is less) may go before its receive is
// there; its send then ends at once. Any other one waits for its receive, so two ranks that Send
// large messages to each other before they Recv wait for ever: use SendRecv or StartSend. The
// context alone bounds how long a call waits; Config.OperationTimeout does not apply.

// Wildcards of a receive.
const (
	AnySource = -1 // a message of any rank
	AnyTag    = -1 // a message with any tag
)

// MaxTag is the greatest tag; the least is 0.
const MaxTag = int(p2p.MaxTag)

// Status says which message a receive took.
type Status struct {
	Source int // rank of the sender
	Tag    int
	Count  int // elements; at most the length of the buffer
}

// Send sends buf to a rank, which may be the caller's own, and returns when buf can be used again.
// That does not mean that the message was received. A context that ends first takes the message
// back; where its bytes are on their way already, its Recv ends with an error.
//
// Errors match ErrMismatch if the receive turned the message down: it has another element type, or
// less room. They match ErrAborted and ErrClosed if the other rank has closed the communicator.
// They match ErrArgument if there is no such rank or tag. None of them breaks the communicator.
func Send[T Element](ctx context.Context, c *Communicator, buf []T, to, tag int) error {
	return SendBytes(ctx, c, op.Bytes(buf), op.DTypeOf[T](), to, tag)
}

// SendBytes is Send of packed elements in the machine's byte order whose type is known at run
// time only.
func SendBytes(ctx context.Context, c *Communicator, buf []byte, d DType, to, tag int) error {
	inner, err := c.with(ctx)
	if err != nil {
		return err
	}
	t, err := inner.Transfers().Send(ctx, message(buf, d, to, tag))
	if err != nil {
		return err
	}
	return t.Wait(ctx)
}

// Recv receives a message with this tag, or AnyTag, from this rank, or AnySource, into the
// beginning of buf. A context that ends first ends the call: it leaves a message that has not
// begun to arrive to others, and one that has is lost.
//
// A message that is longer than buf is lost, and the error, which matches ErrMismatch, names both
// lengths; so it is for another element type. The error matches ErrAborted if the sender took the
// message back while it arrived, and ErrAborted and ErrClosed if no message can come any more
// because the rank has closed the communicator; from AnySource, because all others have, and none of
// this rank's own waits. It matches ErrArgument if there is no such rank or tag. None of them breaks
// the communicator; the contents of buf are undefined.
func Recv[T Element](ctx context.Context, c *Communicator, buf []T, from, tag int) (Status, error) {
	return RecvBytes(ctx, c, op.Bytes(buf), op.DTypeOf[T](), from, tag)
}

// RecvBytes is Recv of packed elements in the machine's byte order whose type is known at run
// time only.
func RecvBytes(ctx context.Context, c *Communicator, buf []byte, d DType, from, tag int) (Status, error) {
	inner, err := c.with(ctx)
	if err != nil {
		return Status{}, err
	}
	t, err := inner.Transfers().Recv(ctx, message(buf, d, from, tag))
	if err != nil {
		return Status{}, err
	}
	return (&Transfer{t}).Wait(ctx)
}

// SendRecv sends one message and receives another one at the same time, so that ranks that
// exchange messages do not wait for each other. The buffers must not overlap. If one of the two
// fails the other one is given up.
func SendRecv[T Element](ctx context.Context, c *Communicator, send []T, to, sendTag int, recv []T,
	from, recvTag int) (Status, error) {
	r, err := StartRecv(ctx, c, recv, from, recvTag)
	if err != nil {
		return Status{}, err
	}
	s, err := StartSend(ctx, c, send, to, sendTag)
	if err != nil {
		r.inner.Cancel(err)
		<-r.Done()
		return Status{}, err
	}
	select {
	case <-s.Done():
	case <-r.Done():
	}
	if err := s.Err(); err != nil {
		r.inner.Cancel(err)
		<-r.Done()
		return Status{}, err
	}
	if err := r.Err(); err != nil {
		s.inner.Cancel(err)
		<-s.Done()
		return Status{}, err
	}
	if _, err := s.Wait(ctx); err != nil {
		r.inner.Cancel(err)
		<-r.Done()
		return Status{}, err
	}
	return r.Wait(ctx)
}

// Transfer is a send or a receive in flight. Its buffer belongs to the runtime until Done is
// closed.
type Transfer struct{ inner *engine.Transfer }

// Done is closed when the transfer has ended, right or with an error.
func (t *Transfer) Done() <-chan struct{} {
	inner, err := t.of()
	if err != nil {
		return ended
	}
	return inner.Done()
}

// Err is the error once Done is closed; nil before and for success.
func (t *Transfer) Err() error {
	inner, err := t.of()
	if err != nil {
		return err
	}
	return inner.Err()
}

// Wait waits for the end, and returns Err and, of a receive, which message it took. A context that
// ends first ends the transfer, as in Send and Recv.
func (t *Transfer) Wait(ctx context.Context) (Status, error) {
	inner, err := t.of()
	if err != nil {
		return Status{}, err
	}
	if err := needContext(ctx); err != nil {
		return Status{}, err
	}
	if err := inner.Wait(ctx); err != nil {
		return Status{}, err
	}
	s := inner.Status()
	return Status{Source: int(s.Source), Tag: int(s.Tag), Count: int(s.Count)}, nil
}

// WaitFor waits for the end for so long at most, and reports whether the transfer has ended. Unlike
// Wait it ends nothing: the transfer goes on.
func (t *Transfer) WaitFor(d time.Duration) bool {
	inner, err := t.of()
	return err != nil || inner.WaitFor(d)
}

// StartSend begins a Send and returns. The context governs it: when it ends, the send does. It
// blocks while the communicator has 65536 sends in flight.
func StartSend[T Element](ctx context.Context, c *Communicator, buf []T, to, tag int) (*Transfer, error) {
	return StartSendBytes(ctx, c, op.Bytes(buf), op.DTypeOf[T](), to, tag)
}

// StartSendBytes begins a SendBytes and returns; see StartSend.
func StartSendBytes(ctx context.Context, c *Communicator, buf []byte, d DType,
	to, tag int) (*Transfer, error) {
	return c.transfer(ctx, message(buf, d, to, tag), (*engine.Transfers).Send)
}

// StartRecv begins a Recv and returns. The context governs it: when it ends, the receive does. It
// blocks while the communicator has 65536 receives in flight. Receives that are in flight together
// take messages in the order in which they were started.
func StartRecv[T Element](ctx context.Context, c *Communicator, buf []T, from, tag int) (*Transfer, error) {
	return StartRecvBytes(ctx, c, op.Bytes(buf), op.DTypeOf[T](), from, tag)
}

// StartRecvBytes begins a RecvBytes and returns; see StartRecv.
func StartRecvBytes(ctx context.Context, c *Communicator, buf []byte, d DType,
	from, tag int) (*Transfer, error) {
	return c.transfer(ctx, message(buf, d, from, tag), (*engine.Transfers).Recv)
}

// startTransfer is a method that starts a send or a receive.
type startTransfer func(*engine.Transfers, context.Context, engine.Message) (*engine.Transfer, error)

// transfer begins a send or a receive that its context governs.
func (c *Communicator) transfer(ctx context.Context, m engine.Message,
	start startTransfer) (*Transfer, error) {
	inner, err := c.with(ctx)
	if err != nil {
		return nil, err
	}
	t, err := start(inner.Transfers(), ctx, m)
	if err != nil {
		return nil, err
	}
	t.Watch(ctx)
	return &Transfer{t}, nil
}

func message(buf []byte, d DType, rank, tag int) engine.Message {
	m := engine.Message{Rank: op.Rank(rank), Tag: p2p.Tag(tag), DType: d, Buf: buf}
	switch {
	case tag == AnyTag:
		m.Tag = p2p.AnyTag
	case tag < 0 || tag > MaxTag:
		m.Tag = p2p.NoTag
	}
	return m
}
