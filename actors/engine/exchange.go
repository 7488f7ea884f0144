package engine

import (
	"context"

	"github.com/polyrail/polyrail/collective/p2p"
)

// Exchange is the messages of one collective that has no schedule: each rank knows what it sends
// to whom, and how much it expects of whom. Lengths must match exactly: a difference is an error
// that names both.
type Exchange struct {
	transfers []*Transfer
	failed    chan error // the first failure
}

// Exchange begins all messages of a collective; their tags are ignored. They get one of the runtime's
// own, which follows from id, so that callers' receives don't meet them, nor do other collectives'.
// If it fails nothing is left of them.
func (x *Transfers) Exchange(ctx context.Context, id uint64, sends, recvs []Message) (*Exchange, error) {
	tag := p2p.Reserved + p2p.Tag(id)%p2p.Reserved
	e := &Exchange{transfers: make([]*Transfer, 0, len(sends)+len(recvs)), failed: make(chan error, 1)}
	add := func(start func(context.Context, Message) (*Transfer, error), all []Message) error {
		for _, m := range all {
			m.Tag, m.Exact, m.exchange = tag, true, e
			t, err := start(ctx, m)
			if err != nil {
				return err
			}
			e.transfers = append(e.transfers, t)
		}
		return nil
	}
	err := add(x.Recv, recvs) // first: what is there goes to its place at once
	if err == nil {
		err = add(x.Send, sends)
	}
	if err != nil {
		e.cancel(err)
		return nil, err
	}
	return e, nil
}

// Wait waits for all messages, or for the context. The first failure ends the others; Wait returns
// it when the runtime has let go of all memory. What it means for the collective, and for ranks
// that have all their messages, is the caller's to say.
func (e *Exchange) Wait(ctx context.Context) error {
	for _, t := range e.transfers {
		var err error
		select {
		case <-t.done:
			continue // e.failed has its error
		case err = <-e.failed:
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
		e.cancel(err)
		return err
	}
	select {
	case err := <-e.failed:
		return err
	default:
		return nil
	}
}

func (e *Exchange) cancel(cause error) {
	for _, t := range e.transfers {
		t.Cancel(cause)
	}
	for _, t := range e.transfers {
		<-t.done
	}
}

// fail keeps the first failure.
func (e *Exchange) fail(err error) {
	select {
	case e.failed <- err:
	default:
	}
}
