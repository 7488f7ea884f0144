package schedule

import (
	"fmt"
	"slices"

	"github.com/polyrail/polyrail/collective/op"
)

// Fold is one step of an expression: the operand of rank Into becomes Into ∘ From.
type Fold struct{ Into, From op.Rank }

// Order is how the final value of an owner's block comes about from the operands of all ranks: the
// folds one after the other; the value is then Into of the last one. The programs of a spec, one for
// each rank, fold in the same order, each its part of it. A rank that is alone folds nothing.
//
// It panics when nothing is folded by that algorithm, or when owner is none of the ranks.
func Order(s Spec, owner int) []Fold {
	n := s.N
	if owner < 0 || owner >= n {
		panic(fmt.Sprintf("schedule: the order of owner %d among %d ranks", owner, n))
	}
	e := expression{folds: make([]Fold, 0, n-1)}
	switch s.Algorithm {
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
		for _, size := range Dimensions(n, s.Base) {
			e.group(size)
		}
	case op.Bruck:
		e.operands = ranksFrom((owner+1)%n, n)
		slices.Reverse(e.operands) // by how far they are behind the owner
		for _, c := range halving(n) {
			e.fold(c)
		}
	case op.Tree:
		e.operands = ranksFrom(owner, n)
		e.groups(TreeRadix)
	case op.Leaders:
		e.hosts(s.Hosts.among(n).tour(op.Rank(owner)), TreeRadix)
	case op.Hierarchical:
		h := s.Hosts.among(n)
		if s.Kind == op.KindReduce {
			line := h.line(s.Kind, op.Rank(owner))
			e.operands = append(line[1:], line[0])
			e.group(n)
			break
		}
		hosts := h.tour(op.Rank(owner))
		for i, here := range hosts { // each from the rank after the owner's holder on
			first := 1 % len(here) // of the owner's own host, which begins with the owner
			if i > 0 {
				first = (h.of[owner].index + 1) % len(here)
			}
			hosts[i] = slices.Concat(here[first:], here[:first])
		}
		e.hosts(append(hosts[1:], hosts[0]), n)
	default:
		panic(fmt.Sprintf("schedule: %v declares no order of operands", s.Algorithm))
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

// fold folds the operands beyond a cut into as many of the others.
func (e *expression) fold(c cut) {
	for i := range c.far() {
		e.folds = append(e.folds, Fold{e.operands[i], e.operands[c.at+i]})
	}
	e.operands = e.operands[:c.at]
}

// groups folds each size consecutive operands until one is left.
func (e *expression) groups(size int) {
	for len(e.operands) > 1 {
		e.group(size)
	}
}

// hosts folds the operands of each host in groups of a size, and then those of the hosts.
func (e *expression) hosts(hosts [][]op.Rank, size int) {
	var leaders []op.Rank
	for _, here := range hosts {
		e.operands = slices.Clone(here)
		e.groups(size)
		leaders = append(leaders, e.operands[0])
	}
	e.operands = leaders
	e.groups(size)
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
