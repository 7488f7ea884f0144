package reduce

import (
	"bytes"
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/polyrail/polyrail/collective/op"
)

// odd are values that tell orders apart: zeros of both signs, infinities, NaNs with payloads.
var odd = []uint64{0, 1 << 63, 0x7ff0 << 48, 0xfff0 << 48, 0x7ff8_0000_dead_beef, 0xfff8_0000_0000_0001}

// drawn are n packed vectors of one type.
func drawn(random *rand.Rand, d op.DType, n, elements int) (all [][]byte) {
	value := func(d op.DType) (b []byte) {
		b = binary.LittleEndian.AppendUint64(nil, random.Uint64())
		if d == op.F64 || d == op.F64Loc {
			v := math.Float64bits(random.NormFloat64())
			if random.IntN(4) == 0 {
				v = odd[random.IntN(len(odd))]
			}
			b = binary.LittleEndian.AppendUint64(nil, v)
		}
		return b
	}
	for range n {
		var b []byte
		for len(b) < elements*d.Size() {
			b = append(b, value(d)...)
			if d == op.F64Loc {
				b = binary.LittleEndian.AppendUint64(b, uint64(random.IntN(3)))
			}
		}
		all = append(all, b[:elements*d.Size()])
	}
	return all
}

// foldShuffled combines any two of the operands until one is left.
func foldShuffled(t *testing.T, random *rand.Rand, combine op.Combine, all [][]byte) []byte {
	var left [][]byte
	for _, b := range all {
		left = append(left, bytes.Clone(b))
	}
	for len(left) > 1 {
		random.Shuffle(len(left), func(i, j int) { left[i], left[j] = left[j], left[i] })
		if err := combine(left[0], left[0], left[1]); err != nil {
			t.Fatal(err)
		}
		left = append(left[:1], left[2:]...)
	}
	return left[0]
}

func TestExactOperatorsKnowNoOrder(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	exact := 0
	for d := op.DType(1); d.Valid(); d++ {
		for _, o := range op.BuiltIn {
			if o.Check(d) != nil || !o.Code().Exact(d) {
				continue
			}
			exact++
			combine, err := For(o, d)
			if err != nil {
				t.Fatal(err)
			}
			for range 20 {
				all := drawn(random, d, 6, 50)
				want := foldShuffled(t, random, combine, all)
				for range 10 {
					if got := foldShuffled(t, random, combine, all); !bytes.Equal(got, want) {
						t.Fatalf("%v of %v depends on the order:\n%x\n%x", o, d, got, want)
					}
				}
			}
		}
	}
	if exact < 6*8+4*2+4*2 { // six types of integers, four of floats, four of pairs
		t.Errorf("%d exact operators", exact)
	}
	if op.Sum.Code().Exact(op.F32) || op.Prod.Code().Exact(op.F64) || op.CodeUser.Exact(op.Int32) {
		t.Error("a sum of floats depends on the order, and nothing is known of a user's")
	}
}
