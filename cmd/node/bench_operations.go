package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/polyrail/polyrail"
	"github.com/polyrail/polyrail/cmd/node/internal/measure"
	"github.com/polyrail/polyrail/cmd/node/internal/osu"
	"github.com/polyrail/polyrail/cmd/node/internal/pattern"
	"github.com/polyrail/polyrail/collective/op"
)

// operation is what bench can measure.
type operation struct {
	name   string
	kind   polyrail.Kind // says whether it reduces, has a root, has algorithms
	uneven bool          // callers give the lengths of its parts
	bus    osu.Bus
	shape  func(setting) measure.Shape
	call   func(s setting, ctx context.Context, c *polyrail.Communicator, dst, src []byte) error
}

// setting is one operation of one rank.
type setting struct {
	kind      polyrail.Kind
	uneven    bool
	dtype     polyrail.DType
	reduce    polyrail.Op
	algorithm polyrail.Algorithm
	root      int
	rank, n   int
	bytes     int // that were asked for
}

// operations is all that bench measures, in the order of "--op all". The factors are those of
// nccl-tests; scans, which it lacks, move what a reduce moves. A new operation is a line here.
var operations = []operation{
	collective("allreduce", polyrail.KindAllReduce, osu.BusTwice),
	collective("reduce", polyrail.KindReduce, osu.BusWhole),
	collective("reducescatter", polyrail.KindReduceScatter, osu.BusOthers),
	collective("allgather", polyrail.KindAllGather, osu.BusOthers),
	uneven("allgatherv", polyrail.KindAllGather, osu.BusOthers),
	collective("gather", polyrail.KindGather, osu.BusOthers),
	uneven("gatherv", polyrail.KindGather, osu.BusOthers),
	collective("scatter", polyrail.KindScatter, osu.BusOthers),
	uneven("scatterv", polyrail.KindScatter, osu.BusOthers),
	collective("broadcast", polyrail.KindBroadcast, osu.BusWhole),
	collective("alltoall", polyrail.KindAllToAll, osu.BusOthers),
	{name: "alltoallv", kind: polyrail.KindAllToAllV, bus: osu.BusOthers, shape: setting.exchanged, call: setting.exchange},
	{name: "barrier", kind: op.KindBarrier, bus: osu.BusWhole, shape: setting.nothing, call: setting.barrier},
	collective("scan", polyrail.KindScan, osu.BusWhole),
	collective("exscan", polyrail.KindExScan, osu.BusWhole),
	{name: "sendrecv", kind: op.KindSendRecv, bus: osu.BusWhole, shape: setting.passed, call: setting.pass},
}

// everyOperation is the name of all operations together.
const everyOperation = "all"

// collective is an operation whose parts are equal, where it has any.
func collective(name string, k polyrail.Kind, bus osu.Bus) operation {
	return operation{name: name, kind: k, bus: bus, shape: setting.shape, call: setting.call}
}

// uneven is an operation whose callers give the lengths of its parts.
func uneven(name string, k polyrail.Kind, bus osu.Bus) operation {
	return operation{name: name, kind: k, bus: bus, uneven: true, shape: setting.shape, call: setting.call}
}

// call runs an operation of the rank.
func (s setting) call(ctx context.Context, c *polyrail.Communicator, dst, src []byte) error {
	if s.kind == polyrail.KindBroadcast && s.rank == s.root {
		dst = src // its only buffer
	}
	options := []polyrail.Option{polyrail.WithAlgorithm(s.algorithm)}
	if s.uneven {
		options = append(options, polyrail.WithCounts(s.counts()...))
	}
	o := polyrail.Operation{Kind: s.kind, DType: s.dtype, Op: s.reduce, Root: s.root, Dst: dst, Src: src}
	return c.Run(ctx, o, options...)
}

// nothing is the shape of an operation without data.
func (s setting) nothing() measure.Shape { return measure.Shape{} }

func (s setting) barrier(ctx context.Context, c *polyrail.Communicator, _, _ []byte) error {
	return c.Barrier(ctx)
}

// exchangeCounts are the elements that each rank has for every other one: of rank r in proportion
// to r+1, so that the last rank receives what was asked for.
func (s setting) exchangeCounts() []int {
	counts := make([]int, s.n)
	for r := range counts {
		counts[r] = s.bytes / s.dtype.Size() * (r + 1) / (s.n * s.n)
	}
	return counts
}

// exchanged is the shape of an alltoallv. Every rank has the same for a rank.
func (s setting) exchanged() measure.Shape {
	size, counts := s.dtype.Size(), s.exchangeCounts()
	all, first := 0, 0
	for r, count := range counts {
		if r < s.rank {
			first += count
		}
		all += count
	}
	own := counts[s.rank]
	return measure.Shape{Bytes: s.n * counts[s.n-1] * size, Source: all * size, Destination: s.n * own * size,
		Result: each(slices.Repeat([]int{own}, s.n), first)}
}

func (s setting) exchange(ctx context.Context, c *polyrail.Communicator, dst, src []byte) error {
	counts := s.exchangeCounts()
	return c.Run(ctx, polyrail.Operation{Kind: s.kind, DType: s.dtype, Dst: dst, Src: src,
		SendCounts: counts, RecvCounts: slices.Repeat([]int{counts[s.rank]}, s.n)})
}

// passed is the shape of a sendrecv: each rank's buffer goes to the next rank.
func (s setting) passed() measure.Shape {
	elements := s.bytes / s.dtype.Size()
	bytes := elements * s.dtype.Size()
	return measure.Shape{Bytes: bytes, Source: bytes, Destination: bytes,
		Result: []pattern.Part{{Ranks: pattern.Only(op.Rank((s.rank + s.n - 1) % s.n)), Elements: elements}}}
}

func (s setting) pass(ctx context.Context, c *polyrail.Communicator, dst, src []byte) error {
	got, err := polyrail.StartRecvBytes(ctx, c, dst, s.dtype, (s.rank+s.n-1)%s.n, 0)
	if err != nil {
		return err
	}
	if err := polyrail.SendBytes(ctx, c, src, s.dtype, (s.rank+1)%s.n, 0); err != nil {
		return err
	}
	_, err = got.Wait(ctx)
	return err
}

// counts are the elements of each rank's part. Equal parts are rounded down to whole elements, but
// have one at least. Uneven ones have together what was asked for: rank r's is in proportion to
// r+1.
func (s setting) counts() []int {
	counts := make([]int, s.n)
	elements := s.bytes / s.dtype.Size()
	if !s.uneven {
		return slices.Repeat([]int{max(elements/s.n, min(elements, 1))}, s.n)
	}
	before := func(r int) int { return elements * (r * (r + 1) / 2) / (s.n * (s.n + 1) / 2) }
	for r := range counts {
		counts[r] = before(r+1) - before(r)
	}
	return counts
}

// shape is the memory of a rank, and what is expected of it.
func (s setting) shape() measure.Shape {
	size := s.dtype.Size()
	all, own, first := s.bytes/size, s.bytes/size, 0
	var counts []int
	if s.divided() {
		all = 0
		counts = s.counts()
		for r, count := range counts {
			if r == s.rank {
				own, first = count, all
			}
			all += count
		}
	}
	shape := measure.Shape{Bytes: all * size, Source: all * size, Result: s.result(all, own, first, counts)}
	switch s.kind {
	case polyrail.KindAllGather, polyrail.KindGather:
		shape.Source = own * size
	case polyrail.KindScatter, polyrail.KindBroadcast:
		if s.rank != s.root {
			shape.Source = 0
		}
	}
	for _, part := range shape.Result {
		shape.Destination += part.Elements * size
	}
	return shape
}

// divided says whether the operation has a part for each rank, as callers see it.
func (s setting) divided() bool {
	switch s.kind {
	case polyrail.KindReduceScatter, polyrail.KindAllGather, polyrail.KindGather, polyrail.KindScatter, polyrail.KindAllToAll:
		return true
	}
	return false
}

// result is what the operation gives a rank, whose own part begins at element first of all.
func (s setting) result(all, own, first int, counts []int) []pattern.Part {
	rank, root := op.Rank(s.rank), op.Rank(s.root)
	upTo := func(last op.Rank) pattern.Ranks { return pattern.Ranks{First: 0, Last: last} }
	everyone := upTo(op.Rank(s.n - 1))
	switch s.kind {
	case polyrail.KindReduceScatter:
		return []pattern.Part{{Ranks: everyone, First: first, Elements: own}}
	case polyrail.KindScatter:
		return []pattern.Part{{Ranks: pattern.Only(root), First: first, Elements: own}}
	case polyrail.KindAllToAll:
		return each(counts, first)
	case polyrail.KindAllGather:
		return each(counts, 0)
	case polyrail.KindScan:
		return []pattern.Part{{Ranks: upTo(rank), Elements: all}}
	case polyrail.KindExScan:
		if rank == 0 {
			return nil
		}
		return []pattern.Part{{Ranks: upTo(rank - 1), Elements: all}}
	case polyrail.KindBroadcast:
		if rank == root {
			return nil // its operand is checked in any case
		}
		return []pattern.Part{{Ranks: pattern.Only(root), Elements: all}}
	case polyrail.KindGather:
		if rank != root {
			return nil
		}
		return each(counts, 0)
	case polyrail.KindReduce:
		if rank != root {
			return nil
		}
	}
	return []pattern.Part{{Ranks: everyone, Elements: all}}
}

// each is a part of every rank's operand, from the same element on, one after the other.
func each(counts []int, first int) (parts []pattern.Part) {
	for r, count := range counts {
		parts = append(parts, pattern.Part{Ranks: pattern.Only(op.Rank(r)), First: first, Elements: count})
	}
	return parts
}

// combines is the operator that the operation applies; the zero Op if it moves data only.
func (o *operation) combines(reduce polyrail.Op) polyrail.Op {
	if !o.kind.Reduces() {
		return polyrail.Op{}
	}
	return reduce
}

// faults are what the flags ask of the operation and it cannot do.
func (o *operation) faults(f *benchFlags, ranks int) (faults []error) {
	if f.algorithm != polyrail.Auto && (o.kind.Empty() || !slices.Contains(polyrail.Algorithms(o.kind), f.algorithm)) {
		faults = append(faults, fmt.Errorf("--algorithm %v does not run %s (%s)", f.algorithm, o.name, strings.Join(o.algorithms(), ", ")))
	}
	if (o.kind == polyrail.KindScan || o.kind == polyrail.KindExScan) && f.reduce.Code() == op.CodeAvg {
		faults = append(faults, fmt.Errorf("--reduce avg is not defined for %s", o.name))
	}
	if _, err := pattern.New(f.dtype, o.combines(f.reduce), ranks); err != nil {
		faults = append(faults, fmt.Errorf("--reduce: %w", err))
	}
	return faults
}

// algorithms are the names that --algorithm may have.
func (o *operation) algorithms() []string {
	names := []string{polyrail.Auto.String()}
	if !o.kind.Empty() {
		for _, a := range polyrail.Algorithms(o.kind) {
			names = append(names, a.String())
		}
	}
	return names
}

// chosen are the operations of a name that parseOperation has accepted.
func chosen(name string) []operation {
	if name == everyOperation {
		return operations
	}
	i := slices.IndexFunc(operations, func(o operation) bool { return o.name == name })
	return operations[i : i+1]
}

func parseOperation(name string) (string, error) {
	if names := operationNames(); !slices.Contains(names, name) {
		return "", fmt.Errorf("%q cannot be measured (%s)", name, strings.Join(names, ", "))
	}
	return name, nil
}

func operationNames() (names []string) {
	for _, o := range operations {
		names = append(names, o.name)
	}
	return append(names, everyOperation)
}

// operationsHelp is a table of the operations: what is measured, its factor and its algorithms.
func operationsHelp() string {
	var b strings.Builder
	fmt.Fprintf(&b, "  %-13s  %-8s  %s\n", "operation", "factor", "algorithms")
	for _, o := range operations {
		fmt.Fprintf(&b, "  %-13s  %-8s  %s\n", o.name, o.bus.Formula, strings.Join(o.algorithms(), " "))
	}
	return b.String()
}
