package order

import (
	"fmt"
	"strings"
	"testing"

	"github.com/polyrail/polyrail/collective/op"
)

func TestOrders(t *testing.T) {
	for _, c := range []struct {
		algorithm      op.Algorithm
		n, base, owner int
		want           string
	}{
		{op.Ring, 1, 0, 0, "0"},
		{op.Ring, 2, 0, 0, "(1 0)"},
		{op.Ring, 4, 0, 3, "(0 1 2 3)"},
		{op.Ring, 4, 0, 1, "(2 3 0 1)"},
		{op.Chain, 4, 0, 1, "(2 3 0 1)"},
		{op.Direct, 3, 0, 2, "(0 1 2)"},
		{op.RecursiveDoubling, 1, 0, 0, "0"},
		{op.RecursiveDoubling, 3, 0, 0, "((0 1) 2)"},
		{op.RecursiveDoubling, 4, 0, 0, "((0 1) (2 3))"},
		{op.RecursiveDoubling, 6, 0, 0, "(((0 1) (2 3)) (4 5))"},
		{op.RecursiveDoubling, 7, 0, 0, "(((0 1) (2 3)) ((4 5) 6))"},
		{op.Bcube, 4, 2, 0, "((0 1) (2 3))"},
		{op.Bcube, 4, 4, 2, "(0 1 2 3)"},
		{op.Bcube, 6, 2, 5, "((0 1) (2 3) (4 5))"},
		{op.Bcube, 8, 4, 0, "((0 1 2 3) (4 5 6 7))"},
		{op.Bcube, 5, 2, 0, "(0 1 2 3 4)"},
		{op.Bcube, 1, 2, 0, "0"},
		{op.Bruck, 1, 0, 0, "0"},
		{op.Bruck, 2, 0, 1, "(1 0)"},
		{op.Bruck, 4, 0, 1, "((1 3) (0 2))"},
		{op.Bruck, 5, 0, 0, "(((0 2) 3) (4 1))"},
		{op.Tree, 1, 0, 0, "0"},
		{op.Tree, 6, 0, 0, "(0 1 2 3 4 5)"},
		{op.Tree, 9, 0, 0, "((0 1 2 3 4 5 6 7) 8)"},
		{op.Tree, 9, 0, 2, "((2 3 4 5 6 7 8 0) 1)"},
		{op.Tree, 17, 0, 0, "((0 1 2 3 4 5 6 7) (8 9 10 11 12 13 14 15) 16)"},
	} {
		if got := Of(c.algorithm, c.n, c.base, c.owner).String(); got != c.want {
			t.Errorf("%v, n=%d, base %d, owner %d: %s, want %s", c.algorithm, c.n, c.base, c.owner, got, c.want)
		}
	}
}

func onHosts(o Operation, hosts ...int) Operation {
	o.Hosts = hosts
	return o
}

func TestPieces(t *testing.T) {
	of := func(k op.Kind, a op.Algorithm, n, root int) Operation {
		return Operation{Kind: k, Algorithm: a, N: n, Base: 2, Root: root}
	}
	for _, c := range []struct {
		o    Operation
		rank int
		want string // "length@source: expression" of each piece
	}{
		{of(op.KindAllReduce, op.Ring, 3, 0), 1, "0@0: (1 2 0), 1@1: (2 0 1), 2@2: (0 1 2)"},
		{of(op.KindAllReduce, op.Tree, 3, 0), 2, "0@0: (0 1 2)"},
		{of(op.KindBarrier, op.RecursiveDoubling, 2, 0), 1, "0@0: (0 1)"},
		{of(op.KindReduce, op.Chain, 3, 1), 1, "0@0: (2 0 1)"},
		{of(op.KindReduce, op.Tree, 3, 1), 1, "0@0: (1 2 0)"},
		{of(op.KindReduce, op.Tree, 3, 1), 0, ""},
		{onHosts(of(op.KindAllReduce, op.Leaders, 5, 0), 7, 8, 7, 8, 7), 1, "0@0: ((0 2 4) (1 3))"},
		{onHosts(of(op.KindReduce, op.Leaders, 5, 3), 7, 8, 7, 8, 7), 3, "0@0: ((3 1) (0 2 4))"},
		{onHosts(of(op.KindReduce, op.Hierarchical, 5, 2), 7, 8, 7, 8, 7), 2, "0@0: (1 3 4 0 2)"},
		{onHosts(of(op.KindAllReduce, op.Hierarchical, 4, 0), 0, 1, 0, 1), 1,
			"0@0: ((3 1) (2 0)), 1@1: ((2 0) (3 1)), 2@2: ((1 3) (0 2)), 3@3: ((0 2) (1 3))"},
		{onHosts(of(op.KindReduceScatter, op.Hierarchical, 4, 0), 0, 0, 0, 9), 2, "2@2: (3 (0 1 2))"},
		{onHosts(of(op.KindReduceScatter, op.Hierarchical, 4, 0), 0, 0, 0, 9), 3, "3@3: ((1 2 0) 3)"},
		{of(op.KindReduceScatter, op.Hierarchical, 3, 0), 1, "1@1: (2 0 1)"},
		{of(op.KindReduceScatter, op.Ring, 3, 0), 1, "1@1: (2 0 1)"},
		{of(op.KindReduceScatter, op.Direct, 3, 0), 2, "2@2: (0 1 2)"},
		{of(op.KindAllGather, op.Ring, 2, 0), 1, "0@0: 0, 1@0: 1"},
		{of(op.KindGather, op.Tree, 2, 1), 1, "0@0: 0, 1@0: 1"},
		{of(op.KindGather, op.Direct, 2, 1), 0, ""},
		{of(op.KindScatter, op.Tree, 3, 1), 2, "2@2: 1"},
		{of(op.KindScatter, op.Direct, 3, 1), 1, "1@1: 1"},
		{of(op.KindBroadcast, op.Chain, 3, 1), 2, "0@0: 1"},
		{of(op.KindBroadcast, op.Tree, 3, 1), 1, ""},
		{of(op.KindAllToAll, op.Direct, 3, 0), 2, "0@2: 0, 1@2: 1, 2@2: 2"},
		{of(op.KindScan, op.Chain, 5, 0), 0, "0@0: 0"},
		{of(op.KindScan, op.Chain, 5, 0), 3, "0@0: (0 1 2 3)"},
		{of(op.KindScan, op.RecursiveDoubling, 5, 0), 0, "0@0: 0"},
		{of(op.KindScan, op.RecursiveDoubling, 5, 0), 2, "0@0: (0 (1 2))"},
		{of(op.KindScan, op.RecursiveDoubling, 5, 0), 4, "0@0: (0 ((1 2) (3 4)))"},
		{of(op.KindExScan, op.Chain, 5, 0), 0, ""},
		{of(op.KindExScan, op.Chain, 5, 0), 3, "0@0: (0 1 2)"},
		{of(op.KindExScan, op.RecursiveDoubling, 5, 0), 1, "0@0: 0"},
		{of(op.KindExScan, op.RecursiveDoubling, 5, 0), 3, "0@0: ((0 1) 2)"},
		{of(op.KindExScan, op.RecursiveDoubling, 5, 0), 4, "0@0: (0 ((1 2) 3))"},
	} {
		var got []string
		for _, p := range c.o.Pieces(c.rank) {
			got = append(got, fmt.Sprintf("%d@%d: %v", p.Part, p.Source, p.Of))
		}
		if got := strings.Join(got, ", "); got != c.want {
			t.Errorf("%+v, rank %d: %s, want %s", c.o, c.rank, got, c.want)
		}
	}
}
