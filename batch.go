package polyrail

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/polyrail/polyrail/actors/engine"
	"github.com/polyrail/polyrail/collective/op"
)

// This file holds what saves small operations their round trips: a batch of buffers as one
// operation, and several operations that are started before the first is waited for.

// Batch is an allreduce of many buffers as a value, for callers that know the element type at run
// time only. The buffers hold packed elements in the machine's byte order, at any address.
type Batch struct {
	DType   DType
	Op      Op
	Buffers [][]byte
}

// RunBatch is AllReduceBatch of a value. It is a collective call.
func (c *Communicator) RunBatch(ctx context.Context, b Batch, opts ...Option) error {
	return c.run(ctx, b.request(), opts)
}

// StartBatch begins a RunBatch; see Communicator.Start.
func (c *Communicator) StartBatch(ctx context.Context, b Batch, opts ...Option) (*Work, error) {
	return c.launch(ctx, b.request(), opts)
}

func (b Batch) request() *engine.Request {
	return &engine.Request{Kind: KindAllReduce, DType: b.DType, Op: b.Op,
		Batch: &engine.Batch{Buffers: slices.Clone(b.Buffers)}}
}

// AllReduceBatch is an AllReduce of all bufs as one operation, in place. It is for many small
// buffers, which would each take a round trip of their own. All ranks pass as many buffers, of the
// same lengths in the same order; lists that differ are a MismatchError. Nothing else is fused.
//
// The runtime copies the buffers into memory of its own, and the results back. That memory counts
// against Config.MemoryLimit; the heap supplies what it can't. From about 256 KiB on a
// buffer gains nothing by it: call AllReduce for it.
//
// The buffers belong to the runtime until the operation has ended, and must not overlap. After an
// error they hold what they held before. The bits of a sum are those of one AllReduce over all
// buffers, each on a multiple of 64 bytes, so another list may give others. A user-defined
// operator is called on the zeros between buffers too.
func AllReduceBatch[T Element](ctx context.Context, c *Communicator, bufs [][]T, o Op, opts ...Option) error {
	return c.run(ctx, batchOf(bufs, o), opts)
}

// StartAllReduceBatch begins an AllReduceBatch; see Communicator.Start.
func StartAllReduceBatch[T Element](ctx context.Context, c *Communicator, bufs [][]T, o Op,
	opts ...Option) (*Work, error) {
	return c.launch(ctx, batchOf(bufs, o), opts)
}

func batchOf[T Element](bufs [][]T, o Op) *engine.Request {
	list := make([][]byte, len(bufs))
	for i, buf := range bufs {
		list[i] = op.Bytes(buf)
	}
	return &engine.Request{Kind: KindAllReduce, DType: op.DTypeOf[T](), Op: o,
		Batch: &engine.Batch{Buffers: list}}
}

// WaitAll waits for the end of all works. It returns the error of the first operation that failed,
// since that broke the communicator and ended the others; of several communicators, each one's
// joined. A context that ends first ends them all: see Work.Wait.
func WaitAll(ctx context.Context, works ...*Work) error {
	if err := needContext(ctx); err != nil {
		return err
	}
	var faults []error
	all := make([]*engine.Work, 0, len(works))
	for i, w := range works {
		inner, err := w.of()
		if err != nil {
			faults = append(faults, fmt.Errorf("work %d of %d: %w", i, len(works), err))
			continue
		}
		all = append(all, inner)
	}
	return errors.Join(append(faults, engine.WaitAll(ctx, all))...)
}
