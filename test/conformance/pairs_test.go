package conformance

import (
	"math/rand/v2"

	"github.com/polyrail/polyrail/collective/op"
	"github.com/polyrail/polyrail/test/order"
)

// fillPairs writes pairs of few values and indexes, so that equal ones meet.
func fillPairs(d op.DType, p []byte, rng *rand.Rand) {
	v := d.Value()
	for at := 0; at < len(p); at += d.Size() {
		value := uint64(rng.IntN(5)) - 2
		if !v.Integer() {
			value = fewNumbers(v)[rng.IntN(10)]
		}
		store(v, p[at:], value)
		store(v, p[at+v.Size():], uint64(rng.IntN(7))-3)
	}
}

// fewNumbers are NaNs with and without payloads, infinities, zeros of both signs and some numbers.
func fewNumbers(v op.DType) []uint64 {
	if v == op.F64 {
		return []uint64{0x7ff8000000000000, 0xfff8000000000abc, 0x7ff0000000000000, 0xfff0000000000000,
			0, 1 << 63, 0x3ff0000000000000, 0xbff0000000000000, 0x4000000000000000, 0xc000000000000000}
	}
	return []uint64{0x7fc00000, 0xffc00abc, 0x7f800000, 0xff800000,
		0, 0x80000000, 0x3f800000, 0xbf800000, 0x40000000, 0xc0000000}
}

// evaluatePair is evaluate on the bytes of a pair.
func evaluatePair(d op.DType, code op.Code, e *order.Expr, operands [][]byte, at int) []byte {
	if len(e.Args) == 0 {
		return operands[e.Rank][at : at+d.Size()]
	}
	acc := evaluatePair(d, code, e.Args[0], operands, at)
	for _, arg := range e.Args[1:] {
		acc = combinePair(d, code, acc, evaluatePair(d, code, arg, operands, at))
	}
	return acc
}

// combinePair is the reference of one step. The value is that of Min or Max; the index is the lower
// one of the operands with that value.
func combinePair(d op.DType, code op.Code, a, b []byte) []byte {
	result := make([]byte, d.Size())
	if code == op.CodeUser {
		for i := range result {
			result[i] = 3*a[i] + b[i]
		}
		return result
	}
	single := op.CodeMin
	if code == op.CodeMaxLoc {
		single = op.CodeMax
	}
	v := d.Value()
	x, y := load(v, a), load(v, b)
	best := combine(v, single, x, y)
	store(v, result, best)
	itself := func(value uint64) uint64 { return combine(v, single, value, value) } // one NaN only
	i, j := signedIndex(d, a), signedIndex(d, b)
	switch {
	case itself(x) != best:
		i = j
	case itself(y) == best:
		i = min(i, j)
	}
	store(v, result[v.Size():], uint64(i))
	return result
}

func signedIndex(d op.DType, p []byte) int64 {
	v := d.Value()
	if v.Size() == 4 {
		return int64(int32(load(v, p[4:])))
	}
	return int64(load(v, p[8:]))
}
