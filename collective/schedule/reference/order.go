package reference

import (
	"fmt"

	"github.com/polyrail/polyrail/collective/op"
	"github.com/polyrail/polyrail/collective/plan"
	"github.com/polyrail/polyrail/collective/schedule"
)

// Fold is the final value of an owner's part by the declared order of an algorithm, from
// first principles:
//
//   - ring, and chains and the direct way, which keep its order: from left to right over the
//     ranks owner+1, owner+2, …, owner, where a chain's owner is the root;
//   - recursive doubling: each odd one of the first 2(n-2^k) ranks is folded into its left
//     neighbour, then halves into wholes, the lower half first;
//   - bcube: groups of consecutive ranks from left to right, then groups of those, by the
//     sizes that schedule.Dimensions names;
//   - bruck: ranks by how far they are behind the owner. The second half is folded into the first one,
//     rank by rank, and so on. Of an odd number the first half is the larger one, and its last rank waits;
//   - tree: as bcube by groups of schedule.TreeRadix, the last one being what is left,
//     beginning with the root.
//
// combine may reuse the memory of its first argument if input returns fresh values.
func Fold[T any](a op.Algorithm, n, base, owner int, input func(op.Rank) T, combine func(a, b T) T) T {
	var operands []T
	switch a {
	case op.Ring, op.Chain, op.Direct:
		for i := 1; i <= n; i++ {
			operands = append(operands, input(op.Rank((owner+i)%n)))
		}
		return group(operands, n, combine)[0]
	case op.RecursiveDoubling:
		whole := 1
		for whole*2 <= n {
			whole *= 2
		}
		for r := 0; r < n; r++ {
			v := input(op.Rank(r))
			if r < 2*(n-whole) {
				r++
				v = combine(v, input(op.Rank(r)))
			}
			operands = append(operands, v)
		}
		for len(operands) > 1 {
			operands = group(operands, 2, combine)
		}
		return operands[0]
	case op.Bcube:
		for r := range n {
			operands = append(operands, input(op.Rank(r)))
		}
		for _, size := range schedule.Dimensions(n, base) {
			operands = group(operands, size, combine)
		}
		return operands[0]
	case op.Bruck:
		for d := range n {
			operands = append(operands, input(op.Rank((owner-d+n)%n)))
		}
		for len(operands) > 1 {
			half := (len(operands) + 1) / 2
			for i, v := range operands[half:] {
				operands[i] = combine(operands[i], v)
			}
			operands = operands[:half]
		}
		return operands[0]
	case op.Tree:
		for d := range n {
			operands = append(operands, input(op.Rank((owner+d)%n)))
		}
		for len(operands) > 1 {
			operands = group(operands, schedule.TreeRadix, combine)
		}
		return operands[0]
	}
	panic(fmt.Sprintf("reference: no order declared for %v", a))
}

// FoldByHost is the same for algorithms by host, in a group whose hosts have these ranks, each host's
// ascending, hosts in the order of their lowest ones:
//
//   - hierarchical: the sums of the hosts from left to right, beginning with the host after the
//     owner's. If the owner is its host's k-th rank, a host's sum goes from left to right from the
//     rank after its k-th one to that, counted around. A reduce is a chain: from left to right over all ranks of one
//     host and then the next, beginning with the host after the root's, and ending with the root's:
//     the ranks after the root, those before, the root;
//   - leaders: groups of schedule.TreeRadix within each host, then of hosts, beginning with the
//     root's, which begins with the root.
func FoldByHost[T any](k op.Kind, a op.Algorithm, hosts [][]int, owner int, input func(op.Rank) T,
	combine func(a, b T) T) T {
	home, index := 0, 0
	for i, ranks := range hosts {
		for j, r := range ranks {
			if r == owner {
				home, index = i, j
			}
		}
	}
	host := func(at, first, size int) T {
		ranks := hosts[at%len(hosts)]
		var operands []T
		for i := range ranks {
			operands = append(operands, input(op.Rank(ranks[(first+i)%len(ranks)])))
		}
		for len(operands) > 1 {
			operands = group(operands, size, combine)
		}
		return operands[0]
	}
	var operands []T
	switch {
	case a == op.Leaders:
		operands = append(operands, host(home, index, schedule.TreeRadix))
		for i := 1; i < len(hosts); i++ {
			operands = append(operands, host(home+i, 0, schedule.TreeRadix))
		}
		for len(operands) > 1 {
			operands = group(operands, schedule.TreeRadix, combine)
		}
		return operands[0]
	case k == op.KindReduce:
		for i := 1; i <= len(hosts); i++ {
			ranks, first := hosts[(home+i)%len(hosts)], 0
			if i == len(hosts) {
				first = index + 1
			}
			for j := range ranks {
				operands = append(operands, input(op.Rank(ranks[(first+j)%len(ranks)])))
			}
		}
	default:
		for i := 1; i <= len(hosts); i++ {
			operands = append(operands, host(home+i, index+1, schedule.MaxRanks))
		}
	}
	return group(operands, len(operands), combine)[0]
}

// Prefix is what a scan gives rank r ≥ 0, over the operands of ranks 0 … r: by a chain from left
// to right, by doubling in pairs from the right. An exclusive scan's result is that of rank r-1 by
// a chain, and by doubling what comes in each step before what came in the steps before.
func Prefix[T any](k op.Kind, a op.Algorithm, r int, input func(op.Rank) T, combine func(a, b T) T) T {
	if a == op.Chain {
		last := r
		if k == op.KindExScan {
			last--
		}
		v := input(0)
		for i := 1; i <= last; i++ {
			v = combine(v, input(op.Rank(i)))
		}
		return v
	}
	// sum(r, i) is what rank r has after i steps: its own and those of up to 2^i - 1 ranks before.
	var sum func(r, i int) T
	sum = func(r, i int) T {
		if i == 0 {
			return input(op.Rank(r))
		}
		own := sum(r, i-1)
		if r < 1<<(i-1) {
			return own
		}
		return combine(sum(r-1<<(i-1), i-1), own)
	}
	steps := 0
	for 1<<steps <= r {
		steps++
	}
	if k == op.KindScan {
		return sum(r, steps)
	}
	v := sum(r-1, 0)
	for i := 1; i < steps; i++ {
		v = combine(sum(r-1<<i, i), v)
	}
	return v
}

// group folds each size consecutive operands into one, the last group being what is left, from left
// to right.
func group[T any](operands []T, size int, combine func(a, b T) T) []T {
	var out []T
	for i := 0; i < len(operands); i += size {
		v := operands[i]
		for _, x := range operands[i+1 : min(i+size, len(operands))] {
			v = combine(v, x)
		}
		out = append(out, v)
	}
	return out
}

// Call is one operation over the ranks' buffers. Parts are given where its kind lets callers give
// them.
type Call struct {
	Kind      op.Kind
	Algorithm op.Algorithm
	Base      int
	Hosts     [][]int // of algorithms by host, as FoldByHost has them
	Root      int
	Parts     plan.Parts // of the data: the whole for kinds of one part, else one for each rank
	Inputs    [][]byte   // by rank
}

// Results are what the ranks' destinations hold afterwards, without the division of an average; nil
// where a rank has none. combine has the contract of op.Combine.
func Results(c Call, combine op.Combine) ([][]byte, error) {
	n := len(c.Inputs)
	var failed error
	add := func(x, y []byte) []byte {
		out := make([]byte, len(x))
		if err := combine(out, x, y); err != nil {
			failed = err
		}
		return out
	}
	at := make([]int, len(c.Parts)+1)
	for i, length := range c.Parts {
		at[i+1] = at[i] + length
	}
	part := func(b []byte, i int) []byte { return b[at[i]:at[i+1]] }
	fold := func(owner, i int) []byte {
		operand := func(r op.Rank) []byte { return part(c.Inputs[r], i) }
		if c.Algorithm.ByHost() {
			return FoldByHost(c.Kind, c.Algorithm, c.Hosts, owner, operand, add)
		}
		return Fold(c.Algorithm, n, c.Base, owner, operand, add)
	}
	out := make([][]byte, n)
	for r := range n {
		switch c.Kind {
		case op.KindAllReduce:
			for i := range c.Parts {
				owner := i
				if c.Algorithm == op.Tree || c.Algorithm == op.Leaders {
					owner = 0
				}
				out[r] = append(out[r], fold(owner, i)...)
			}
		case op.KindReduce:
			if r == c.Root {
				out[r] = fold(c.Root, 0)
			}
		case op.KindReduceScatter:
			out[r] = fold(r, r)
		case op.KindAllGather, op.KindGather:
			if c.Kind == op.KindAllGather || r == c.Root {
				for _, in := range c.Inputs {
					out[r] = append(out[r], in...)
				}
			}
		case op.KindScatter:
			out[r] = part(c.Inputs[c.Root], r)
		case op.KindBroadcast:
			if r != c.Root { // whose buffer holds it already
				out[r] = c.Inputs[c.Root]
			}
		case op.KindAllToAll:
			for _, in := range c.Inputs {
				out[r] = append(out[r], part(in, r)...)
			}
		case op.KindScan, op.KindExScan:
			if c.Kind == op.KindScan || r > 0 {
				out[r] = Prefix(c.Kind, c.Algorithm, r, func(i op.Rank) []byte { return c.Inputs[i] }, add)
			}
		default:
			return nil, fmt.Errorf("reference: no results of %v", c.Kind)
		}
	}
	return out, failed
}
