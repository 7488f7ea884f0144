package schedule_test

import (
	"fmt"
	"testing"

	"github.com/polyrail/polyrail/collective/op"
	"github.com/polyrail/polyrail/collective/schedule"
	"github.com/polyrail/polyrail/collective/schedule/reference"
)

// evaluate carries out an order on symbols.
func evaluate(t *testing.T, n int, order []schedule.Fold) string {
	t.Helper()
	input := symbol(1)
	values := make([]string, n) // "": folded into another
	for r := range values {
		values[r] = input(op.Rank(r), 0)
	}
	result := op.Rank(0)
	for _, f := range order {
		if f.Into == f.From || values[f.Into] == "" || values[f.From] == "" {
			t.Fatalf("%v of %v: operands %q", f, order, values)
		}
		values[f.Into], values[f.From] = join(values[f.Into], values[f.From]), ""
		result = f.Into
	}
	if len(order) != n-1 {
		t.Fatalf("%d folds of %d operands", len(order), n)
	}
	return values[result]
}

func TestOrderIsTheDeclaredExpression(t *testing.T) {
	algorithms := []struct {
		a    op.Algorithm
		base int
	}{
		{op.Ring, 0}, {op.Chain, 0}, {op.Direct, 0}, {op.RecursiveDoubling, 0}, {op.Tree, 0},
		{op.Bcube, 2}, {op.Bcube, 3}, {op.Bcube, 4}, {op.Bcube, 17},
	}
	for _, x := range algorithms {
		for n := 1; n <= 17; n++ {
			for owner := range n {
				want := reference.Fold(x.a, n, x.base, owner,
					func(r op.Rank) string { return symbol(1)(r, 0) }, join)
				if got := evaluate(t, n, schedule.Order(x.a, n, x.base, owner)); got != want {
					t.Fatalf("%v of base %d, %d ranks, owner %d: %s, want %s", x.a, x.base, n, owner, got, want)
				}
			}
		}
	}
}

// A tree of two levels and more has groups of groups.
func TestOrderOfManyRanks(t *testing.T) {
	for _, a := range []op.Algorithm{op.Ring, op.RecursiveDoubling, op.Tree, op.Bcube} {
		for _, n := range []int{63, 64, 65, 513} {
			want := reference.Fold(a, n, 4, n/2, func(r op.Rank) string { return symbol(1)(r, 0) }, join)
			if got := evaluate(t, n, schedule.Order(a, n, 4, n/2)); got != want {
				t.Errorf("%v of %d ranks: %s, want %s", a, n, got, want)
			}
		}
	}
}

func TestOrderPanicsWhereThereIsNone(t *testing.T) {
	for _, x := range []struct {
		a        op.Algorithm
		n, owner int
	}{{op.Bruck, 4, 0}, {op.Auto, 4, 0}, {op.Ring, 4, 4}, {op.Ring, 4, -1}, {op.Ring, 0, 0}} {
		t.Run(fmt.Sprint(x), func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			schedule.Order(x.a, x.n, 0, x.owner)
		})
	}
}
