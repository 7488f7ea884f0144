package reduce

import (
	"bytes"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/polyrail/polyrail/collective/op"
)

var (
	locTypes     = []op.DType{op.Int32Loc, op.Int64Loc, op.F32Loc, op.F64Loc}
	locOperators = []op.Op{op.MinLoc, op.MaxLoc}
)

func TestLocKernelsEqualTheReferenceOnAllPairsOfSpecialValues(t *testing.T) {
	for _, d := range locTypes {
		all := specialLocs(d)
		var a, b []byte
		for _, x := range all {
			for _, y := range all {
				a, b = append(a, x...), append(b, y...)
			}
		}
		for _, o := range locOperators {
			withReference(o.Code(), d, a, b).check(t, portable, apart, 0)
		}
	}
}

// specialLocs is each value at an edge of its type with each of a few indexes.
func specialLocs(d op.DType) (all [][]byte) {
	v := d.Value()
	for _, value := range specials(v) {
		for _, index := range []uint64{0, 1, 1<<(8*v.Size()-1) - 1, 1 << (8*v.Size() - 1)} {
			element := make([]byte, d.Size())
			store(v, element, value)
			store(v, element[v.Size():], index)
			all = append(all, element)
		}
	}
	return all
}

// The words of the operators' documentation, one after the other.
func TestWhatWinsAmongPairs(t *testing.T) {
	type loc = op.Loc[float64, int64]
	nan, odd := math.Float64frombits(0x7ff8000000000000), math.Float64frombits(0xfff8000012345678)
	negative := math.Copysign(0, -1)
	at := func(value float64, index int64) loc { return loc{Value: value, Index: index} }
	for _, c := range []struct {
		name     string
		a, b     loc
		min, max loc
	}{
		{"the smaller and the larger value", at(1, 5), at(2, 3), at(1, 5), at(2, 3)},
		{"of equal values the lower index", at(1, 5), at(1, 3), at(1, 3), at(1, 3)},
		{"negative indexes are lower", at(1, 5), at(1, -1), at(1, -1), at(1, -1)},
		{"a NaN wins", at(nan, 9), at(math.Inf(-1), 3), at(nan, 9), at(nan, 9)},
		{"among NaNs the lower index", at(odd, 9), at(nan, 3), at(nan, 3), at(nan, 3)},
		{"a NaN that wins has no payload", at(odd, 9), at(1, 3), at(nan, 9), at(nan, 9)},
		{"-0 is below +0", at(negative, 9), at(0, 3), at(negative, 9), at(0, 3)},
	} {
		for _, swapped := range []bool{false, true} {
			a, b := c.a, c.b
			if swapped {
				a, b = b, a
			}
			for _, o := range locOperators {
				want := c.min
				if o.Code() == op.CodeMaxLoc {
					want = c.max
				}
				combine, err := For(o, op.F64Loc)
				if err != nil {
					t.Fatal(err)
				}
				got := []loc{a}
				if err := combine(op.Bytes(got), op.Bytes(got), op.Bytes([]loc{b})); err != nil {
					t.Fatal(err)
				}
				if !bytes.Equal(op.Bytes(got), op.Bytes([]loc{want})) {
					t.Errorf("%s, %v: %v and %v became %v, want %v", c.name, o, a, b, got[0], want)
				}
			}
		}
	}
}

// Any order and any grouping of some pairs gives the same bits.
func TestLocOperatorsAreAssociativeAndCommutative(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o, d := rapid.SampledFrom(locOperators).Draw(t, "op"), rapid.SampledFrom(locTypes).Draw(t, "dtype")
		all := specialLocs(d)
		values := rapid.SliceOfN(rapid.SampledFrom(all), 2, 8).Draw(t, "values")
		if rapid.Bool().Draw(t, "any bits") {
			for i := range values {
				values[i] = rapid.SliceOfN(rapid.Byte(), d.Size(), d.Size()).Draw(t, "bits")
			}
		}
		kernel := portable.binary[o.Code()][d]
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		var want []byte
		for range 4 {
			left := slices.Clone(values)
			rng.Shuffle(len(left), func(i, j int) { left[i], left[j] = left[j], left[i] })
			for len(left) > 1 {
				i := rng.IntN(len(left) - 1)
				sum := make([]byte, d.Size())
				kernel(sum, left[i], left[i+1])
				left = slices.Replace(left, i, i+2, sum)
			}
			if want == nil {
				want = left[0]
			}
			if !bytes.Equal(left[0], want) {
				t.Fatalf("%v of %v: %x became %x and %x", o, d, values, want, left[0])
			}
		}
	})
}
