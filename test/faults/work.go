package faults

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/polyrail/polyrail"
	"github.com/polyrail/polyrail/collective/op"
	"github.com/polyrail/polyrail/test/order"
)

// errWrong marks a result that differs from the reference.
var errWrong = errors.New("wrong result")

// work is what one rank does: allreduce after allreduce until all ranks have done enough and all
// steps were taken.
func (r *run) work(ctx context.Context, rank int, c *polyrail.Communicator) error {
	for k := 0; ; k++ {
		goOn := []int32{1}
		select {
		case <-r.stepped:
			if k >= r.s.Operations {
				goOn[0] = 0
			}
		default:
		}
		start := time.Now()
		err := r.limited(ctx, func(ctx context.Context) error { return polyrail.AllReduce(ctx, c, goOn, polyrail.Max) })
		if err == nil && goOn[0] == 0 {
			return c.Close(ctx)
		}
		if err == nil {
			err = r.limited(ctx, func(ctx context.Context) error { return r.operation(ctx, rank, k, c) })
		}
		if err != nil {
			return fmt.Errorf("operation %d, after %v: %w", k, time.Since(start), err)
		}
		if rank == 0 {
			r.report.Operations++
			r.report.Slowest = max(r.report.Slowest, time.Since(start))
		}
		pause := time.NewTimer(r.s.Pause)
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return ctx.Err()
		}
	}
}

// limited bounds an operation.
func (r *run) limited(ctx context.Context, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, hangTimeout)
	defer cancel()
	return f(ctx)
}

// operation runs operation k of a rank, by turns on whole numbers and on floating point.
func (r *run) operation(ctx context.Context, rank, k int, c *polyrail.Communicator) error {
	elements := r.s.Sizes[k%len(r.s.Sizes)] / 8
	if k%2 == 0 {
		return reduce(ctx, c, rank, k, polyrail.Auto, r.whole.of(elements))
	}
	return reduce(ctx, c, rank, k, polyrail.RecursiveDoubling, r.floating.of(elements))
}

// reference is what all ranks put in, and what must come out.
type reference[T comparable] struct {
	operands [][]T // by rank
	sum      []T
}

// references makes references by number of elements, once each.
type references[T comparable] struct {
	ranks int
	draw  func() T
	sum   func(operands []T) T

	mu   sync.Mutex
	made map[int]*reference[T]
}

// wholeNumbers have one right sum, whatever its order.
func wholeNumbers(ranks int) *references[uint64] {
	source := rand.New(rand.NewPCG(1, uint64(ranks)))
	return &references[uint64]{ranks: ranks, draw: source.Uint64, sum: func(operands []uint64) (sum uint64) {
		for _, x := range operands {
			sum += x
		}
		return sum
	}}
}

// floatingPoint sums show their order by their bits, which no fault may change.
func floatingPoint(ranks int) *references[float64] {
	source := rand.New(rand.NewPCG(2, uint64(ranks)))
	e := order.Of(op.RecursiveDoubling, ranks, 2, 0)
	return &references[float64]{ranks: ranks, draw: source.NormFloat64, sum: func(operands []float64) float64 { return evaluate(e, operands) }}
}

func (r *references[T]) of(elements int) *reference[T] {
	r.mu.Lock()
	defer r.mu.Unlock()
	if m := r.made[elements]; m != nil {
		return m
	}
	m := &reference[T]{operands: make([][]T, r.ranks), sum: make([]T, elements)}
	for rank := range m.operands {
		m.operands[rank] = make([]T, elements)
	}
	column := make([]T, r.ranks)
	for i := range elements {
		for rank := range column {
			column[rank] = r.draw()
			m.operands[rank][i] = column[rank]
		}
		m.sum[i] = r.sum(column)
	}
	if r.made == nil {
		r.made = make(map[int]*reference[T])
	}
	r.made[elements] = m
	return m
}

// reduce sums what the ranks put in, turned by k so that no two operations are alike, and compares
// every element.
func reduce[T uint64 | float64](ctx context.Context, c *polyrail.Communicator, rank, k int, a polyrail.Algorithm, m *reference[T]) error {
	elements := len(m.sum)
	turn := k % elements
	buf := append(append(make([]T, 0, elements), m.operands[rank][turn:]...), m.operands[rank][:turn]...)
	if err := polyrail.AllReduce(ctx, c, buf, polyrail.Sum, polyrail.WithAlgorithm(a)); err != nil {
		return err
	}
	for i, x := range buf {
		// No NaN and no negative zero among the operands: equal values are equal bits.
		if want := m.sum[(i+turn)%elements]; x != want {
			return fmt.Errorf("%w: element %d of %d is %v, the reference says %v", errWrong, i, elements, x, want)
		}
	}
	clear(buf) // it is the caller's again, who may do this, whatever happens to a rail now
	return nil
}

// evaluate folds the operands as the expression says.
func evaluate(e *order.Expr, operands []float64) float64 {
	if len(e.Args) == 0 {
		return operands[e.Rank]
	}
	sum := evaluate(e.Args[0], operands)
	for _, a := range e.Args[1:] {
		sum += evaluate(a, operands)
	}
	return sum
}
