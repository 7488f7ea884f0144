// Package pattern makes operands whose allreduce is known beforehand, bit for bit, in
// whatever order it is summed, and finds the elements of a result that differ.
//
// Values are chosen so that every partial result is exact in the element type: a wrong
// element is then a fault of the runtime and never a matter of rounding. Each rank
// contributes something else and neighbouring elements differ, so that a lost, doubled
// or misplaced contribution shows.
package pattern

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"

	"github.com/polyrail/polyrail/collective/op"
)

// period is the number of elements after which a pattern repeats: a prime, so that no
// segment, frame or block begins at the same phase as its neighbour.
const period = 1009

// Pattern holds one rank's operand and the result that every rank must see.
type Pattern struct {
	elemSize int
	input    []byte // one period
	result   []byte // one period
}

// New makes the pattern for rank of n ranks that apply o to elements of type d. It is an
// error that names o, d and n where no exact values exist (a bfloat16 sum over more than 256 ranks).
func New(d op.DType, o op.Op, rank op.Rank, n int) (*Pattern, error) {
	if err := o.Check(d); err != nil {
		return nil, err
	}
	if limit := exactIntegers(d); limit > 0 && n > limit && (o.Code() == op.CodeSum || o.Code() == op.CodeAvg) {
		return nil, fmt.Errorf("a %v of %v over %d ranks is not exact, so it cannot be checked", o, d, n)
	}
	p := &Pattern{elemSize: d.Size()}
	for j := range period {
		if d.Loc() {
			p.input = appendLoc(p.input, d, locOf(int(rank), j))
			p.result = appendLoc(p.result, d, locResult(o.Code(), n, j))
			continue
		}
		if d.Integer() {
			p.input = appendInt(p.input, d, intValue(o.Code(), int(rank), j))
			p.result = appendInt(p.result, d, intResult(d, o.Code(), n, j))
			continue
		}
		v := floatValues{limit: exactIntegers(d), n: n, j: j}
		p.input = appendFloat(p.input, d, v.at(o.Code(), int(rank)))
		p.result = appendFloat(p.result, d, v.result(o.Code()))
	}
	return p, nil
}

// Fill writes this rank's operand into buf, whose length is a whole number of elements.
func (p *Pattern) Fill(buf []byte) {
	for len(buf) > 0 {
		buf = buf[copy(buf, p.input):]
	}
}

// Wrong counts the elements of buf that are not what the allreduce must give.
func (p *Pattern) Wrong(buf []byte) int {
	wrong := 0
	for len(buf) > 0 {
		n := min(len(buf), len(p.result))
		if !bytes.Equal(buf[:n], p.result[:n]) {
			wrong += p.wrongIn(buf[:n])
		}
		buf = buf[n:]
	}
	return wrong
}

func (p *Pattern) wrongIn(part []byte) int {
	wrong := 0
	for i := 0; i < len(part); i += p.elemSize {
		if !bytes.Equal(part[i:i+p.elemSize], p.result[i:i+p.elemSize]) {
			wrong++
		}
	}
	return wrong
}

// intValue is any bits for the operators that lose none; a factor is odd, since a power
// of two would shift the other ranks' contributions out.
func intValue(o op.Code, rank, j int) uint64 {
	v := mix(uint64(rank)<<32 | uint64(j))
	switch o {
	case op.CodeProd:
		return v | 1
	case op.CodeAvg: // small: the quotient tells more when the sum has not wrapped around
		return v % 8
	}
	return v
}

// mix scatters the bits of x (the finalizer of splitmix64).
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

func intResult(d op.DType, o op.Code, n, j int) uint64 {
	acc := wrap(d, intValue(o, 0, j))
	for r := 1; r < n; r++ {
		v := wrap(d, intValue(o, r, j))
		switch o {
		case op.CodeSum, op.CodeAvg:
			acc = wrap(d, acc+v)
		case op.CodeProd:
			acc = wrap(d, acc*v)
		case op.CodeMin:
			if less(d, v, acc) {
				acc = v
			}
		case op.CodeMax:
			if less(d, acc, v) {
				acc = v
			}
		case op.CodeBitAnd:
			acc &= v
		case op.CodeBitOr:
			acc |= v
		case op.CodeBitXor:
			acc ^= v
		}
	}
	if o == op.CodeAvg {
		if signed(d) {
			return uint64(int64(acc) / int64(n))
		}
		return acc / uint64(n)
	}
	return acc
}

func signed(d op.DType) bool { return d == op.Int8 || d == op.Int32 || d == op.Int64 }

// wrap cuts v to d's width and extends it again, with its sign where d has one.
func wrap(d op.DType, v uint64) uint64 {
	unused := 64 - 8*d.Size()
	if signed(d) {
		return uint64(int64(v<<unused) >> unused)
	}
	return v << unused >> unused
}

func less(d op.DType, a, b uint64) bool {
	if signed(d) {
		return int64(a) < int64(b)
	}
	return a < b
}

// exactIntegers is an m such that d holds all integers from 0 to m, the largest where that
// matters; 0 for integer types.
func exactIntegers(d op.DType) int {
	switch d {
	case op.F16:
		return 1 << 11
	case op.BF16:
		return 1 << 8
	case op.F32:
		return 1 << 24
	case op.F64:
		return 1 << 30 // more than needed, and an int everywhere
	}
	return 0
}

// floatValues are the n ranks' values of element j.
type floatValues struct{ limit, n, j int }

func (v floatValues) at(o op.Code, rank int) float64 {
	switch o {
	case op.CodeProd:
		// Signs and powers of two. Only the first ranks change the exponent, so that
		// every partial product stays within float16 in any order.
		x := 1.0
		if rank < 12 {
			x = math.Ldexp(1, (rank+v.j)%3-1)
		}
		if (rank*5+v.j)%2 == 1 {
			x = -x
		}
		return x
	case op.CodeSum, op.CodeAvg:
		return float64(v.base() + v.skew(rank))
	}
	return float64(mix(uint64(rank)<<32|uint64(v.j))%250) - 125.5
}

// base and skew make up a summand. The skews of all ranks add up to n·(n−1): the sum is a
// multiple of n, hence its quotient exact too. Where that would exceed what the type
// counts exactly, ranks contribute equal values.
func (v floatValues) base() int {
	room := v.limit / v.n
	if v.skewed() {
		room -= v.n - 1
	}
	return 1 + v.j%min(room, 1000)
}

func (v floatValues) skew(rank int) int {
	if !v.skewed() {
		return 0
	}
	return 2 * ((rank + v.j) % v.n)
}

func (v floatValues) skewed() bool { return v.limit/v.n > v.n-1 }

func (v floatValues) result(o op.Code) float64 {
	acc := v.at(o, 0)
	for r := 1; r < v.n; r++ {
		x := v.at(o, r)
		switch o {
		case op.CodeSum, op.CodeAvg:
			acc += x
		case op.CodeProd:
			acc *= x
		case op.CodeMin:
			acc = min(acc, x)
		case op.CodeMax:
			acc = max(acc, x)
		}
	}
	if o == op.CodeAvg {
		return acc / float64(v.n)
	}
	return acc
}

func appendInt(b []byte, d op.DType, v uint64) []byte {
	switch d.Size() {
	case 1:
		return append(b, byte(v))
	case 4:
		return binary.NativeEndian.AppendUint32(b, uint32(v))
	}
	return binary.NativeEndian.AppendUint64(b, v)
}

func appendFloat(b []byte, d op.DType, v float64) []byte {
	switch d {
	case op.F16:
		return binary.NativeEndian.AppendUint16(b, uint16(op.ToFloat16(float32(v))))
	case op.BF16:
		return binary.NativeEndian.AppendUint16(b, uint16(op.ToBFloat16(float32(v))))
	case op.F32:
		return binary.NativeEndian.AppendUint32(b, math.Float32bits(float32(v)))
	}
	return binary.NativeEndian.AppendUint64(b, math.Float64bits(v))
}
