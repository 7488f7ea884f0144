package faults

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/polyrail/polyrail"
	"github.com/polyrail/polyrail/collective/op"
	"github.com/polyrail/polyrail/test/order"
)

// errWrong marks a result that differs from the reference.
var errWrong = errors.New("wrong result")

// work is what one rank does: allreduce after allreduce until all ranks have done enough and all steps were taken.
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

// operation runs operation k of a rank.
func (r *run) operation(ctx context.Context, rank, k int, c *polyrail.Communicator) error {
	elements := r.s.Sizes[k%len(r.s.Sizes)] / 8
	if k%2 == 0 {
		// Whole numbers: whatever the order of the sum, there is one right result.
		return reduce(ctx, c, rank, k, elements, polyrail.Auto, (*rand.Rand).Uint64, func(operands []uint64) (sum uint64) {
			for _, x := range operands {
				sum += x
			}
			return sum
		})
	}
	// Floating point: the bits show the order, which no fault may change.
	e := order.Of(op.RecursiveDoubling, c.Size(), 2, 0)
	return reduce(ctx, c, rank, k, elements, polyrail.RecursiveDoubling, (*rand.Rand).NormFloat64, func(operands []float64) float64 {
		return evaluate(e, operands)
	})
}

// reduce sums what draw gives each rank, and compares the sum with the reference.
func reduce[T uint64 | float64](ctx context.Context, c *polyrail.Communicator, rank, k, elements int, a polyrail.Algorithm,
	draw func(*rand.Rand) T, reference func(operands []T) T) error {
	sources := make([]*rand.Rand, c.Size())
	for i := range sources {
		sources[i] = rand.New(rand.NewPCG(uint64(k), uint64(i)))
	}
	buf, want := make([]T, elements), make([]T, elements)
	operands := make([]T, c.Size())
	for i := range buf {
		for j, source := range sources {
			operands[j] = draw(source)
		}
		buf[i], want[i] = operands[rank], reference(operands)
	}
	if err := polyrail.AllReduce(ctx, c, buf, polyrail.Sum, polyrail.WithAlgorithm(a)); err != nil {
		return err
	}
	for i, x := range buf {
		if x != want[i] { // no NaN and no negative zero among the operands: equal values are equal bits
			return fmt.Errorf("%w: element %d of %d is %v, the reference says %v", errWrong, i, elements, x, want[i])
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
