//go:build cgo

package main

// #cgo !amd64 LDFLAGS: -lm
// #include "polyrail.h"
import "C"

import (
	"fmt"
	"math"
	"time"
	"unsafe"

	"github.com/polyrail/polyrail"
	"github.com/polyrail/polyrail/cmd/libpolyrail/internal/bridge"
)

// lib holds everything that the process has handles of.
var lib bridge.Bridge

// put copies a text to a C array, which it ends with a 0 byte.
func put(dst []C.char, s string) {
	if len(dst) == 0 {
		return
	}
	n := copy(unsafe.Slice((*byte)(unsafe.Pointer(&dst[0])), len(dst)-1), s)
	dst[n] = 0
}

// fail reports an error, or success.
func fail(err error, e *C.polyrail_error) C.int {
	if err == nil {
		return C.POLYRAIL_OK
	}
	f := bridge.Describe(err)
	if e != nil {
		e.code, e.rank, e.seq = C.int32_t(f.Code), C.int32_t(f.Rank), C.uint64_t(f.Seq)
		put(e.node[:], f.Node)
		put(e.rail[:], f.Rail)
		put(e.text[:], f.Text)
	}
	return C.int(f.Code)
}

// argument is an error about what C passed.
func argument(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{polyrail.ErrArgument}, args...)...)
}

// call is how C wants a call made.
func call(a *C.polyrail_async) bridge.Call {
	if a == nil {
		return bridge.Call{}
	}
	return bridge.Call{Started: true, Patience: max(0, time.Duration(a.patience_ns)),
		Queue: bridge.Handle(a.queue), Tag: uint64(a.tag)}
}

// none is the outcome of a call that cannot be made.
var none bridge.Outcome

// finish tells C how a call went. What an earlier call left in a and r does not stay.
func finish(o bridge.Outcome, err error, a *C.polyrail_async, r *C.polyrail_result, e *C.polyrail_error) C.int {
	if a != nil {
		a.work = C.polyrail_work(o.Work)
	}
	if o.Work != 0 {
		return C.POLYRAIL_PENDING
	}
	fill(r, o.Result)
	return fail(err, e)
}

func fill(r *C.polyrail_result, v bridge.Result) {
	if r == nil {
		return
	}
	*r = C.polyrail_result{handle: C.uint64_t(v.Handle), seq: C.uint64_t(v.Seq), first: C.uint64_t(v.First),
		last: C.uint64_t(v.Last), count: C.uint64_t(v.Count), source: C.int32_t(v.Source), tag: C.int32_t(v.Tag)}
}

// maxCount bounds the elements of one buffer, so that no length overflows.
const maxCount = 1 << 48

// memory views C's memory as bytes. NULL is no memory of a length, unless the call ignores the buffer.
func memory(p unsafe.Pointer, count C.uint64_t, d polyrail.DType, ignored bool) ([]byte, error) {
	switch {
	case count > maxCount:
		return nil, argument("%d elements: there may be %d", uint64(count), uint64(maxCount))
	case p == nil && count > 0 && !ignored:
		return nil, argument("a buffer of %d elements is NULL", uint64(count))
	case p == nil:
		return nil, nil
	}
	return unsafe.Slice((*byte)(p), int(count)*d.Size()), nil
}

// number reads one of polyrail.h's numbers, whose type is narrower in Go.
func number[T ~uint8, N ~int32](what string, n N) (T, error) {
	if n < 0 || n > math.MaxUint8 {
		return 0, argument("%d is no %s", int32(n), what)
	}
	return T(n), nil
}

// elementType reads an element type.
func elementType(n C.int) (polyrail.DType, error) {
	d, err := number[polyrail.DType]("element type", n)
	if err == nil && !d.Valid() {
		err = argument("%d is no element type", int(n))
	}
	return d, err
}

// counts views numbers by rank as Go's; NULL is none.
func counts(p *C.int64_t, ranks int) []int {
	if p == nil {
		return nil
	}
	list := make([]int, ranks)
	for i, n := range unsafe.Slice(p, ranks) {
		list[i] = int(n)
	}
	return list
}

// operation reads a collective call.
func operation(comm *polyrail.Communicator, o *C.polyrail_operation) (op polyrail.Operation, opts []polyrail.Option, err error) {
	if o == nil {
		return op, nil, argument("the operation is NULL")
	}
	if o.size != C.uint32_t(unsafe.Sizeof(*o)) {
		return op, nil, argument("an operation of %d bytes, not %d: size is not set, or polyrail.h is of another version",
			uint32(o.size), unsafe.Sizeof(*o))
	}
	if op, err = described(comm.Rank(), o); err != nil {
		return op, nil, err
	}
	if op.Kind == polyrail.KindAllToAllV {
		op.SendCounts, op.RecvCounts = counts(o.send_counts, comm.Size()), counts(o.recv_counts, comm.Size())
	}
	if o.counts != nil {
		opts = append(opts, polyrail.WithCounts(counts(o.counts, comm.Size())...))
	}
	if o.name != nil {
		opts = append(opts, polyrail.WithName(C.GoString(o.name)))
	}
	if o.algorithm != 0 {
		algorithm, err := number[polyrail.Algorithm]("algorithm", o.algorithm)
		if err != nil {
			return op, nil, err
		}
		opts = append(opts, polyrail.WithAlgorithm(algorithm))
	}
	return op, opts, nil
}

// described reads what all kinds of operation have. Other ranks than the root may need no target, or
// no source.
func described(rank int, o *C.polyrail_operation) (op polyrail.Operation, err error) {
	op.Root = int(o.root)
	if op.Kind, err = number[polyrail.Kind]("kind of operation", o.kind); err != nil {
		return op, err
	}
	if op.DType, err = elementType(C.int(o.dtype)); err != nil {
		return op, err
	}
	if op.Kind.Reduces() {
		if op.Op, err = operator(o.op); err != nil {
			return op, err
		}
	}
	other := op.Root != rank
	noTarget := other && (op.Kind == polyrail.KindReduce || op.Kind == polyrail.KindGather)
	if op.Dst, err = memory(o.dst, o.dst_count, op.DType, noTarget); err != nil {
		return op, err
	}
	noSource := other && (op.Kind == polyrail.KindScatter || op.Kind == polyrail.KindBroadcast)
	op.Src, err = memory(o.src, o.src_count, op.DType, noSource)
	return op, err
}

// operators are the built-in ones by their numbers.
var operators = func() map[C.int32_t]polyrail.Op {
	byCode := map[C.int32_t]polyrail.Op{}
	for _, o := range polyrail.Ops() {
		byCode[C.int32_t(o.Code())] = o
	}
	return byCode
}()

// operator finds an operator by its number.
func operator(code C.int32_t) (polyrail.Op, error) {
	if o, found := operators[code]; found {
		return o, nil
	}
	return polyrail.Op{}, argument("%d is no operator", int32(code))
}

// recovered turns a panic into an error: it must not unwind into C.
func recovered(code *C.int, e *C.polyrail_error) {
	if r := recover(); r != nil {
		*code = fail(fmt.Errorf("%w: %v", polyrail.ErrInternal, r), e)
	}
}
