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
	if !call.Started {
		await(c.line.ahead())
		result, err := f(context.Background(), c)
		return Outcome{Result: result}, err
	}
	t := c.line.join()
	made := false
	outcome, err := b.whole(call, func(ctx context.Context) (result Result, err error) {
		made = true
		c.inTurn(ctx, t, func() error {
			result, err = f(ctx, c)
			return err
		})
		return result, err
	})
	if outcome.Work == 0 && err != nil && !made {
		t.pass()
	}
	return outcome, err
}

// inTurn makes a collective call that has a place in line. To cancel it breaks the communicator, unless
// it has succeeded.
func (c *comm) inTurn(ctx context.Context, t *turn, f func() error) {
	defer t.pass()
	abort := func() { c.Abort(context.Cause(ctx)) }
	stop := context.AfterFunc(ctx, abort) // of the wait: what is ahead ends, too
	t.wait()
	stop()
	if err := f(); err != nil && ctx.Err() != nil {
		abort() // it may have ended before the call had any effect
	}
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

// CloseComm waits for what is in flight or in line, ends a communicator and releases its handle.
func (b *Bridge) CloseComm(h Handle, call Call) (Outcome, error) {
	c, err := lookup[*comm](b, h)
	if err != nil {
		return Outcome{}, err
	}
	ahead := c.line.ahead()
	b.drop(h)
	return b.whole(call, func(ctx context.Context) (Result, error) {
		if ahead != nil {
			select {
			case <-ahead:
			case <-ctx.Done(): // Close ends what is in line, too
			}
		}
		return Result{}, c.Close(ctx)
	})
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
	return b.launch(h, collective{Operation: o, opts: opts}, call)
}

// Batch runs an allreduce of many buffers.
func (b *Bridge) Batch(h Handle, batch polyrail.Batch, call Call) (Outcome, error) {
	return b.launch(h, collective{batch: &batch}, call)
}

// Barrier returns when all ranks have called it.
func (b *Bridge) Barrier(h Handle, call Call) (Outcome, error) {
	return b.launch(h, collective{barrier: true}, call)
}

// collective is an operation, a batch or a barrier.
type collective struct {
	polyrail.Operation
	batch   *polyrail.Batch // in place of the Operation; nil: none
	barrier bool            // the same
	opts    []polyrail.Option
}

// start begins the operation. waits says that the caller waits for it at once.
func (o *collective) start(ctx context.Context, c *comm, waits bool) (*polyrail.Work, error) {
	opts := o.opts
	if waits {
		opts = append(opts, polyrail.WithWait())
	}
	switch {
	case o.batch != nil:
		return c.StartBatch(ctx, *o.batch, opts...)
	case o.barrier:
		return c.StartBarrier(ctx, opts...)
	}
	return c.Start(ctx, o.Operation, opts...)
}

// launch makes a collective call. One that is only started never blocks.
func (b *Bridge) launch(h Handle, o collective, call Call) (Outcome, error) {
	c, err := lookup[*comm](b, h)
	if err != nil {
		return Outcome{}, err
	}
	ahead := c.line.ahead()
	if !call.Started {
		await(ahead)
		w, err := o.start(context.Background(), c, true)
		if err != nil {
			return Outcome{}, err
		}
		_ = w.Wait(context.Background()) // ended has the error
		return ended(w)
	}
	room := c.inFlight.Add(1) <= c.maxInFlight
	if room && ahead == nil && call.waits() {
		return b.attend(c, o, call)
	}
	return b.begin(c, o, call, room && ahead == nil)
}

// attend is a call whose caller waits at once. Only an operation that outlasts the caller's patience
// gets a handle.
func (b *Bridge) attend(c *comm, o collective, call Call) (Outcome, error) {
	_, err := b.queueOf(call)
	var w *polyrail.Work
	if err == nil {
		w, err = o.start(context.Background(), c, true)
	}
	if err != nil {
		c.inFlight.Add(-1)
		return Outcome{}, err
	}
	if w.WaitFor(call.Patience) {
		c.inFlight.Add(-1)
		return ended(w)
	}
	// A wait whose context is over ends what it waits for, unless that has ended. It may take a while.
	cancel := func(cause error) { go func() { _ = w.Wait(over(cause)) }() }
	return b.adopt(call, cancel, c.flying(w, func() {}))
}

// over is a context that is, for a cause; nil: it was canceled.
func over(cause error) context.Context {
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(cause)
	return ctx
}

// ended is the outcome of an operation that has ended, and whose handle nobody else has.
func ended(w *polyrail.Work) (Outcome, error) {
	seq, err := w.Seq(), w.Err()
	w.Release()
	return Outcome{Result: Result{Seq: seq}}, err
}

// begin gives a call its handle and begins it: at once where that cannot block, else on a goroutine
// of its own.
func (b *Bridge) begin(c *comm, o collective, call Call, atOnce bool) (Outcome, error) {
	ctx, cancel := context.WithCancelCause(context.Background())
	w, err := b.newWork(call, cancel)
	if err != nil {
		cancel(nil)
		c.inFlight.Add(-1)
		return Outcome{}, err
	}
	start := func() (*inside, error) {
		f, err := o.start(ctx, c, false)
		if err != nil {
			c.inFlight.Add(-1)
			return nil, err
		}
		return c.flying(f, func() { cancel(nil) }), nil
	}
	if atOnce {
		return b.lift(w, call, start)
	}
	t := c.line.join()
	go func() {
		var f *inside
		var err error
		c.inTurn(ctx, t, func() error {
			f, err = start()
			return err
		})
		if err != nil {
			cancel(nil)
			w.settle(func() (Result, error) { return Result{}, err })
			return
		}
		w.fly(f)
	}()
	return b.outcome(w, call)
}

// flying is an operation in flight that is counted; release is called at its end.
func (c *comm) flying(w *polyrail.Work, release func()) *inside {
	return &inside{w, func() (Result, error) {
		release()
		c.inFlight.Add(-1)
		return Result{Seq: w.Seq()}, w.Err()
	}}
}

// lift begins a flight on the caller's goroutine. Only one that has not ended then gets a goroutine
// that watches it.
func (b *Bridge) lift(w *work, call Call, start func() (*inside, error)) (Outcome, error) {
	f, err := start()
	if err != nil {
		w.cancel(nil)
		b.drop(w.handle)
		return Outcome{}, err
	}
	w.inside.Store(f)
	outcome, err := b.outcome(w, call)
	if outcome.Work != 0 {
		go w.fly(f)
	}
	return outcome, err
}

// adopt gives a handle to a flight that outlasted its caller's patience. Where none is left it waits
// for the end: the flight uses the caller's memory.
func (b *Bridge) adopt(call Call, cancel context.CancelCauseFunc, f *inside) (Outcome, error) {
	w, err := b.newWork(call, cancel)
	if err != nil {
		<-f.Done()
		result, err := f.end()
		return Outcome{Result: result}, err
	}
	w.inside.Store(f)
	w.tell()
	go w.fly(f)
	return Outcome{Work: w.handle}, nil
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
	end := func(t *polyrail.Transfer) (Result, error) {
		s, err := t.Wait(context.Background())
		return Result{Source: s.Source, Tag: s.Tag, Count: s.Count}, err
	}
	if !call.Started {
		t, err := begin(context.Background(), c)
		if err != nil {
			return Outcome{}, err
		}
		result, err := end(t)
		return Outcome{Result: result}, err
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	start := func() (*inside, error) {
		t, err := begin(ctx, c)
		if err != nil {
			return nil, err
		}
		return &inside{t, func() (Result, error) {
			defer cancel(nil)
			return end(t)
		}}, nil
	}
	if call.waits() {
		if _, err := b.queueOf(call); err != nil {
			cancel(nil)
			return Outcome{}, err
		}
		f, err := start()
		if err != nil {
			cancel(nil)
			return Outcome{}, err
		}
		if f.WaitFor(call.Patience) {
			result, err := f.end()
			return Outcome{Result: result}, err
		}
		return b.adopt(call, cancel, f)
	}
	w, err := b.newWork(call, cancel)
	if err != nil {
		cancel(nil)
		return Outcome{}, err
	}
	return b.lift(w, call, start)
}
