package communicator

import (
	"context"
	"fmt"
	"time"

	"github.com/polyrail/polyrail/actors/engine"
	"github.com/polyrail/polyrail/collective/fault"
	"github.com/polyrail/polyrail/collective/table"
)

// This file is about a call between its caller and the coordinator: until it has a seq.

// Start begins an operation. It blocks while the communicator has its limit of
// operations in flight, and while the ranks agree on a table. A call that fails here breaks the
// communicator, since the other ranks may have made it, except on a closed or broken one and
// where the context was over before.
func (c *Communicator) Start(ctx context.Context, r *engine.Request) (*engine.Work, error) {
	if err := c.admit(ctx); err != nil {
		return nil, err
	}
	return c.start(ctx, r, nil)
}

// start is for a call that was admitted. It tells entered, unless it is nil, when the call has got
// its seq and nothing was sent.
func (c *Communicator) start(ctx context.Context, r *engine.Request,
	entered func(seq uint64, inForce *table.Table)) (*engine.Work, error) {
	if err := c.slot(ctx); err != nil {
		return nil, err
	}
	g := c.Group
	m := g.node.newStart()
	m.work, m.entered = g.NewWork(r, c.slots), entered
	g.Called(r)
	g.Gather(r)
	if g.node.OperationTimeout > 0 {
		m.called = time.Now()
	}
	g.node.tell(c.coordinator, m)
	if err := c.numbered(ctx, r, m); err != nil {
		r.Batch.Free()
		<-c.slots
		return nil, err
	}
	o, work := m.operation, m.work
	g.node.recycle(m)
	o.Launch()
	return work, nil
}

// slot takes one of the places for operations in flight.
func (c *Communicator) slot(ctx context.Context) error {
	select {
	case c.slots <- struct{}{}:
		return nil
	default:
	}
	g := c.Group
	select {
	case c.slots <- struct{}{}:
		return nil
	case <-g.Closing:
	case <-g.Ended:
	case <-ctx.Done():
	}
	if err := c.Err(); err != nil {
		return err // also where the context has ended: what is in flight is waited for
	}
	cause := context.Cause(ctx)
	g.Fail(cause, 0)
	return fmt.Errorf("communicator %q: waiting for one of %d operations in flight to end: %w",
		g.Name, cap(c.slots), cause)
}

// numbered waits until the coordinator has answered a call, which a table that is being agreed on
// delays.
func (c *Communicator) numbered(ctx context.Context, r *engine.Request, m *startOperation) error {
	select {
	case <-m.ready: // as a rule: the coordinator ran on this goroutine
		return m.err
	default:
	}
	g := c.Group
	defer g.Waited(r)
	g.node.Engine.Listening(1) // for what the ranks agree on
	defer g.node.Engine.Listening(-1)
	var expired <-chan time.Time
	timeout := g.node.OperationTimeout
	if timeout > 0 {
		timer := time.NewTimer(timeout)
		defer timer.Stop()
		expired = timer.C
	}
	var cause error
	select {
	case <-m.ready:
		return m.err
	case <-g.Closing:
	case <-g.Ended:
	case <-ctx.Done():
		cause = context.Cause(ctx)
	case <-expired:
		cause = &fault.TimeoutError{What: r.Kind.String(), After: timeout}
	}
	if !m.taken.CompareAndSwap(false, true) { // the coordinator is about to answer
		<-m.ready
		return m.err
	}
	if err := c.Err(); err != nil {
		return err
	}
	cause = fmt.Errorf("held while rank 0 (node %q) has the ranks agree on a table: %w", g.Nodes[0], cause)
	g.Fail(cause, 0)
	return fmt.Errorf("communicator %q: %w", g.Name, cause)
}
