package schedule

import (
	"fmt"

	"github.com/polyrail/polyrail/collective/op"
)

// Fold is one step of an expression: the operand of rank Into becomes Into ∘ From.
type Fold struct{ Into, From op.Rank }

// Order is how the final value of an owner's block comes about from the operands of all ranks: the
// folds one after the other; the value is then Into of the last one. The schedules of an algorithm
// fold in the same order, each rank its part of it. A rank that is alone folds nothing.
//
// It panics when nothing is folded by that algorithm, or when owner is none of the n ranks.
func Order(a op.Algorithm, n, base, owner int) []Fold {
	if owner < 0 || owner >= n {
		panic(fmt.Sprintf("schedule: the order of owner %d among %d ranks", owner, n))
	}
	e := expression{folds: make([]Fold, 0, n-1)}
	switch a {
	case op.Ring, op.Chain, op.Direct:
		e.operands = ranksFrom((owner+1)%n, n)
		e.group(n)
	case op.RecursiveDoubling:
		e.operands = ranksFrom(0, n)
		e.pairs()
		for len(e.operands) > 1 {
			e.group(2)
		}
	case op.Bcube:
		e.operands = ranksFrom(0, n)
		for _, size := range Dimensions(n, base) {
			e.group(size)
		}
	case op.Tree:
		e.operands = ranksFrom(owner, n)
		for len(e.operands) > 1 {
			e.group(TreeRadix)
		}
	default:
		panic(fmt.Sprintf("schedule: %v declares no order of operands", a))
	}
	return e.folds
}

// expression is one that is being written down.
type expression struct {
	operands []op.Rank // that are left, each the first rank of what was folded into it
	folds    []Fold
}

// group folds each size consecutive operands into their first, from left to right. The last group
// is what is left.
func (e *expression) group(size int) {
	left := e.operands[:0]
	for i, r := range e.operands {
		if i%size == 0 {
			left = append(left, r)
		} else {
			e.folds = append(e.folds, Fold{left[len(left)-1], r})
		}
	}
	e.operands = left
}

// pairs folds neighbours, from the left, until a power of two operands is left.
func (e *expression) pairs() {
	n, whole := len(e.operands), 1
	for whole*2 <= n {
		whole *= 2
	}
	folded := 2 * (n - whole)
	rest := e.operands[folded:]
	e.operands = e.operands[:folded]
	e.group(2)
	e.operands = append(e.operands, rest...)
}

// ranksFrom are n ranks in ascending order, beginning with first, the lowest after the highest.
func ranksFrom(first, n int) []op.Rank {
	ranks := make([]op.Rank, n)
	for i := range ranks {
		ranks[i] = op.Rank((first + i) % n)
	}
	return ranks
}
