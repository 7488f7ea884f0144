package schedule_test

import (
	"fmt"
	"testing"

	"github.com/polyrail/polyrail/collective/op"
	"github.com/polyrail/polyrail/collective/schedule"
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
	for _, v := range variants() {
		if !v.kind.Reduces() || v.kind == op.KindScan || v.kind == op.KindExScan {
			continue
		}
		for n := 1; n <= 17; n++ {
			for owner := range n {
				want := v.order(n, owner, func(r op.Rank) string { return symbol(1)(r, 0) })
				if got := evaluate(t, n, schedule.Order(v.spec(n, 0), owner)); got != want {
					t.Fatalf("%v, %d ranks, owner %d: %s, want %s", v, n, owner, got, want)
				}
			}
		}
	}
}

// A tree of two levels and more has groups of groups.
func TestOrderOfManyRanks(t *testing.T) {
	for _, a := range []op.Algorithm{op.Ring, op.RecursiveDoubling, op.Tree, op.Bcube, op.Hierarchical, op.Leaders} {
		for _, n := range []int{63, 64, 65, 513} {
			v := variant{kind: op.KindAllReduce, algorithm: a, base: 4, hosts: "mixed"}
			want := v.order(n, n/2, func(r op.Rank) string { return symbol(1)(r, 0) })
			if got := evaluate(t, n, schedule.Order(v.spec(n, 0), n/2)); got != want {
				t.Errorf("%v of %d ranks: %s, want %s", a, n, got, want)
			}
		}
	}
}

func TestOrderPanicsWhereThereIsNone(t *testing.T) {
	for _, x := range []struct {
		a        op.Algorithm
		n, owner int
	}{{op.Auto, 4, 0}, {op.Ring, 4, 4}, {op.Ring, 4, -1}, {op.Ring, 0, 0}} {
		t.Run(fmt.Sprint(x), func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			schedule.Order(schedule.Spec{Algorithm: x.a, N: x.n}, x.owner)
		})
	}
}
