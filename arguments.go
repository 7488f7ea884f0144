package polyrail

import (
	"context"
	"fmt"

	"github.com/polyrail/polyrail/actors/communicator"
	"github.com/polyrail/polyrail/actors/engine"
	"github.com/polyrail/polyrail/actors/membership"
	"github.com/polyrail/polyrail/collective/fault"
)

// This file turns calls away that are wrong whatever the state of the cluster. They have no effect,
// and end with an error that says what is missing, in place of a panic.

// needContext is the error of a call without a context, or nil.
func needContext(ctx context.Context) error {
	if ctx == nil {
		return fmt.Errorf("%w: the context is nil", fault.ErrArgument)
	}
	return nil
}

// of returns what a handle stands for, or an error where there is none.
func (c *Communicator) of() (*communicator.Communicator, error) {
	if c == nil || c.inner == nil {
		return nil, fmt.Errorf("%w: the communicator is nil", fault.ErrArgument)
	}
	return c.inner, nil
}

func (c *Communicator) with(ctx context.Context) (*communicator.Communicator, error) {
	if err := needContext(ctx); err != nil {
		return nil, err
	}
	return c.of()
}

func (n *Node) with(ctx context.Context) (*membership.Node, error) {
	if err := needContext(ctx); err != nil {
		return nil, err
	}
	return n.of()
}

func (n *Node) of() (*membership.Node, error) {
	if n == nil || n.inner == nil {
		return nil, fmt.Errorf("%w: the node is nil", fault.ErrArgument)
	}
	return n.inner, nil
}

func (w *Work) of() (*engine.Work, error) {
	if w == nil || w.inner == nil {
		return nil, fmt.Errorf("%w: the operation is nil or was released", fault.ErrArgument)
	}
	return w.inner, nil
}

func (t *Transfer) of() (*engine.Transfer, error) {
	if t == nil || t.inner == nil {
		return nil, fmt.Errorf("%w: the message is nil", fault.ErrArgument)
	}
	return t.inner, nil
}

func (t *Trace) of() (*engine.Trace, error) {
	if t == nil || t.trace == nil {
		return nil, fmt.Errorf("%w: the trace is nil", fault.ErrArgument)
	}
	return t.trace, nil
}

// apply changes a call's request by its options.
func apply(r *engine.Request, opts []Option) error {
	for i, option := range opts {
		if option == nil {
			return fmt.Errorf("%w: option %d of %d is nil", fault.ErrArgument, i+1, len(opts))
		}
		option(r)
	}
	return nil
}

// ended is the Done channel of no operation, and of no message.
var ended = func() <-chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()
