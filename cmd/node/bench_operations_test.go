package main

import (
	"fmt"
	"slices"
	"testing"

	"github.com/polyrail/polyrail"
	"github.com/polyrail/polyrail/cmd/node/internal/pattern"
	"github.com/polyrail/polyrail/collective/op"
)

// model is what MPI says that an operation leaves in a rank's destination; nil: nothing. counts
// are the lengths of the parts.
func model(name string, in [][]int32, counts []int, rank, root int) (out []int32) {
	sum := func(ranks [][]int32) []int32 {
		total := slices.Clone(ranks[0])
		for _, v := range ranks[1:] {
			for i := range v {
				total[i] += v[i]
			}
		}
		return total
	}
	begin := 0
	for _, count := range counts[:rank] {
		begin += count
	}
	own := func(v []int32) []int32 { return v[begin : begin+counts[rank]] }
	isRoot := rank == root
	switch name {
	case "allreduce":
		return sum(in)
	case "reduce":
		if isRoot {
			return sum(in)
		}
	case "reducescatter":
		return own(sum(in))
	case "allgather", "allgatherv":
		return slices.Concat(in...)
	case "gather", "gatherv":
		if isRoot {
			return slices.Concat(in...)
		}
	case "scatter", "scatterv":
		return own(in[root])
	case "broadcast":
		if !isRoot {
			return in[root]
		}
	case "alltoall":
		for _, v := range in {
			out = append(out, own(v)...)
		}
	case "scan":
		return sum(in[:rank+1])
	case "exscan":
		if rank > 0 {
			return sum(in[:rank])
		}
	}
	return out
}

func TestEveryOperationKnowsItsResult(t *testing.T) {
	for _, o := range operations {
		t.Run(o.name, func(t *testing.T) {
			for _, n := range []int{1, 2, 5} {
				for _, bytes := range []int{0, 4, 1000, 40_000} {
					for root := range n {
						checkOperation(t, o, n, root, bytes)
					}
				}
			}
		})
	}
}

func checkOperation(t *testing.T, o operation, n, root, bytes int) {
	t.Helper()
	f := benchFlags{dtype: op.Int32, reduce: polyrail.Sum, root: root}
	p, err := pattern.New(f.dtype, o.combines(f.reduce), n)
	if err != nil {
		t.Fatal(err)
	}
	inputs := make([][]int32, n)
	for r := range n {
		inputs[r] = make([]int32, o.shape(f.setting(&o, r, n, bytes)).Source/4)
		p.Fill(op.Rank(r), op.Bytes(inputs[r]))
	}
	for r := range n {
		s := f.setting(&o, r, n, bytes)
		shape := o.shape(s)
		want := op.Bytes(model(o.name, inputs, s.counts(), r, root))
		where := fmt.Sprintf("%s of %d bytes, rank %d of %d, root %d", o.name, bytes, r, n, root)
		if shape.Destination != len(want) || !o.kind.Empty() && shape.Bytes > max(bytes, 4*n) {
			t.Fatalf("%s: shape %+v, want a result of %d bytes", where, shape, len(want))
		}
		if wrong := p.Wrong(want, shape.Result); wrong != 0 {
			t.Fatalf("%s: %d elements of the right result are said to be wrong", where, wrong)
		}
		for at := range want {
			want[at] ^= 1
			if at%97 == 0 && p.Wrong(want, shape.Result) != 1 {
				t.Fatalf("%s: a wrong byte %d is not found", where, at)
			}
			want[at] ^= 1
		}
	}
}

func TestSizesAreOfTheLargerBuffer(t *testing.T) {
	f := benchFlags{dtype: op.F32}
	for _, c := range []struct {
		name     string
		n, bytes int
		want     int
		sources  []int // by rank
	}{
		{name: "allreduce", n: 3, bytes: 64, want: 64, sources: []int{64, 64, 64}},
		{name: "allgather", n: 4, bytes: 64, want: 64, sources: []int{16, 16, 16, 16}},
		{name: "allgather", n: 3, bytes: 64, want: 60, sources: []int{20, 20, 20}},
		{name: "allgather", n: 4, bytes: 8, want: 16, sources: []int{4, 4, 4, 4}},
		{name: "allgather", n: 4, bytes: 0, want: 0, sources: []int{0, 0, 0, 0}},
		{name: "allgatherv", n: 3, bytes: 64, want: 64, sources: []int{8, 24, 32}},
		{name: "gatherv", n: 4, bytes: 8, want: 8, sources: []int{0, 0, 4, 4}},
		{name: "scatter", n: 2, bytes: 64, want: 64, sources: []int{64, 0}},
		{name: "broadcast", n: 2, bytes: 64, want: 64, sources: []int{64, 0}},
		{name: "barrier", n: 2, bytes: 64, want: 0, sources: []int{0, 0}},
	} {
		o := chosen(c.name)[0]
		for r, source := range c.sources {
			if shape := o.shape(f.setting(&o, r, c.n, c.bytes)); shape.Bytes != c.want || shape.Source != source {
				t.Errorf("%s of %d bytes, rank %d of %d: %d bytes, %d of them the rank's input; want %d and %d",
					c.name, c.bytes, r, c.n, shape.Bytes, shape.Source, c.want, source)
			}
		}
	}
}
