package scale

import (
	"context"
	"fmt"

	"github.com/polyrail/polyrail"
)

// every runs each collective once and checks what this rank gets. Rank r's element j is r + j.
func every(ctx context.Context, c *polyrail.Communicator) error {
	n, r := c.Size(), c.Rank()
	own := make([]int64, n)
	for j := range own {
		own[j] = int64(r + j)
	}
	sum := func(j int) int64 { return int64(n*(n-1)/2 + n*j) } // over all ranks
	root := n / 2
	all, one, big := make([]int64, n), make([]int64, 1), make([]int64, 20_000)
	below := int64(r * (r - 1) / 2) // of the ranks below
	steps := []struct {
		name string
		run  func() error
		got  []int64
		want func(j int) int64
	}{
		{"barrier", func() error { return c.Barrier(ctx) }, nil, nil},
		{"allreduce", func() error { return polyrail.AllReduceInto(ctx, c, all, own, polyrail.Sum) }, all, sum},
		{"large allreduce", func() error {
			for j := range big {
				big[j] = int64(r + j)
			}
			return polyrail.AllReduce(ctx, c, big, polyrail.Sum)
		}, big, sum},
		{"reduce", func() error { return polyrail.Reduce(ctx, c, all, own, polyrail.Sum, root) }, all, sum},
		{"broadcast", func() error {
			if r == root {
				copy(all, own)
			}
			return polyrail.Broadcast(ctx, c, all, root)
		}, all, func(j int) int64 { return int64(root + j) }},
		{"reduce-scatter", func() error { return polyrail.ReduceScatter(ctx, c, one, own, polyrail.Sum) }, one,
			func(int) int64 { return sum(r) }},
		{"allgather", func() error { return polyrail.AllGather(ctx, c, all, own[:1]) }, all,
			func(j int) int64 { return int64(j) }},
		{"gather", func() error { return polyrail.Gather(ctx, c, ifRoot(all, r, root), own[:1], root) },
			ifRoot(all, r, root), func(j int) int64 { return int64(j) }},
		{"scatter", func() error { return polyrail.Scatter(ctx, c, one, ifRoot(own, r, root), root) }, one,
			func(int) int64 { return int64(root + r) }},
		{"alltoall", func() error { return polyrail.AllToAll(ctx, c, all, own) }, all,
			func(j int) int64 { return int64(j + r) }},
		{"scan", func() error { return polyrail.Scan(ctx, c, one, own[:1], polyrail.Sum) }, one,
			func(int) int64 { return below + int64(r) }},
		{"exscan", func() error { return polyrail.ExScan(ctx, c, ifRoot(one, min(r, 1), 1), own[:1], polyrail.Sum) },
			ifRoot(one, min(r, 1), 1), func(int) int64 { return below }},
	}
	for _, s := range steps {
		if err := s.run(); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		if s.name == "reduce" && r != root {
			continue
		}
		for j, x := range s.got {
			if x != s.want(j) {
				return fmt.Errorf("%s: rank %d of %d: element %d is %d, want %d", s.name, r, n, j, x, s.want(j))
			}
		}
	}
	return nil
}

// ifRoot is the buffer of a rank that has one.
func ifRoot(buf []int64, rank, root int) []int64 {
	if rank == root {
		return buf
	}
	return nil
}
