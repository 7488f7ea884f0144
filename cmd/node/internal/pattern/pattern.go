// Package pattern makes operands of collective operations whose results are known beforehand,
// bit for bit, in whatever order they are folded, and finds the elements of a result that differ.
//
// Values are chosen so that every partial result is exact in the element type: a wrong
// element is then a fault of the runtime and never a matter of rounding. Each rank
// contributes something else and neighbouring elements differ, so that a lost, doubled
// or misplaced contribution shows.
//
// It knows no kind of operation: a result is a list of Parts, each the fold of some ranks'
// operands.
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

// Ranks are the ranks First … Last.
type Ranks struct{ First, Last op.Rank }

// Only is one rank.
func Only(r op.Rank) Ranks { return Ranks{r, r} }

// Part is a run of elements of a result: what Ranks have from element First of their operands on,
// folded where the ranks are several.
type Part struct {
	Ranks    Ranks
	First    int
	Elements int
}

// Pattern holds the operands of all ranks and the results that follow from them. It is not safe for
// concurrent use.
type Pattern struct {
	dtype  op.DType
	code   op.Code // CodeNone: operands are moved, never folded
	n      int
	values map[Ranks][]byte // one period each
}

// New makes the pattern of n ranks that apply o to elements of type d. The zero Op is for
// operations that fold nothing. It is an error that names o, d and n where no exact values exist
// (a bfloat16 sum over more than 256 ranks).
func New(d op.DType, o op.Op, n int) (*Pattern, error) {
	if o.Code() != op.CodeNone {
		if err := o.Check(d); err != nil {
			return nil, err
		}
	}
	if limit := exactIntegers(d); limit > 0 && n > limit && (o.Code() == op.CodeSum || o.Code() == op.CodeAvg) {
		return nil, fmt.Errorf("a %v of %v over %d ranks is not exact, so it cannot be checked", o, d, n)
	}
	return &Pattern{dtype: d, code: o.Code(), n: n, values: map[Ranks][]byte{}}, nil
}

// ElementBytes is the size of an element.
func (p *Pattern) ElementBytes() int { return p.dtype.Size() }

// of is one period of the operand of a rank, or of the fold of several ranks' operands.
func (p *Pattern) of(r Ranks) []byte {
	if v, ok := p.values[r]; ok {
		return v
	}
	v := make([]byte, 0, period*p.dtype.Size())
	for j := range period {
		switch {
		case p.dtype.Loc():
			v = appendLoc(v, p.dtype, p.loc(r, j))
		case p.dtype.Integer():
			v = appendInt(v, p.dtype, p.integer(r, j))
		default:
			v = appendFloat(v, p.dtype, p.float(r, j))
		}
	}
	p.values[r] = v
	return v
}

// Fill writes a rank's operand into buf, whose length is a whole number of elements.
func (p *Pattern) Fill(rank op.Rank, buf []byte) {
	v := p.of(Only(rank))
	for len(buf) > 0 {
		buf = buf[copy(buf, v):]
	}
}

// Wrong counts the elements of buf that are not what the parts say, one after the other.
// It panics when the parts are not as long as buf.
func (p *Pattern) Wrong(buf []byte, parts []Part) (wrong int) {
	size := p.dtype.Size()
	for _, part := range parts {
		v := p.of(part.Ranks)
		got := buf[:part.Elements*size]
		buf = buf[len(got):]
		for at := part.First % period * size; len(got) > 0; at = 0 {
			n := min(len(got), len(v)-at)
			wrong += wrongIn(got[:n], v[at:at+n], size)
			got = got[n:]
		}
	}
	if len(buf) > 0 {
		panic(fmt.Sprintf("pattern: nothing is known of the last %d bytes of a result", len(buf)))
	}
	return wrong
}

func wrongIn(got, want []byte, size int) (wrong int) {
	if bytes.Equal(got, want) {
		return 0
	}
	for i := 0; i < len(got); i += size {
		if !bytes.Equal(got[i:i+size], want[i:i+size]) {
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

// integer is element j of the fold of some ranks' operands.
func (p *Pattern) integer(ranks Ranks, j int) uint64 {
	d := p.dtype
	acc := wrap(d, intValue(p.code, int(ranks.First), j))
	for r := ranks.First + 1; r <= ranks.Last; r++ {
		v := wrap(d, intValue(p.code, int(r), j))
		switch p.code {
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
	if p.divides(ranks) {
		if signed(d) {
			return uint64(int64(acc) / int64(p.n))
		}
		return acc / uint64(p.n)
	}
	return acc
}

// divides says whether a value is an average, which only all ranks together have.
func (p *Pattern) divides(ranks Ranks) bool {
	return p.code == op.CodeAvg && ranks == Ranks{0, op.Rank(p.n - 1)}
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

// float is element j of the fold of some ranks' operands.
func (p *Pattern) float(ranks Ranks, j int) float64 {
	v := floatValues{limit: exactIntegers(p.dtype), n: p.n, j: j}
	acc := v.at(p.code, int(ranks.First))
	for r := ranks.First + 1; r <= ranks.Last; r++ {
		x := v.at(p.code, int(r))
		switch p.code {
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
	if p.divides(ranks) {
		return acc / float64(p.n)
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
