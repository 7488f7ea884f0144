package membership

import (
	"context"
	"errors"
	"fmt"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/polyrail/polyrail/actors/communicator"
	"github.com/polyrail/polyrail/collective/fault"
	"github.com/polyrail/polyrail/railactors/supervise"
)

// This file is about a call for a communicator, on its caller's goroutine.

// Communicator waits until size nodes have asked for the name, and returns the communicator that
// they form.
func (n *Node) Communicator(ctx context.Context, name string, size int) (*communicator.Communicator, error) {
	if ctx.Err() != nil {
		return nil, callError(name, context.Cause(ctx))
	}
	f := n.await(ctx, &communicatorCall{name: name, size: size, done: make(chan formed, 1)})
	return f.communicator, f.err
}

// await makes a call and waits for its end, which the context brings about early.
func (n *node) await(ctx context.Context, call *communicatorCall) formed {
	n.tell(n.pid, call)
	title := call.title()
	select {
	case f := <-call.done:
		return probe(ctx, f)
	case <-n.closing: // the node actor may be gone; what it forms ends with the node
		return formed{err: callError(title, n.closedError())}
	case <-ctx.Done():
	}
	n.tell(n.pid, &cancelCall{call, context.Cause(ctx).Error()})
	var f formed
	select {
	case f = <-call.done:
	case <-n.closing:
		f = formed{err: callError(title, n.closedError())}
	}
	if f.communicator == nil {
		f.err = fmt.Errorf("%w (%w)", f.err, context.Cause(ctx))
	}
	return probe(ctx, f) // it may have been formed at the last moment
}

// survive keeps the actor after a panic: a restart would lose the call that it was at, and one too
// many would end it, and with it all calls to come.
func (a *nodeActor) survive(ctx actor.Context) {
	r := recover()
	if r == nil {
		return
	}
	supervise.Log(ctx.Self(), ctx.Message(), r, a.node.log)
	var call *communicatorCall
	switch m := ctx.Message().(type) {
	case *communicatorCall:
		call = m
	case *cancelCall:
		call = m.call
	default:
		return
	}
	failed := formed{err: callError(call.title(), fmt.Errorf("%w: node: %v", fault.ErrInternal, r))}
	a.answer(call.id, failed)
	select {
	case call.done <- failed: // it was not noted yet
	default:
	}
}

// callError names the communicator that was asked for.
func callError(name string, cause error) error {
	return fmt.Errorf("communicator %q: %w", name, cause)
}

// probe measures the rails of a communicator that was formed.
func probe(ctx context.Context, f formed) formed {
	if f.err != nil {
		return f
	}
	if err := f.communicator.Probe(ctx); err != nil {
		ctx, cancel := context.WithTimeout(ctx, leaveTimeout)
		defer cancel()
		err = fmt.Errorf("%w: %w", fault.ErrView, err) // and the cause: a rank that was lost, say
		return formed{err: errors.Join(err, f.communicator.Close(ctx))}
	}
	return f
}
