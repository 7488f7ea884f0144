package order

import (
	"fmt"

	"github.com/polyrail/polyrail/collective/op"
)

// Operation is what the right results of a collective operation follow from.
type Operation struct {
	Kind      op.Kind
	Algorithm op.Algorithm
	N         int // ranks
	Base      int // Bcube's
	Root      int // where the kind has one
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
			pieces = append(pieces, Piece{owner, owner, Of(o.Algorithm, o.N, o.Base, owner)})
		}
	case op.KindReduce:
		if isRoot {
			pieces = append(pieces, Piece{0, 0, Of(o.Algorithm, o.N, o.Base, o.Root)})
		}
	case op.KindReduceScatter:
		pieces = append(pieces, Piece{rank, rank, Of(o.Algorithm, o.N, o.Base, rank)})
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
