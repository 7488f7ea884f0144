package order

import (
	"fmt"
	"slices"

	"github.com/polyrail/polyrail/collective/op"
)

// Operation is what the right results of a collective operation follow from.
type Operation struct {
	Kind      op.Kind
	Algorithm op.Algorithm
	N         int   // ranks
	Base      int   // Bcube's
	Root      int   // where the kind has one
	Hosts     []int // by rank, the number of its host, for algorithms by host; nil: each on its own
}

// Order is the expression for one owner's block; of what a root gets the owner is the root.
func (o Operation) Order(owner int) *Expr {
	if !o.Algorithm.ByHost() {
		return Of(o.Algorithm, o.N, o.Base, owner)
	}
	hosts, home := o.hosts(owner)
	var values []*Expr
	switch {
	case o.Algorithm == op.Leaders:
		// Eight neighbours at a time, on each host from its lowest rank on, on the owner's from the
		// owner on; then so the hosts, from the owner's on.
		for i := range hosts {
			here := hosts[(home+i)%len(hosts)]
			if i == 0 {
				here = from(here, slices.Index(here, owner))
			}
			values = append(values, tree(operands(here)))
		}
		return tree(values)
	case o.Kind == op.KindReduce:
		// All ranks of one host and then of the next, the owner's host being the last one, and the owner
		// the last rank.
		for i := range hosts {
			here := hosts[(home+1+i)%len(hosts)]
			if i == len(hosts)-1 {
				here = from(here, slices.Index(here, owner)+1)
			}
			values = append(values, operands(here)...)
		}
	default:
		// Each host by itself, the owner's being the last one. If the owner is the k-th rank there, the
		// sum of any host ends with its k-th rank.
		k := slices.Index(hosts[home], owner)
		for i := range hosts {
			values = append(values, fold(operands(from(hosts[(home+1+i)%len(hosts)], k+1))))
		}
	}
	return fold(values)
}

// hosts are the ranks of each, those with the lowest ranks first; home is the owner's.
func (o Operation) hosts(owner int) (hosts [][]int, home int) {
	known := map[int]int{}
	for r := range o.N {
		number := r
		if o.Hosts != nil {
			number = o.Hosts[r]
		}
		at, ok := known[number]
		if !ok {
			at = len(hosts)
			known[number], hosts = at, append(hosts, nil)
		}
		hosts[at] = append(hosts[at], r)
		if r == owner {
			home = at
		}
	}
	return hosts, home
}

// from is a list from its i-th element on, counted around.
func from(ranks []int, i int) []int {
	i %= len(ranks)
	return append(slices.Clone(ranks[i:]), ranks[:i]...)
}

func operands(ranks []int) (values []*Expr) {
	for _, r := range ranks {
		values = append(values, &Expr{Rank: r})
	}
	return values
}

// tree folds eight neighbours, then eight of those groups; the last group may be smaller.
func tree(values []*Expr) *Expr {
	for len(values) > 1 {
		values = groups(values, 8)
	}
	return values[0]
}

// Piece is a part of a rank's destination. Pieces follow each other there.
type Piece struct {
	Part   int // whose length it has
	Source int // part at whose beginning its operands lie in the ranks' sources
	Of     *Expr
}

// Parts is the number of parts that the operation's data consists of.
func (o Operation) Parts() int {
	switch o.Kind {
	case op.KindAllReduce, op.KindBarrier:
		return Owners(o.Algorithm, o.N)
	case op.KindReduce, op.KindBroadcast, op.KindScan, op.KindExScan:
		return 1
	}
	return o.N
}

// Averages reports whether the results are sums over all ranks, of which there is an average.
func (o Operation) Averages() bool {
	return o.Kind == op.KindAllReduce || o.Kind == op.KindReduce || o.Kind == op.KindReduceScatter
}

// Pieces are what a rank gets; none where it gets nothing.
func (o Operation) Pieces(rank int) (pieces []Piece) {
	isRoot := rank == o.Root
	switch o.Kind {
	case op.KindAllReduce, op.KindBarrier:
		for owner := range o.Parts() {
			pieces = append(pieces, Piece{owner, owner, o.Order(owner)})
		}
	case op.KindReduce:
		if isRoot {
			pieces = append(pieces, Piece{0, 0, o.Order(o.Root)})
		}
	case op.KindReduceScatter:
		pieces = append(pieces, Piece{rank, rank, o.Order(rank)})
	case op.KindAllGather, op.KindGather:
		for from := range o.N {
			if o.Kind == op.KindAllGather || isRoot {
				pieces = append(pieces, Piece{from, 0, &Expr{Rank: from}})
			}
		}
	case op.KindScatter:
		pieces = append(pieces, Piece{rank, rank, &Expr{Rank: o.Root}})
	case op.KindBroadcast:
		if !isRoot { // whose only buffer holds it already
			pieces = append(pieces, Piece{0, 0, &Expr{Rank: o.Root}})
		}
	case op.KindAllToAll:
		for from := range o.N {
			pieces = append(pieces, Piece{from, rank, &Expr{Rank: from}})
		}
	case op.KindScan, op.KindExScan:
		if o.Kind == op.KindScan || rank > 0 {
			pieces = append(pieces, Piece{0, 0, o.Prefix(rank)})
		}
	default:
		panic(fmt.Sprintf("no results of %v", o.Kind))
	}
	return pieces
}

// Prefix is what a scan gives to a rank: nil where that is nothing.
func (o Operation) Prefix(rank int) *Expr {
	if rank == 0 && o.Kind == op.KindExScan {
		return nil
	}
	sum := make([]*Expr, o.N) // of all ranks: with their own operand
	for r := range sum {
		sum[r] = &Expr{Rank: r}
	}
	exclusive := o.Kind == op.KindExScan
	if o.Algorithm == op.Chain {
		if exclusive {
			rank--
		}
		return fold(sum[:rank+1])
	}
	// In steps of 1, 2, 4, … each rank gets the sum of the one so far before it, and puts it first.
	before := make([]*Expr, o.N) // without their own operand
	for reach := 1; reach < o.N; reach *= 2 {
		for r := o.N - 1; r >= reach; r-- { // downwards: what is read is of the step before
			got := sum[r-reach]
			if before[r] == nil {
				before[r] = got
			} else {
				before[r] = fold([]*Expr{got, before[r]})
			}
			sum[r] = fold([]*Expr{got, sum[r]})
		}
	}
	if exclusive {
		return before[rank]
	}
	return sum[rank]
}
