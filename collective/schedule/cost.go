package schedule

import (
	"fmt"
	"math/bits"
	"slices"

	"github.com/polyrail/polyrail/collective/op"
)

// Cost is what an algorithm takes by its form alone: for guesses about one that was not
// measured, and for the cut of an operation, which is the same on all ranks.
type Cost struct {
	Stages int     // messages one after the other, on the longest way from an operand to a result
	Volume float64 // that a rank sends or receives, at most, in parts of the operation's bytes
	Slots  int     // blocks of scratch for one span, at most
	Widest int     // blocks of one frame, at most
	Depth  int     // links of a pipeline after the first; 0: it is none
}

// CostOf is the cost of an algorithm, whichever rank's part of it the spec names. It panics for what
// Build refuses.
func CostOf(s Spec) Cost {
	k, a, n := s.Kind, s.Algorithm, s.N
	if _, ok := forms[form{formOf(k), a}]; !ok {
		panic(fmt.Sprintf("schedule: no cost of %v by algorithm %v", k, a))
	}
	if n == 1 {
		return Cost{Widest: 1}
	}
	scattered := float64(n-1) / float64(n) // every block goes once to where it belongs
	c := Cost{Stages: 1, Volume: scattered, Widest: 1}
	kind := formOf(k)
	switch {
	case a == op.Leaders:
		return leaderCost(s)
	case a == op.Hierarchical && (kind == op.KindReduce || kind == op.KindBroadcast):
		a = op.Chain // along another line
	case a == op.Hierarchical:
		return hierarchicalCost(s)
	}
	switch a {
	case op.Ring:
		c.Stages = n - 1
		switch kind {
		case op.KindAllReduce:
			c.Stages, c.Volume, c.Slots = 2*(n-1), 2*scattered, n-1
		case op.KindReduceScatter:
			c.Slots = n - 1
		}
	case op.Bcube:
		c = bcubeCost(kind, n, s.Base)
	case op.Tree:
		c = treeCost(kind, n)
	case op.RecursiveDoubling:
		c = doublingCost(kind, n)
	case op.Chain:
		c.Stages, c.Volume, c.Depth = n-1, 1, n-2
		switch kind {
		case op.KindReduce:
			c.Slots = 1
		case op.KindScan, op.KindExScan:
			c.Slots = 2
		}
	case op.Bruck:
		c = bruckCost(kind, n)
	case op.Direct:
		if kind == op.KindReduceScatter || kind == op.KindAllToAll {
			c.Slots = n - 1 // of an alltoall: where it is in place
		}
	}
	return c
}

func treeCost(k op.Kind, n int) (c Cost) {
	c.Widest = 1
	c.Stages = treeDepth(n)
	for stride := 1; stride < n; stride *= TreeRadix {
		children := min(TreeRadix-1, (n-1)/stride) // of the root, on one level
		c.Volume += float64(children)
		c.Slots += children
	}
	switch k {
	case op.KindAllReduce:
		c.Stages *= 2
	case op.KindBroadcast:
		c.Slots = 0
	case op.KindGather, op.KindScatter:
		c.Volume, c.Slots, c.Widest = float64(n-1)/float64(n), 2*n, n
	case op.KindAllGather:
		c.Stages *= 2
		c.Slots, c.Widest = 3*n, n
	}
	return c
}

func doublingCost(k op.Kind, n int) Cost {
	rounds := bits.Len(uint(n)) - 1
	if k != op.KindAllReduce { // a scan: of a step what is received, and two sums
		steps := bits.Len(uint(n - 1))
		return Cost{Stages: rounds, Volume: float64(steps), Slots: 3 * steps, Widest: 1}
	}
	c := Cost{Stages: rounds, Volume: float64(rounds), Slots: rounds, Widest: 1}
	if beyond := n - 1<<rounds; beyond > 0 {
		// They give their operands to a neighbour, and get its result.
		c.Stages, c.Volume, c.Slots = rounds+1, float64(rounds+1), rounds+1
		if 2*beyond > 1<<rounds { // a half has no rank that could begin at once
			c.Stages++
		}
	}
	return c
}

func bcubeCost(k op.Kind, n, base int) Cost {
	dims := Dimensions(n, base)
	c := Cost{Widest: n / dims[0]}
	if k != op.KindAllGather {
		c.Stages, c.Volume = len(dims), float64(n-1)/float64(n)
	}
	if k != op.KindReduceScatter {
		c.Stages, c.Volume = c.Stages+len(dims), c.Volume+float64(n-1)/float64(n)
	}
	for d, left := 0, n; d < len(dims); d++ { // blocks of a rank before and after a dimension
		before := left
		left /= dims[d]
		if k != op.KindAllGather {
			c.Slots += (dims[d] - 1) * left // received to be folded
			if d > 0 || left > 1 {
				c.Slots += before // packed
			}
		}
		if k != op.KindReduceScatter {
			if left > 1 {
				c.Slots += (dims[d] - 1) * left // of results
			}
			if d > 0 { // packed for the dimension before
				c.Slots += before
			}
		}
	}
	return c
}

func bruckCost(kind op.Kind, n int) Cost {
	if kind == op.KindAllToAll {
		return allToAllCost(n)
	}
	cuts := halving(n)
	c := Cost{Widest: cuts[0].far()}
	stages := make([]int, n)            // by places ahead: messages up to what a rank has for that one
	width := slices.Repeat([]int{1}, n) // blocks of the value that it lies in
	if kind != op.KindAllGather {
		c.Volume = float64(n-1) / float64(n)
		for _, k := range cuts {
			far := k.far()
			if far > 1 || width[k.at] > 1 {
				c.Slots += far // packed to be sent
			}
			if width[0] != far {
				c.Slots += far // packed to be folded
			}
			c.Slots += far // received
			most := max(1+slices.Max(stages[k.at:k.end]), slices.Max(stages[:far]))
			for i := range far {
				stages[i], width[i] = most, far
			}
		}
	}
	if kind != op.KindReduceScatter {
		c.Volume += float64(n-1) / float64(n)
		for _, k := range slices.Backward(cuts) {
			if k.far() > 1 {
				c.Slots += 2 * k.far() // packed, and received
			}
			most := 1 + slices.Max(stages[:k.far()])
			for i := k.at; i < k.end; i++ {
				stages[i] = most
			}
		}
	}
	c.Stages = slices.Max(stages)
	return c
}

func allToAllCost(n int) (c Cost) {
	steps := bits.Len(uint(n - 1))
	stages := make([]int, steps) // by step: messages up to it
	for step := range steps {
		moved := 0 // blocks
		for i := range n {
			moved += i >> step & 1
		}
		for before := range step {
			if 1<<step|1<<before < n { // a block moves in both
				stages[step] = max(stages[step], stages[before])
			}
		}
		stages[step]++
		c.Stages = max(c.Stages, stages[step])
		c.Volume += float64(moved) / float64(n)
		c.Slots += 2 * moved
		c.Widest = max(c.Widest, moved)
	}
	return c
}
