package schedule

import (
	"fmt"
	"math/bits"

	"github.com/polyrail/polyrail/collective/op"
)

// Cost is what an algorithm takes by its form alone, for guesses about one that was not measured.
type Cost struct {
	Stages int     // messages one after the other, on the longest way from an operand to a result
	Volume float64 // that a rank sends, at most, in parts of the buffer
	Slots  int     // of scratch for one span, at most
}

// CostOf is the cost among n ranks, at least 2. It panics for what Build refuses.
func CostOf(a op.Algorithm, n, base int) Cost {
	scattered := 2 * float64(n-1) / float64(n) // every owner's block goes to its owner, and back
	switch a {
	case op.Ring:
		return Cost{Stages: 2 * (n - 1), Volume: scattered, Slots: n - 1}
	case op.Bcube:
		return Cost{Stages: 2 * len(Dimensions(n, base)), Volume: scattered, Slots: n - 1}
	case op.Tree:
		c, repunit := Cost{}, 1
		for stride := 1; stride < n; stride *= TreeRadix {
			children := min(TreeRadix-1, (n-1)/stride) // of rank 0, on one level
			c.Volume += float64(children)
			c.Slots += children
			if repunit < n { // the rank of which no digit is 0 is the one that is furthest from rank 0
				c.Stages += 2
			}
			repunit = TreeRadix*repunit + 1
		}
		return c
	case op.RecursiveDoubling:
		rounds := bits.Len(uint(n)) - 1
		c := Cost{Stages: rounds, Volume: float64(rounds), Slots: rounds}
		if beyond := n - 1<<rounds; beyond > 0 { // they give their operands to a neighbour, and get its result
			c.Stages, c.Volume, c.Slots = rounds+1, float64(rounds+1), rounds+1
			if 2*beyond > 1<<rounds { // a half has no rank that could begin at once
				c.Stages++
			}
		}
		return c
	}
	panic(fmt.Sprintf("schedule: no cost of algorithm %v", a))
}
