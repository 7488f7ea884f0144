package polyrail

import (
	"context"
	"time"
	"unsafe"

	"github.com/polyrail/polyrail/actors/communicator"
	"github.com/polyrail/polyrail/actors/engine"
	"github.com/polyrail/polyrail/actors/membership"
	"github.com/polyrail/polyrail/collective/balance"
	"github.com/polyrail/polyrail/collective/op"
	"github.com/polyrail/polyrail/collective/view"
)

// Communicator is a group of nodes that run collectives together. All ranks call the same
// operations in the same order: two goroutines that share a communicator must order
// their calls, or use one each (Dup).
//
// An operation that fails breaks its communicator: everything in flight ends with the first cause,
// and so do later calls. Buffers of in-place operations are undefined then.
//
// Every call returns when its context ends. One that waits for an operation's end returns later where
// a user-defined operator still works on its buffers. A call whose context is over before it has no
// effect: it is as if it had not been made. Close alone closes all the same. A nil communicator has no
// name, no members and ErrArgument as its error.
type Communicator struct {
	inner *communicator.Communicator
	node  *membership.Node
	spans *spans // nil: operations have none
}

// Name is what the members asked for.
func (c *Communicator) Name() string {
	inner, err := c.of()
	if err != nil {
		return ""
	}
	return inner.Name()
}

// Rank is this node's number: 0 … Size-1; -1 in no communicator.
func (c *Communicator) Rank() int {
	inner, err := c.of()
	if err != nil {
		return -1
	}
	return inner.Rank()
}

// Size is the number of members.
func (c *Communicator) Size() int {
	inner, err := c.of()
	if err != nil {
		return 0
	}
	return inner.Size()
}

// Nodes are the members' names by rank.
func (c *Communicator) Nodes() []string {
	inner, err := c.of()
	if err != nil {
		return nil
	}
	return append([]string(nil), inner.Nodes()...)
}

// Err is what broke or closed the communicator, or nil.
func (c *Communicator) Err() error {
	inner, err := c.of()
	if err != nil {
		return err
	}
	return inner.Err()
}

// Dup makes a second communicator of the same members, whose operations are independent of this
// one's and begin with its table. It is a collective call.
func (c *Communicator) Dup(ctx context.Context) (*Communicator, error) {
	inner, err := c.with(ctx)
	if err != nil {
		return nil, err
	}
	if inner, err = inner.Dup(ctx); err != nil {
		return nil, err
	}
	return c.sibling(inner), nil
}

// Sub makes a communicator of some of this one's members: its rank i is ranks[i] here. All members
// call it, with the same ranks; those that are not among them get nil. It costs no connection, and
// begins with the table in force here. It is a collective call.
func (c *Communicator) Sub(ctx context.Context, ranks []int) (*Communicator, error) {
	inner, err := c.with(ctx)
	if err != nil {
		return nil, err
	}
	inner, err = inner.Sub(ctx, ranks)
	return c.sibling(inner), err
}

// Split divides the members into communicators: those with the same color form one. Its order is
// that of their keys, and of their ranks here where keys are equal. A member whose color is
// negative gets nil. It costs no connection, and they begin with the table in force here. It is a
// collective call.
func (c *Communicator) Split(ctx context.Context, color, key int) (*Communicator, error) {
	inner, err := c.with(ctx)
	if err != nil {
		return nil, err
	}
	inner, err = inner.Split(ctx, color, key)
	return c.sibling(inner), err
}

// sibling is the public side of another communicator of the same node, or nil.
func (c *Communicator) sibling(inner *communicator.Communicator) *Communicator {
	if inner == nil {
		return nil
	}
	return &Communicator{inner, c.node, c.spans}
}

// Close waits for the operations in flight and for the other ranks to acknowledge the farewell, or
// for the context, which ends what is in flight with an error. Where it is over already, and nothing
// is in flight, Close only tells the other ranks: what this one has called they can finish. A broken
// communicator is to be closed, too: until then the node keeps it, in some 30 KiB.
//
// A user-defined operator that does not return may hold memory at the end of the context. The error
// says so, and the communicator is closed when it has returned. Another Close waits for that.
func (c *Communicator) Close(ctx context.Context) error {
	inner, err := c.with(ctx)
	if err != nil {
		return err
	}
	return inner.Close(ctx)
}

// Abort breaks the communicator on all ranks: what is in flight here ends with an error that matches
// the cause, elsewhere with one that matches ErrAborted. Those of later calls match ErrBroken, too. It
// does not wait for that. On a communicator that is broken or closed it does nothing; a nil cause is
// ErrAborted.
func (c *Communicator) Abort(cause error) {
	inner, err := c.of()
	if err != nil || inner.Err() != nil {
		return
	}
	if cause == nil {
		cause = ErrAborted
	}
	inner.Group.Fail(cause, 0)
}

// SeqRange is a run of operations of one communicator, by Work.Seq; both ends are included. It may
// be empty.
type SeqRange = view.SeqRange

// Shrink forms another communicator, of the same name, from those members that live and call Shrink
// too. It first breaks this one and ends its operations, so a rank that is not lost but fails to
// call Shrink is waited for, until the context ends with an error that names it. In a cluster of more
// than 32 nodes the lowest rank that has called names it, and the others name that rank's node. Ranks
// ascend by node name, also where Sub or Split had given another order. After success this
// communicator is closed; after an error Shrink can be called again.
//
// More than half of the members must be left, or exactly half with rank 0 among them: the error
// matches ErrMinority otherwise, and others may go on without this node.
//
// The range tells what became of the operations that were in flight: everything below it was
// finished by all members of the new communicator, nothing above it by any, and of those in it some
// members hold the results and others do not. It is the same on all of them.
func (c *Communicator) Shrink(ctx context.Context) (*Communicator, SeqRange, error) {
	old, err := c.with(ctx)
	if err != nil {
		return nil, SeqRange{}, err
	}
	inner, uneven, err := c.node.Shrink(ctx, old)
	if err != nil {
		return nil, SeqRange{}, err
	}
	return c.sibling(inner), uneven, nil
}

// Seq is the number of the last operation that was called here. Calls of Barrier, Dup and Sub count,
// and those of Split twice. So do the barrier by which nodes form a communicator, also by Shrink, and
// what probes its rails after that. The first operation of one that Dup, Sub or Split made has number 1.
func (c *Communicator) Seq() uint64 {
	inner, err := c.of()
	if err != nil {
		return 0
	}
	return inner.Seq()
}

// Barrier returns when every rank has called it. It is a collective call.
func (c *Communicator) Barrier(ctx context.Context) error {
	r := engine.NewRequest()
	r.Waits = true
	w, err := c.barrier(ctx, r)
	if err != nil {
		return err
	}
	return await(ctx, w)
}

// StartBarrier begins a Barrier; see Start.
func (c *Communicator) StartBarrier(ctx context.Context, opts ...Option) (*Work, error) {
	r := engine.NewRequest()
	if err := apply(r, opts); err != nil {
		return nil, err
	}
	w, err := c.barrier(ctx, r)
	if err != nil {
		return nil, err
	}
	w.Watch(ctx)
	return &Work{w}, nil
}

func (c *Communicator) barrier(ctx context.Context, r *engine.Request) (*engine.Work, error) {
	inner, err := c.with(ctx)
	if err != nil {
		return nil, err
	}
	r.Kind = op.KindBarrier
	return c.begin(ctx, inner, r)
}

// Table is the table by which operations are divided now.
func (c *Communicator) Table() Table {
	inner, err := c.of()
	if err != nil {
		return Table{}
	}
	return *inner.Table().Clone()
}

// SetTable publishes another table, which all ranks begin to use with the same operation, and
// returns when that is agreed. Operations in flight end under the old one. Only rank 0 may
// call it; elsewhere it is an error that names rank 0.
//
// From then on this table stays: the balancer (Config.Balance) changes nothing any more.
//
// The version is given by the agreement; weights are in the order of Node.Rails. Results don't
// depend on them.
func (c *Communicator) SetTable(ctx context.Context, t Table) error {
	inner, err := c.with(ctx)
	if err != nil {
		return err
	}
	return inner.SetTable(ctx, t.Entries)
}

// BalanceReport is what has been learned of the rails, and decided for each size class.
type BalanceReport = balance.Report

// ClassReport is one size class of a BalanceReport.
type ClassReport = balance.ClassReport

// AlgorithmReport is what is known of an algorithm that a ClassReport's operations may run, with
// OrderFree.
type AlgorithmReport = balance.AlgorithmReport

// Balance says what rank 0 has learned of the rails and decided for each size; elsewhere it is an error
// that names rank 0.
func (c *Communicator) Balance(ctx context.Context) (BalanceReport, error) {
	inner, err := c.with(ctx)
	if err != nil {
		return BalanceReport{}, err
	}
	return inner.Balance(ctx)
}

// SaveTuning writes what rank 0 has learned to Config.TuningFile now, without waiting for Close. It
// is an error elsewhere, one that names rank 0, and where the file can't be written or is something
// that may not be overwritten.
func (c *Communicator) SaveTuning(ctx context.Context) error {
	inner, err := c.with(ctx)
	if err != nil {
		return err
	}
	return inner.SaveTuning(ctx)
}

// Work is an operation in flight. Its buffers belong to the runtime until Done is closed.
type Work struct{ inner *engine.Work }

// Done is closed when the operation has ended, right or with an error.
func (w *Work) Done() <-chan struct{} {
	inner, err := w.of()
	if err != nil {
		return ended
	}
	return inner.Done()
}

// Err is the operation's error once Done is closed; nil before and for success.
func (w *Work) Err() error {
	inner, err := w.of()
	if err != nil {
		return err
	}
	return inner.Err()
}

// Seq is the operation's number in its communicator.
func (w *Work) Seq() uint64 {
	inner, err := w.of()
	if err != nil {
		return 0
	}
	return inner.Seq()
}

// Wait waits for the end and returns Err. A context that ends first ends the operation and breaks the
// communicator; Wait then returns as soon as the runtime has let go of the buffers.
func (w *Work) Wait(ctx context.Context) error {
	inner, err := w.of()
	if err != nil {
		return err
	}
	if err := needContext(ctx); err != nil {
		return err
	}
	return inner.Wait(ctx)
}

// WaitFor waits for the end for so long at most, and reports whether the operation has ended. Unlike
// Wait it ends nothing: the operation goes on.
func (w *Work) WaitFor(d time.Duration) bool {
	inner, err := w.of()
	return err != nil || inner.WaitFor(d)
}

// Release gives the handle back, so that another operation can use it. It is for a caller that has
// given the work to nobody else. Where the operation has not ended it goes on. The work has the error
// ErrArgument from then on.
func (w *Work) Release() {
	if inner, err := w.of(); err == nil {
		w.inner = nil
		inner.Release()
	}
}

// Option changes one call.
type Option func(*engine.Request)

// WithName gives the operation a name that ranks compare, so that calls in different orders
// are found out: WithName("grad/3").
func WithName(name string) Option { return func(r *engine.Request) { r.Name = name } }

// WithAlgorithm runs the operation by this schedule, on all ranks.
func WithAlgorithm(a Algorithm) Option { return func(r *engine.Request) { r.Algorithm = a } }

// WithWait says that the caller of a Start calls Wait or WaitFor at once, as a blocking call does. It
// saves small operations the wake-ups of other threads. Until then, what other operations wait for may
// be late.
func WithWait() Option { return func(r *engine.Request) { r.Waits = true } }

// WithCounts divides the data of a ReduceScatter, AllGather, Gather or Scatter into parts of so
// many elements, by rank: the same counts on all ranks. Parts may be empty.
func WithCounts(counts ...int) Option { return func(r *engine.Request) { r.Counts = counts } }

// elements views packed bytes as elements.
func elements[T Element](b []byte) []T {
	var z T
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/int(unsafe.Sizeof(z)))
}
