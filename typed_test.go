package polyrail_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	. "github.com/polyrail/polyrail"
)

// typed is a function of the public interface in both its forms. They take a rank's buffers and
// root, and those that have a source apart from dst leave it as it is.
type typed struct {
	name  string
	block func(context.Context, *Communicator, []int32, []int32, int) error
	start func(context.Context, *Communicator, []int32, []int32, int) (*Work, error)
	size  [2]int                       // elements of dst and src, for three ranks
	want  func(rank, root int) []int32 // dst in the end; nil: as it was
}

// typedValue is element i of a rank's source. What is in dst before is -1.
func typedValue(rank, i int) int32 { return int32(100*rank + i) }

// typedSum is element i of the sum of the sources of ranks below n.
func typedSum(n, i int) int32 { return int32(100*(n-1)*n/2 + n*i) }

const typedRanks = 3

// elements are so many, each of its index.
func elements(count int, of func(i int) int32) (list []int32) {
	for i := range count {
		list = append(list, of(i))
	}
	return list
}

func wholeSum(int, int) []int32 {
	return elements(6, func(i int) int32 { return typedSum(typedRanks, i) })
}

// gathered are all ranks' sources of two elements.
func gathered() []int32 {
	return elements(6, func(i int) int32 { return typedValue(i/2, i%2) })
}

// partsFor are the parts for a rank of all ranks' sources.
func partsFor(rank int) []int32 {
	return elements(6, func(i int) int32 { return typedValue(i/2, 2*rank+i%2) })
}

// ownCounts are what a rank sends to each in an AllToAllV: one element more than its number.
func ownCounts(rank int) []int { return slices.Repeat([]int{rank + 1}, typedRanks) }

var typedFunctions = []typed{
	{"AllReduce", func(ctx context.Context, c *Communicator, dst, src []int32, _ int) error {
		copy(dst, src)
		return AllReduce(ctx, c, dst, Sum)
	}, func(ctx context.Context, c *Communicator, dst, src []int32, _ int) (*Work, error) {
		copy(dst, src)
		return StartAllReduce(ctx, c, dst, Sum)
	}, [2]int{6, 6}, wholeSum},
	{"AllReduceInto", func(ctx context.Context, c *Communicator, dst, src []int32, _ int) error {
		return AllReduceInto(ctx, c, dst, src, Sum)
	}, func(ctx context.Context, c *Communicator, dst, src []int32, _ int) (*Work, error) {
		return StartAllReduceInto(ctx, c, dst, src, Sum)
	}, [2]int{6, 6}, wholeSum},
	{"Reduce", func(ctx context.Context, c *Communicator, dst, src []int32, root int) error {
		return Reduce(ctx, c, dst, src, Sum, root)
	}, func(ctx context.Context, c *Communicator, dst, src []int32, root int) (*Work, error) {
		return StartReduce(ctx, c, dst, src, Sum, root)
	}, [2]int{6, 6}, func(rank, root int) []int32 {
		if rank != root {
			return nil
		}
		return wholeSum(rank, root)
	}},
	{"ReduceScatter", func(ctx context.Context, c *Communicator, dst, src []int32, _ int) error {
		return ReduceScatter(ctx, c, dst, src, Sum)
	}, func(ctx context.Context, c *Communicator, dst, src []int32, _ int) (*Work, error) {
		return StartReduceScatter(ctx, c, dst, src, Sum)
	}, [2]int{2, 6}, func(rank, _ int) []int32 {
		return elements(2, func(i int) int32 { return typedSum(typedRanks, 2*rank+i) })
	}},
	{"AllGather", func(ctx context.Context, c *Communicator, dst, src []int32, _ int) error {
		return AllGather(ctx, c, dst, src)
	}, func(ctx context.Context, c *Communicator, dst, src []int32, _ int) (*Work, error) {
		return StartAllGather(ctx, c, dst, src)
	}, [2]int{6, 2}, func(int, int) []int32 { return gathered() }},
	{"Gather", func(ctx context.Context, c *Communicator, dst, src []int32, root int) error {
		return Gather(ctx, c, dst, src, root)
	}, func(ctx context.Context, c *Communicator, dst, src []int32, root int) (*Work, error) {
		return StartGather(ctx, c, dst, src, root)
	}, [2]int{6, 2}, func(rank, root int) []int32 {
		if rank != root {
			return nil
		}
		return gathered()
	}},
	{"Scatter", func(ctx context.Context, c *Communicator, dst, src []int32, root int) error {
		return Scatter(ctx, c, dst, src, root)
	}, func(ctx context.Context, c *Communicator, dst, src []int32, root int) (*Work, error) {
		return StartScatter(ctx, c, dst, src, root)
	}, [2]int{2, 6}, func(rank, root int) []int32 {
		return elements(2, func(i int) int32 { return typedValue(root, 2*rank+i) })
	}},
	{"Broadcast", func(ctx context.Context, c *Communicator, dst, src []int32, root int) error {
		copy(dst, src)
		return Broadcast(ctx, c, dst, root)
	}, func(ctx context.Context, c *Communicator, dst, src []int32, root int) (*Work, error) {
		copy(dst, src)
		return StartBroadcast(ctx, c, dst, root)
	}, [2]int{6, 6}, func(_, root int) []int32 {
		return elements(6, func(i int) int32 { return typedValue(root, i) })
	}},
	{"AllToAll", func(ctx context.Context, c *Communicator, dst, src []int32, _ int) error {
		return AllToAll(ctx, c, dst, src)
	}, func(ctx context.Context, c *Communicator, dst, src []int32, _ int) (*Work, error) {
		return StartAllToAll(ctx, c, dst, src)
	}, [2]int{6, 6}, func(rank, _ int) []int32 {
		return partsFor(rank)
	}},
	{"Scan", func(ctx context.Context, c *Communicator, dst, src []int32, _ int) error {
		return Scan(ctx, c, dst, src, Sum)
	}, func(ctx context.Context, c *Communicator, dst, src []int32, _ int) (*Work, error) {
		return StartScan(ctx, c, dst, src, Sum)
	}, [2]int{6, 6}, func(rank, _ int) []int32 {
		return elements(6, func(i int) int32 { return typedSum(rank+1, i) })
	}},
	{"ExScan", func(ctx context.Context, c *Communicator, dst, src []int32, _ int) error {
		return ExScan(ctx, c, dst, src, Sum)
	}, func(ctx context.Context, c *Communicator, dst, src []int32, _ int) (*Work, error) {
		return StartExScan(ctx, c, dst, src, Sum)
	}, [2]int{6, 6}, func(rank, _ int) []int32 {
		if rank == 0 {
			return nil
		}
		return elements(6, func(i int) int32 { return typedSum(rank, i) })
	}},
	{"AllToAllV", func(ctx context.Context, c *Communicator, dst, src []int32, _ int) error {
		return AllToAllV(ctx, c, dst, []int{1, 2, 3}, src[:3*(c.Rank()+1)], ownCounts(c.Rank()))
	}, func(ctx context.Context, c *Communicator, dst, src []int32, _ int) (*Work, error) {
		return StartAllToAllV(ctx, c, dst, []int{1, 2, 3}, src[:3*(c.Rank()+1)], ownCounts(c.Rank()))
	}, [2]int{6, 9}, func(rank, _ int) (list []int32) {
		for from := range typedRanks {
			for i := range from + 1 {
				list = append(list, typedValue(from, rank*(from+1)+i))
			}
		}
		return list
	}},
}

func TestEachTypedFunctionIsItsOperationBlockingAndStarted(t *testing.T) {
	inBed(t, typedRanks, 2, nil, func(b *bed) {
		comms := b.form("typed")
		for _, f := range typedFunctions {
			for root := range typedRanks {
				b.each(func(r int) error { return f.check(b.t.Context(), comms[r], root, f.block) })
				b.each(func(r int) error { return f.check(b.t.Context(), comms[r], root, f.startAndWait) })
			}
		}
	})
}

func (f typed) startAndWait(ctx context.Context, c *Communicator, dst, src []int32, root int) error {
	work, err := f.start(ctx, c, dst, src, root)
	if err != nil {
		return err
	}
	return work.Wait(ctx)
}

// check runs a form of the function on a rank and looks at all of its memory.
func (f typed) check(ctx context.Context, c *Communicator, root int,
	run func(context.Context, *Communicator, []int32, []int32, int) error) error {
	dst, src := slices.Repeat([]int32{-1}, f.size[0]), make([]int32, f.size[1])
	for i := range src {
		src[i] = typedValue(c.Rank(), i)
	}
	before := slices.Clone(src)
	want := f.want(c.Rank(), root)
	if want == nil {
		want = slices.Clone(dst)
	}
	if err := run(ctx, c, dst, src, root); err != nil {
		return fmt.Errorf("%s, root %d: %w", f.name, root, err)
	}
	if !slices.Equal(dst, want) || !slices.Equal(src, before) {
		return fmt.Errorf("%s, root %d, rank %d: %v of %v, want %v of %v", f.name, root, c.Rank(), dst,
			src, want, before)
	}
	return nil
}
