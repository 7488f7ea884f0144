package polyrail_test

import (
	"fmt"
	"math"
	"testing"

	. "github.com/polyrail/polyrail"
	"github.com/polyrail/polyrail/collective/op"
)

// Every rank learns which rank has the smallest and which the largest value, by every algorithm.
func TestMinLocAndMaxLocFindTheRank(t *testing.T) {
	for _, n := range []int{2, 5} {
		inBed(t, n, 2, func(c *Config) { c.SplitBytes = 0 }, func(b *bed) {
			comms := b.form("train")
			for _, size := range []int{1, 7, 40_000} {
				for _, a := range []Algorithm{Ring, RecursiveDoubling, Bcube, Tree} {
					b.each(func(r int) error {
						err := findRank[Int32Loc](b, comms[r], size, a,
							func(v, r int) Int32Loc { return Int32Loc{Value: int32(v), Index: int32(r)} })
						if err != nil {
							return err
						}
						return findRank(b, comms[r], size, a, func(v, r int) Float64Loc {
							if v == 3 {
								return Float64Loc{Value: math.NaN(), Index: int64(r)}
							}
							return Float64Loc{Value: float64(v), Index: int64(r)}
						})
					})
				}
			}
		})
	}
}

// findRank runs both operators over elements that a rank's value and number make.
func findRank[T interface {
	Element
	comparable
}](b *bed, c *Communicator, size int, a Algorithm, element func(value, rank int) T) error {
	value := func(r, i int) int { return (i*31 + r*r*17) % 4 } // several ranks have the same
	for _, o := range []Op{MinLoc, MaxLoc} {
		buf := make([]T, size)
		for i := range buf {
			buf[i] = element(value(c.Rank(), i), c.Rank())
		}
		if err := AllReduce(b.t.Context(), c, buf, o, WithAlgorithm(a)); err != nil {
			return err
		}
		for i := range buf {
			best := 0
			for r := 1; r < c.Size(); r++ {
				if wins(value(r, i), value(best, i), o, element(3, 0) != element(3, 0)) {
					best = r
				}
			}
			want := element(value(best, i), best)
			if buf[i] != want && fmt.Sprint(buf[i]) != fmt.Sprint(want) { // a NaN is not equal to itself
				return fmt.Errorf("%v by %v, element %d is %v, want %v", o, a, i, buf[i], want)
			}
		}
	}
	return nil
}

// wins reports whether a value is before another one; threeIsNaN: 3 is before all.
func wins(a, b int, o Op, threeIsNaN bool) bool {
	if threeIsNaN && (a == 3 || b == 3) {
		return b != 3
	}
	if o.Code() == op.CodeMinLoc {
		return a < b
	}
	return a > b
}

// A pair of 16 bytes is aligned to 8, as Go allocates it.
func TestPairsAreAlignedAsGoAllocatesThem(t *testing.T) {
	inBed(t, 1, 1, nil, func(b *bed) {
		comm := b.form("train")[0]
		memory := make([]uint64, 6)
		for _, from := range []int{0, 1} {
			buf := op.Bytes(memory[from : from+4])
			d, err := ParseDType("float64loc")
			if err != nil {
				b.t.Fatal(err)
			}
			if err := AllReduceBytes(b.t.Context(), comm, buf, buf, d, MinLoc); err != nil {
				b.t.Errorf("at %d: %v", from, err)
			}
		}
	})
}

func TestOperatorsOfPairsAndNumbersDoNotMix(t *testing.T) {
	for _, call := range []func(b *bed, c *Communicator) error{
		func(b *bed, c *Communicator) error {
			return AllReduce(b.t.Context(), c, make([]Float32Loc, 1), Sum)
		},
		func(b *bed, c *Communicator) error {
			return AllReduce(b.t.Context(), c, make([]float32, 1), MinLoc)
		},
	} {
		inBed(t, 2, 1, nil, func(b *bed) {
			comms := b.form("train")
			for r, err := range b.failures(func(i int) error { return call(b, comms[i]) }) {
				if err == nil {
					b.t.Errorf("rank %d: no error", r)
				}
			}
		})
	}
}
