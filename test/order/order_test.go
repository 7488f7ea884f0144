package order

import (
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
		{op.Tree, 1, 0, 0, "0"},
		{op.Tree, 6, 0, 0, "(0 1 2 3 4 5)"},
		{op.Tree, 9, 0, 0, "((0 1 2 3 4 5 6 7) 8)"},
		{op.Chain, 4, 0, 1, "(2 3 0 1)"},
		{op.Direct, 3, 0, 0, "(1 2 0)"},
		{op.Tree, 9, 0, 7, "((7 8 0 1 2 3 4 5) 6)"},
		{op.Tree, 17, 0, 0, "((0 1 2 3 4 5 6 7) (8 9 10 11 12 13 14 15) 16)"},
	} {
		if got := Of(c.algorithm, c.n, c.base, c.owner).String(); got != c.want {
			t.Errorf("%v, n=%d, base %d, owner %d: %s, want %s", c.algorithm, c.n, c.base, c.owner, got, c.want)
		}
	}
}

func TestScans(t *testing.T) {
	for _, c := range []struct {
		algorithm op.Algorithm
		exclusive bool
		rank      int
		want      string
	}{
		{op.Chain, false, 0, "0"}, {op.Chain, false, 3, "(0 1 2 3)"}, {op.Chain, true, 1, "0"}, {op.Chain, true, 3, "(0 1 2)"},
		{op.RecursiveDoubling, false, 0, "0"}, {op.RecursiveDoubling, false, 2, "(0 (1 2))"},
		{op.RecursiveDoubling, false, 3, "((0 1) (2 3))"}, {op.RecursiveDoubling, false, 4, "(0 ((1 2) (3 4)))"},
		{op.RecursiveDoubling, true, 1, "0"}, {op.RecursiveDoubling, true, 2, "(0 1)"},
		{op.RecursiveDoubling, true, 3, "((0 1) 2)"}, {op.RecursiveDoubling, true, 4, "(0 ((1 2) 3))"},
	} {
		if got := Scan(c.algorithm, c.exclusive, c.rank).String(); got != c.want {
			t.Errorf("%v, exclusive %v, rank %d: %s, want %s", c.algorithm, c.exclusive, c.rank, got, c.want)
		}
	}
	if e := Scan(op.Chain, true, 0); e != nil {
		t.Errorf("an exclusive scan gives rank 0 %v", e)
	}
}
