package bridge

import (
	"context"
	"sync/atomic"

	"github.com/polyrail/polyrail"
)

// comm is a communicator that C holds.
type comm struct {
	*polyrail.Communicator
	maxInFlight int64 // at which the runtime's Start blocks
	inFlight    atomic.Int64
	line        line
}

// Comm is what a handle of a communicator stands for.
func (b *Bridge) Comm(h Handle) (*polyrail.Communicator, error) {
	c, err := lookup[*comm](b, h)
	if err != nil {
		return nil, err
	}
	return c.Communicator, nil
}

// ordered makes a collective call that needs a goroutine while it lasts. Those after it wait.
func (b *Bridge) ordered(h Handle, call Call, f func(context.Context, *comm) (Result, error)) (Outcome, error) {
	c, err := lookup[*comm](b, h)
	if err != nil {
		return Outcome{}, err
	}
	t := c.line.join()
	made := false
	outcome, err := b.whole(call, func(ctx context.Context) (Result, error) {
		made = true
		defer t.pass()
		stop := context.AfterFunc(ctx, func() { c.Abort(context.Cause(ctx)) }) // also while it waits
		defer stop()
		t.wait()
		return f(ctx, c)
	})
	if outcome.Work == 0 && err != nil && !made {
		t.pass()
	}
	return outcome, err
}

// Barrier returns when all ranks have called it.
func (b *Bridge) Barrier(h Handle, call Call) (Outcome, error) {
	return b.ordered(h, call, func(ctx context.Context, c *comm) (Result, error) {
		err := c.Barrier(ctx)
		return Result{Seq: c.Seq()}, err
	})
}

// Dup makes a communicator of the same members.
func (b *Bridge) Dup(h Handle, call Call) (Outcome, error) {
	return b.ordered(h, call, func(ctx context.Context, c *comm) (Result, error) {
		child, err := c.Dup(ctx)
		return b.made(child, int(c.maxInFlight), err)
	})
}

// Sub makes a communicator of some members.
func (b *Bridge) Sub(h Handle, ranks []int, call Call) (Outcome, error) {
	return b.ordered(h, call, func(ctx context.Context, c *comm) (Result, error) {
		child, err := c.Sub(ctx, ranks)
		return b.made(child, int(c.maxInFlight), err)
	})
}

// Split divides the members.
func (b *Bridge) Split(h Handle, color, key int, call Call) (Outcome, error) {
	return b.ordered(h, call, func(ctx context.Context, c *comm) (Result, error) {
		child, err := c.Split(ctx, color, key)
		return b.made(child, int(c.maxInFlight), err)
	})
}

// Shrink forms a communicator of those that live. The handle of the old one stays, and is to be closed.
func (b *Bridge) Shrink(h Handle, call Call) (Outcome, error) {
	c, err := lookup[*comm](b, h)
	if err != nil {
		return Outcome{}, err
	}
	return b.whole(call, func(ctx context.Context) (Result, error) {
		next, uneven, err := c.Shrink(ctx)
		r, err := b.made(next, int(c.maxInFlight), err)
		r.First, r.Last = uneven.First, uneven.Last
		return r, err
	})
}

// CloseComm ends a communicator and releases its handle.
func (b *Bridge) CloseComm(h Handle, call Call) (Outcome, error) {
	c, err := lookup[*comm](b, h)
	if err != nil {
		return Outcome{}, err
	}
	b.drop(h)
	return b.whole(call, func(ctx context.Context) (Result, error) { return Result{}, c.Close(ctx) })
}

// Abort breaks a communicator on all ranks.
func (b *Bridge) Abort(h Handle) error {
	c, err := lookup[*comm](b, h)
	if err == nil {
		c.Abort(context.Canceled)
	}
	return err
}

// Collective runs an operation.
func (b *Bridge) Collective(h Handle, o polyrail.Operation, call Call, opts ...polyrail.Option) (Outcome, error) {
	return b.launch(h, call, func(ctx context.Context, c *comm, more ...polyrail.Option) (*polyrail.Work, error) {
		return c.Start(ctx, o, append(opts, more...)...)
	})
}

// Batch runs an allreduce of many buffers.
func (b *Bridge) Batch(h Handle, batch polyrail.Batch, call Call, opts ...polyrail.Option) (Outcome, error) {
	return b.launch(h, call, func(ctx context.Context, c *comm, more ...polyrail.Option) (*polyrail.Work, error) {
		return c.StartBatch(ctx, batch, append(opts, more...)...)
	})
}

// launch begins an operation at once where its turn has come and there is room, else on a goroutine
// of its own: so a call that is only started never blocks.
func (b *Bridge) launch(h Handle, call Call,
	begin func(context.Context, *comm, ...polyrail.Option) (*polyrail.Work, error)) (Outcome, error) {
	c, err := lookup[*comm](b, h)
	if err != nil {
		return Outcome{}, err
	}
	ctx := context.Background() // canceling an operation breaks its communicator: Abort does
	if !call.Started {
		t := c.line.join()
		t.wait()
		w, err := begin(ctx, c, polyrail.WithWait())
		t.pass()
		if err == nil {
			err = w.Wait(ctx)
		}
		return Outcome{Result: Result{Seq: w.Seq()}}, err
	}
	w, err := b.newWork(call)
	if err != nil {
		return Outcome{}, err
	}
	w.cancel = func() { c.Abort(context.Canceled) }
	t := c.line.join()
	inFlight := c.inFlight.Add(1)
	start := func(opts ...polyrail.Option) (*inside, error) {
		f, err := begin(ctx, c, opts...)
		t.pass()
		if err != nil {
			c.inFlight.Add(-1)
			return nil, err
		}
		return &inside{f, func() (Result, error) {
			c.inFlight.Add(-1)
			return Result{Seq: f.Seq()}, f.Err()
		}}, nil
	}
	if !t.here() || inFlight > c.maxInFlight {
		go func() {
			t.wait()
			f, err := start()
			if err != nil {
				w.settle(func() (Result, error) { return Result{}, err })
				return
			}
			w.fly(f)
		}()
		return b.outcome(w, call.Patience)
	}
	return b.lift(w, call, func() (*inside, error) {
		if w.queue == nil && call.Patience > 0 { // outcome waits at once
			return start(polyrail.WithWait())
		}
		return start()
	})
}

// lift begins a flight on the caller's goroutine. Only one that outlasts the caller's patience gets
// a goroutine that watches it.
func (b *Bridge) lift(w *work, call Call, start func() (*inside, error)) (Outcome, error) {
	f, err := start()
	if err != nil {
		b.drop(w.handle)
		return Outcome{}, err
	}
	w.inside.Store(f)
	outcome, err := b.outcome(w, call.Patience)
	if outcome.Work != 0 {
		go w.fly(f)
	}
	return outcome, err
}

// Send sends a message.
func (b *Bridge) Send(h Handle, buf []byte, d polyrail.DType, to, tag int, call Call) (Outcome, error) {
	return b.transfer(h, call, func(ctx context.Context, c *comm) (*polyrail.Transfer, error) {
		return polyrail.StartSendBytes(ctx, c.Communicator, buf, d, to, tag)
	})
}

// Recv receives a message.
func (b *Bridge) Recv(h Handle, buf []byte, d polyrail.DType, from, tag int, call Call) (Outcome, error) {
	return b.transfer(h, call, func(ctx context.Context, c *comm) (*polyrail.Transfer, error) {
		return polyrail.StartRecvBytes(ctx, c.Communicator, buf, d, from, tag)
	})
}

// transfer begins a send or a receive.
func (b *Bridge) transfer(h Handle, call Call,
	begin func(context.Context, *comm) (*polyrail.Transfer, error)) (Outcome, error) {
	c, err := lookup[*comm](b, h)
	if err != nil {
		return Outcome{}, err
	}
	ended := func(t *polyrail.Transfer) (Result, error) {
		s, err := t.Wait(context.Background())
		return Result{Source: s.Source, Tag: s.Tag, Count: s.Count}, err
	}
	if !call.Started {
		t, err := begin(context.Background(), c)
		if err != nil {
			return Outcome{}, err
		}
		result, err := ended(t)
		return Outcome{Result: result}, err
	}
	w, err := b.newWork(call)
	if err != nil {
		return Outcome{}, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	w.cancel = cancel
	return b.lift(w, call, func() (*inside, error) {
		t, err := begin(ctx, c)
		if err != nil {
			cancel()
			return nil, err
		}
		return &inside{t, func() (Result, error) {
			defer cancel()
			return ended(t)
		}}, nil
	})
}
