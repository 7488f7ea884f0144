package polyrail

import (
	"context"
	"fmt"
	"slices"

	"github.com/polyrail/polyrail/actors/engine"
	"github.com/polyrail/polyrail/collective/fault"
	"github.com/polyrail/polyrail/collective/op"
	"github.com/polyrail/polyrail/collective/schedule"
)

// This file holds the collective calls. All ranks of a communicator call the same ones in the
// same order, with equal lengths, operators and roots; what differs is an error that names both.
// Each has a form that blocks, and one that starts it: several are in flight then.

// Kind is a kind of collective operation.
type Kind = op.Kind

// The kinds of operation that carry data.
const (
	KindAllReduce     = op.KindAllReduce
	KindReduce        = op.KindReduce
	KindReduceScatter = op.KindReduceScatter
	KindAllGather     = op.KindAllGather
	KindGather        = op.KindGather
	KindScatter       = op.KindScatter
	KindBroadcast     = op.KindBroadcast
	KindAllToAll      = op.KindAllToAll
	KindAllToAllV     = op.KindAllToAllV
	KindScan          = op.KindScan
	KindExScan        = op.KindExScan
)

// Kinds lists those that a schedule runs: all but KindAllToAllV.
func Kinds() []Kind { return append([]Kind(nil), op.Kinds...) }

// Algorithms lists those that run a kind of operation, for WithAlgorithm.
func Algorithms(k Kind) []Algorithm { return schedule.Algorithms(k) }

// Operation is a collective call as a value, for callers that know its kind or element type at run
// time only. The memory holds packed elements in the machine's byte order and is aligned for the
// type. It is as long as the function of the same name says.
type Operation struct {
	Kind     Kind
	DType    DType
	Op       Op     // of kinds that combine
	Root     int    // of kinds that have one
	Dst, Src []byte // of a broadcast: the same

	SendCounts, RecvCounts []int // elements by rank, of KindAllToAllV alone
}

// Run runs an operation. It is a collective call.
func (c *Communicator) Run(ctx context.Context, o Operation, opts ...Option) error {
	return c.run(ctx, o.request(), opts)
}

// Start begins an operation and returns. The context governs it: when it ends, the operation does.
// It blocks while the communicator has Config.MaxInFlight operations in flight. It is a collective
// call.
func (c *Communicator) Start(ctx context.Context, o Operation, opts ...Option) (*Work, error) {
	return c.launch(ctx, o.request(), opts)
}

// operation describes a call on typed memory. o and root are ignored where the kind has none.
func operation[T Element](k Kind, o Op, root int, dst, src []T) Operation {
	return Operation{Kind: k, DType: op.DTypeOf[T](), Op: o, Root: root, Dst: op.Bytes(dst),
		Src: op.Bytes(src)}
}

func (o Operation) request() *engine.Request {
	r := engine.NewRequest()
	r.Kind, r.DType, r.Op, r.Root, r.Dst, r.Src = o.Kind, o.DType, o.Op, op.Rank(o.Root), o.Dst, o.Src
	if o.Kind == KindAllToAllV {
		r.External = &engine.AllToAllV{SendCounts: o.SendCounts, RecvCounts: o.RecvCounts}
	}
	return r
}

// run starts an operation and waits for its end.
func (c *Communicator) run(ctx context.Context, r *engine.Request, opts []Option) error {
	r.Waits = true
	w, err := c.start(ctx, r, opts)
	if err != nil {
		return err
	}
	return await(ctx, w)
}

// await waits for the end of a blocking call. Nobody else has its handle.
func await(ctx context.Context, w *engine.Work) error {
	defer w.Release()
	return w.Wait(ctx)
}

// launch starts an operation that its context governs.
func (c *Communicator) launch(ctx context.Context, r *engine.Request, opts []Option) (*Work, error) {
	w, err := c.start(ctx, r, opts)
	if err != nil {
		return nil, err
	}
	w.Watch(ctx)
	return &Work{w}, nil
}

func (c *Communicator) start(ctx context.Context, r *engine.Request, opts []Option) (*engine.Work, error) {
	inner, err := c.with(ctx)
	if err != nil {
		return nil, err
	}
	if !slices.Contains(op.Kinds, r.Kind) && r.Kind != KindAllToAllV {
		return nil, fmt.Errorf("%w: %v is no kind of operation that carries data", fault.ErrArgument, r.Kind)
	}
	if err := apply(r, opts); err != nil {
		return nil, err
	}
	return c.begin(ctx, inner, r)
}

// AllReduce replaces each element of buf by the combination of that element on all ranks. All ranks
// get the same bits.
func AllReduce[T Element](ctx context.Context, c *Communicator, buf []T, o Op, opts ...Option) error {
	return AllReduceInto(ctx, c, buf, buf, o, opts...)
}

// StartAllReduce begins an AllReduce; see Communicator.Start.
func StartAllReduce[T Element](ctx context.Context, c *Communicator, buf []T, o Op,
	opts ...Option) (*Work, error) {
	return StartAllReduceInto(ctx, c, buf, buf, o, opts...)
}

// AllReduceBytes is AllReduceInto on packed elements in the machine's byte order whose type is
// known at run time only. The memory must be aligned for the type.
func AllReduceBytes(ctx context.Context, c *Communicator, dst, src []byte, d DType, o Op,
	opts ...Option) error {
	return c.Run(ctx, Operation{Kind: KindAllReduce, DType: d, Op: o, Dst: dst, Src: src}, opts...)
}

// AllReduceInto leaves src as it is and puts the combination of its elements on all ranks into dst.
// Both are equally long, and the same memory or apart. All ranks get the same bits.
func AllReduceInto[T Element](ctx context.Context, c *Communicator, dst, src []T, o Op,
	opts ...Option) error {
	return c.Run(ctx, operation(KindAllReduce, o, 0, dst, src), opts...)
}

// StartAllReduceInto begins an AllReduceInto; see Communicator.Start.
func StartAllReduceInto[T Element](ctx context.Context, c *Communicator, dst, src []T, o Op,
	opts ...Option) (*Work, error) {
	return c.Start(ctx, operation(KindAllReduce, o, 0, dst, src), opts...)
}

// Reduce puts the combination of src on all ranks into dst on the root, where both are equally
// long, and the same memory or apart. The others' dst is ignored.
func Reduce[T Element](ctx context.Context, c *Communicator, dst, src []T, o Op, root int,
	opts ...Option) error {
	return c.Run(ctx, operation(KindReduce, o, root, dst, src), opts...)
}

// StartReduce begins a Reduce; see Communicator.Start.
func StartReduce[T Element](ctx context.Context, c *Communicator, dst, src []T, o Op, root int,
	opts ...Option) (*Work, error) {
	return c.Start(ctx, operation(KindReduce, o, root, dst, src), opts...)
}

// ReduceScatter divides src into one part for each rank, and puts the combination of its part on
// all ranks into a rank's dst. All parts are as long as dst (another division: WithCounts). In
// place dst is the rank's own part of src.
func ReduceScatter[T Element](ctx context.Context, c *Communicator, dst, src []T, o Op,
	opts ...Option) error {
	return c.Run(ctx, operation(KindReduceScatter, o, 0, dst, src), opts...)
}

// StartReduceScatter begins a ReduceScatter; see Communicator.Start.
func StartReduceScatter[T Element](ctx context.Context, c *Communicator, dst, src []T, o Op,
	opts ...Option) (*Work, error) {
	return c.Start(ctx, operation(KindReduceScatter, o, 0, dst, src), opts...)
}

// AllGather puts the src of all ranks into dst, one after the other by rank. All are equally long
// (other lengths: WithCounts). In place src is the rank's own part of dst.
func AllGather[T Element](ctx context.Context, c *Communicator, dst, src []T, opts ...Option) error {
	return c.Run(ctx, operation(KindAllGather, Op{}, 0, dst, src), opts...)
}

// StartAllGather begins an AllGather; see Communicator.Start.
func StartAllGather[T Element](ctx context.Context, c *Communicator, dst, src []T,
	opts ...Option) (*Work, error) {
	return c.Start(ctx, operation(KindAllGather, Op{}, 0, dst, src), opts...)
}

// Gather puts the src of all ranks into the root's dst, one after the other by rank. All are
// equally long (other lengths: WithCounts). In place the root's src is its own part of dst. The
// others' dst is ignored.
func Gather[T Element](ctx context.Context, c *Communicator, dst, src []T, root int, opts ...Option) error {
	return c.Run(ctx, operation(KindGather, Op{}, root, dst, src), opts...)
}

// StartGather begins a Gather; see Communicator.Start.
func StartGather[T Element](ctx context.Context, c *Communicator, dst, src []T, root int,
	opts ...Option) (*Work, error) {
	return c.Start(ctx, operation(KindGather, Op{}, root, dst, src), opts...)
}

// Scatter divides the root's src into one part for each rank, which gets it in dst. All parts are
// as long as dst (another division: WithCounts). In place the root's dst is its own part of src.
// The others' src is ignored.
func Scatter[T Element](ctx context.Context, c *Communicator, dst, src []T, root int, opts ...Option) error {
	return c.Run(ctx, operation(KindScatter, Op{}, root, dst, src), opts...)
}

// StartScatter begins a Scatter; see Communicator.Start.
func StartScatter[T Element](ctx context.Context, c *Communicator, dst, src []T, root int,
	opts ...Option) (*Work, error) {
	return c.Start(ctx, operation(KindScatter, Op{}, root, dst, src), opts...)
}

// Broadcast copies the root's buf into that of all others, which is as long.
func Broadcast[T Element](ctx context.Context, c *Communicator, buf []T, root int, opts ...Option) error {
	return c.Run(ctx, operation(KindBroadcast, Op{}, root, buf, buf), opts...)
}

// StartBroadcast begins a Broadcast; see Communicator.Start.
func StartBroadcast[T Element](ctx context.Context, c *Communicator, buf []T, root int,
	opts ...Option) (*Work, error) {
	return c.Start(ctx, operation(KindBroadcast, Op{}, root, buf, buf), opts...)
}

// AllToAll divides src into one equal part for each rank. It puts those that the ranks have for
// this one into dst, one after the other by rank. Both are equally long, and the same memory or
// apart.
func AllToAll[T Element](ctx context.Context, c *Communicator, dst, src []T, opts ...Option) error {
	return c.Run(ctx, operation(KindAllToAll, Op{}, 0, dst, src), opts...)
}

// StartAllToAll begins an AllToAll; see Communicator.Start.
func StartAllToAll[T Element](ctx context.Context, c *Communicator, dst, src []T,
	opts ...Option) (*Work, error) {
	return c.Start(ctx, operation(KindAllToAll, Op{}, 0, dst, src), opts...)
}

// Scan puts the combination of src on ranks 0 … r into rank r's dst. Both are equally long, and the
// same memory or apart. Avg is not defined.
func Scan[T Element](ctx context.Context, c *Communicator, dst, src []T, o Op, opts ...Option) error {
	return c.Run(ctx, operation(KindScan, o, 0, dst, src), opts...)
}

// StartScan begins a Scan; see Communicator.Start.
func StartScan[T Element](ctx context.Context, c *Communicator, dst, src []T, o Op,
	opts ...Option) (*Work, error) {
	return c.Start(ctx, operation(KindScan, o, 0, dst, src), opts...)
}

// ExScan puts the combination of src on ranks 0 … r-1 into rank r's dst, and leaves rank 0's as it
// is. Both are equally long, and the same memory or apart. Avg is not defined.
func ExScan[T Element](ctx context.Context, c *Communicator, dst, src []T, o Op, opts ...Option) error {
	return c.Run(ctx, operation(KindExScan, o, 0, dst, src), opts...)
}

// StartExScan begins an ExScan; see Communicator.Start.
func StartExScan[T Element](ctx context.Context, c *Communicator, dst, src []T, o Op,
	opts ...Option) (*Work, error) {
	return c.Start(ctx, operation(KindExScan, o, 0, dst, src), opts...)
}

// AllToAllV sends sendCounts[j] elements of src to rank j, and puts the recvCounts[j] that rank j
// has for this one into dst. In both they follow each other by rank. Each rank knows its own counts
// alone. What one sends and the other expects must be equal, else both get an error that names
// them. The buffers are apart.
func AllToAllV[T Element](ctx context.Context, c *Communicator, dst []T, recvCounts []int, src []T,
	sendCounts []int, opts ...Option) error {
	return c.Run(ctx, allToAllV(dst, recvCounts, src, sendCounts), opts...)
}

// StartAllToAllV begins an AllToAllV; see Communicator.Start.
func StartAllToAllV[T Element](ctx context.Context, c *Communicator, dst []T, recvCounts []int,
	src []T, sendCounts []int, opts ...Option) (*Work, error) {
	return c.Start(ctx, allToAllV(dst, recvCounts, src, sendCounts), opts...)
}

func allToAllV[T Element](dst []T, recvCounts []int, src []T, sendCounts []int) Operation {
	return Operation{Kind: KindAllToAllV, DType: op.DTypeOf[T](), Dst: op.Bytes(dst), Src: op.Bytes(src),
		SendCounts: sendCounts, RecvCounts: recvCounts}
}
