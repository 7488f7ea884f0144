// Package order states, from first principles, what each collective operation gives to whom,
// and in which order each algorithm combines the ranks' operands: the reference of every
// test that compares a result bit for bit. It shares nothing with collective/schedule, and
// is deliberately dumb.
package order

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/polyrail/polyrail/collective/op"
)

// Expr is an expression over the ranks' operands: a rank's own one where Args is empty,
// otherwise the fold of Args from left to right.
type Expr struct {
	Rank int
	Args []*Expr
}

// String writes "((0 1) (2 3))".
func (e *Expr) String() string {
	if len(e.Args) == 0 {
		return strconv.Itoa(e.Rank)
	}
	args := make([]string, len(e.Args))
	for i, a := range e.Args {
		args[i] = a.String()
	}
	return "(" + strings.Join(args, " ") + ")"
}

// Owners is the number of blocks that the algorithm cuts a buffer into.
func Owners(a op.Algorithm, n int) int {
	if a == op.RecursiveDoubling || a == op.Tree || a == op.Leaders {
		return 1
	}
	return n
}

// Of is the expression for one owner's block in a group of n ranks; base is Bcube's. The
// owner of what a root gets is the root.
func Of(a op.Algorithm, n, base, owner int) *Expr {
	values := make([]*Expr, n)
	for rank := range values {
		values[rank] = &Expr{Rank: rank}
	}
	switch a {
	case op.Ring, op.Chain, op.Direct:
		// owner+1, owner+2, …, owner.
		values = append(values[owner+1:], values[:owner+1]...)
		return fold(values)
	case op.RecursiveDoubling:
		// The ranks beyond a power of two join their left neighbour first, then pairs of pairs.
		power := 1
		for 2*power <= n {
			power *= 2
		}
		extra := n - power
		values = append(groups(values[:2*extra], 2), values[2*extra:]...)
		for len(values) > 1 {
			values = groups(values, 2)
		}
		return values[0]
	case op.Bcube:
		// Neighbours in groups, then groups of groups; the sizes are n's prime factors,
		// joined while they stay within the base.
		for _, size := range groupSizes(n, base) {
			values = groups(values, size)
		}
		return values[0]
	case op.Bruck:
		// owner, owner-1, …, owner+1, the second half onto the first, which may be one longer.
		values = append(values[owner+1:], values[:owner+1]...)
		slices.Reverse(values)
		for len(values) > 1 {
			stay := (len(values) + 1) / 2
			for i, v := range values[stay:] {
				values[i] = fold([]*Expr{values[i], v})
			}
			values = values[:stay]
		}
		return values[0]
	case op.Tree:
		// From the owner on.
		return tree(append(values[owner:], values[:owner]...))
	}
	panic(fmt.Sprintf("no order for algorithm %v", a))
}

// groups folds each run of size values, the last one being what is left.
func groups(values []*Expr, size int) []*Expr {
	var folded []*Expr
	for i := 0; i < len(values); i += size {
		folded = append(folded, fold(values[i:min(i+size, len(values))]))
	}
	return folded
}

func fold(values []*Expr) *Expr {
	if len(values) == 1 {
		return values[0]
	}
	return &Expr{Args: append([]*Expr(nil), values...)}
}

func groupSizes(n, base int) []int {
	var sizes []int
	for n > 1 {
		factor := 2
		for n%factor != 0 {
			factor++
		}
		n /= factor
		if last := len(sizes) - 1; last >= 0 && sizes[last]*factor <= base {
			sizes[last] *= factor
		} else {
			sizes = append(sizes, factor)
		}
	}
	return sizes
}
