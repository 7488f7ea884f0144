package engine

import (
	"context"
	"fmt"

	"github.com/polyrail/polyrail/collective/op"
)

// This file is about collectives whose counts are private. Each rank knows what it sends to whom,
// and what it expects of whom; nobody knows all. They have no schedule; their data goes as messages
// between two ranks (Exchange), each cut by its own length. The operation has the number, the
// digest and the end.

// AllToAllV describes such a call: parts of Src and Dst follow each other by rank, of so many
// elements.
type AllToAllV struct {
	SendCounts, RecvCounts []int
}

// messages cuts the caller's memory.
func (v *AllToAllV) messages(r *Request, n int) (sends, recvs []Message, err error) {
	if sends, err = cutMessages("source", r.Src, v.SendCounts, r.DType, n); err != nil {
		return nil, nil, err
	}
	if recvs, err = cutMessages("destination", r.Dst, v.RecvCounts, r.DType, n); err != nil {
		return nil, nil, err
	}
	if overlap(r.Src, r.Dst) > 0 {
		return nil, nil, fmt.Errorf("source and destination overlap: %v doesn't work in place", r.Kind)
	}
	return sends, recvs, nil
}

func cutMessages(what string, buf []byte, counts []int, d op.DType, n int) ([]Message, error) {
	if len(counts) != n {
		return nil, fmt.Errorf("%d counts of the %s for %d ranks", len(counts), what, n)
	}
	size, total := d.Size(), 0
	for rank, count := range counts {
		if count < 0 || count > len(buf) {
			return nil, fmt.Errorf("count %d of the %s is %d", rank, what, count)
		}
		total += count * size
	}
	if total != len(buf) {
		return nil, fmt.Errorf("%s has %d bytes, its counts say %d", what, len(buf), total)
	}
	messages := make([]Message, n)
	for rank, count := range counts {
		messages[rank] = Message{Rank: op.Rank(rank), DType: d, Buf: buf[:count*size]}
		buf = buf[count*size:]
	}
	return messages, nil
}

// runExternal has the messages of an operation sent and received. They are one more part of it,
// which ends with them, and they with the communicator. Not on the caller's goroutine: that may wait
// for a place among the messages in flight, and only a caller who waits for the operation looks at
// its context. The counts are the caller's again when the call has returned.
func (o *Operation) runExternal() {
	sends, recvs, err := o.request.External.messages(o.request, o.group.Size)
	go func() {
		if err == nil {
			err = o.exchange(sends, recvs)
		}
		o.externalEnded(err)
	}()
}

// exchange: the messages of ranks that called something else don't meet, and both will ask (past.go).
func (o *Operation) exchange(sends, recvs []Message) error {
	e, err := o.group.Transfers.Exchange(context.Background(), o.shape.digest+o.Seq, sends, recvs)
	if err != nil {
		return err
	}
	return e.Wait(context.Background())
}

// externalEnded: nothing refers to the caller's memory any more.
func (o *Operation) externalEnded(err error) {
	if err != nil {
		o.fail(err)
		// Who broke the communicator first may not have come to this operation yet.
		_, cause := o.group.Cause()
		o.abort(o.group, o.Seq, cause)
	}
	o.ended()
}
