package actors

import (
	"context"
	"fmt"
	"time"

	"github.com/polyrail/polyrail/collective/fault"
)

// This file is about a call between its caller and the coordinator: until it has a seq.

// Start begins an operation. It blocks while the communicator has its limit of
// operations in flight, and while the ranks agree on a table. A call that fails here breaks the
// communicator, since the other ranks may have made it, except on a closed or broken one and
// where the context was over before.
func (c *Communicator) Start(ctx context.Context, r *Request) (*Work, error) {
	if err := c.admit(ctx); err != nil {
		return nil, err
	}
	if err := c.slot(ctx); err != nil {
		return nil, err
	}
	g := c.group
	r.ready = make(chan struct{}, 1)
	r.handle = c
	r.work = &Work{group: g, done: make(chan struct{}), slot: c.slots}
	r.gather(g.node.pool)
	if g.node.config.OperationTimeout > 0 {
		r.called = time.Now()
	}
	g.node.tell(c.coordinator, &startOperation{r})
	if err := c.numbered(ctx, r); err != nil {
		r.Batch.free()
		<-c.slots
		return nil, err
	}
	r.op.launch()
	return r.work, nil
}

// slot takes one of the places for operations in flight.
func (c *Communicator) slot(ctx context.Context) error {
	select {
	case c.slots <- struct{}{}:
		return nil
	default:
	}
	g := c.group
	select {
	case c.slots <- struct{}{}:
		return nil
	case <-g.closing:
	case <-g.ended:
	case <-ctx.Done():
		cause := context.Cause(ctx)
		g.node.breakGroup(g, cause, 0, true)
		return fmt.Errorf("communicator %q: waiting for one of %d operations in flight to end: %w", g.name, cap(c.slots), cause)
	}
	return c.Err()
}

// numbered waits until the coordinator has answered a call, which a table that is being agreed on delays.
func (c *Communicator) numbered(ctx context.Context, r *Request) error {
	select {
	case <-r.ready: // as a rule: the coordinator ran on this goroutine
		return r.err
	default:
	}
	g := c.group
	var expired <-chan time.Time
	timeout := g.node.config.OperationTimeout
	if timeout > 0 {
		timer := time.NewTimer(timeout)
		defer timer.Stop()
		expired = timer.C
	}
	var cause error
	select {
	case <-r.ready:
		return r.err
	case <-g.closing:
	case <-g.ended:
	case <-ctx.Done():
		cause = context.Cause(ctx)
	case <-expired:
		cause = &fault.TimeoutError{What: r.Kind.String(), After: timeout}
	}
	if !r.taken.CompareAndSwap(false, true) { // the coordinator is about to answer
		<-r.ready
		return r.err
	}
	if cause == nil {
		return c.Err()
	}
	cause = fmt.Errorf("held while rank 0 (node %q) has the ranks agree on a table: %w", g.nodes[0], cause)
	g.node.breakGroup(g, cause, 0, true)
	return fmt.Errorf("communicator %q: %w", g.name, cause)
}
