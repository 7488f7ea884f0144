package reduce

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/big"

	"github.com/polyrail/polyrail/collective/op"
)

// This file is the reference: one element at a time, by the plainest arithmetic there is. It shares
// no code with the kernels, not even the conversions of 16-bit floats.

// referenceCombine sets dst[i] = a[i] ∘ b[i].
func referenceCombine(c op.Code, d op.DType, dst, a, b []byte) {
	for i := 0; i < len(dst); i += d.Size() {
		if d.Loc() {
			copy(dst[i:], referenceLoc(c, d, a[i:i+d.Size()], b[i:i+d.Size()]))
			continue
		}
		store(d, dst[i:], referenceElement(c, d, fetch(d, a[i:]), fetch(d, b[i:])))
	}
}

// referenceLoc is the pair that wins: that of the lower index, unless Min or Max of the values is
// one of the two only.
func referenceLoc(c op.Code, d op.DType, a, b []byte) []byte {
	v := d.Value()
	x, y := fetch(v, a), fetch(v, b)
	i, j := integerOf(indexType(d), fetch(v, a[v.Size():])), integerOf(indexType(d), fetch(v, b[v.Size():]))
	best := referenceElement(map[op.Code]op.Code{op.CodeMinLoc: op.CodeMin,
		op.CodeMaxLoc: op.CodeMax}[c], v, x, y)
	if !v.Integer() { // as best, a NaN is the one NaN
		x, y = bitsOfFloat(v, floatOf(v, x)), bitsOfFloat(v, floatOf(v, y))
	}
	index := i
	if mask := ^uint64(0) >> (64 - 8*v.Size()); x != y && best&mask == y&mask || x == y && j.Cmp(i) < 0 {
		index = j
	}
	element := make([]byte, d.Size())
	store(v, element, best)
	store(v, element[v.Size():], bitsOfInteger(index))
	return element
}

// indexType is the type of a pair's index.
func indexType(d op.DType) op.DType {
	if d.Value().Size() == 4 {
		return op.Int32
	}
	return op.Int64
}

// referenceDivide sets p[i] = p[i] / n.
func referenceDivide(d op.DType, p []byte, n int) {
	for i := 0; i < len(p); i += d.Size() {
		x := fetch(d, p[i:])
		if d.Integer() {
			quotient := new(big.Int).Quo(integerOf(d, x), big.NewInt(int64(n))) // truncates toward zero
			store(d, p[i:], bitsOfInteger(quotient))
			continue
		}
		if d == op.F64 {
			store(d, p[i:], bitsOfFloat(d, floatOf(d, x)/float64(n)))
			continue
		}
		store(d, p[i:], bitsOfFloat(d, float64(float32(floatOf(d, x))/float32(n))))
	}
}

// referenceElement works on the bits of two elements.
func referenceElement(c op.Code, d op.DType, x, y uint64) uint64 {
	if d.Integer() {
		return bitsOfInteger(referenceInteger(c, integerOf(d, x), integerOf(d, y)))
	}
	a, b := floatOf(d, x), floatOf(d, y)
	switch c {
	case op.CodeSum, op.CodeAvg:
		if d == op.F64 {
			return bitsOfFloat(d, a+b)
		}
		return bitsOfFloat(d, float64(float32(a)+float32(b)))
	case op.CodeProd:
		if d == op.F64 {
			return bitsOfFloat(d, a*b)
		}
		return bitsOfFloat(d, float64(float32(a)*float32(b)))
	case op.CodeMin:
		return bitsOfFloat(d, referenceMin(a, b))
	case op.CodeMax:
		return bitsOfFloat(d, -referenceMin(-a, -b))
	}
	panic(fmt.Sprintf("no reference for %v of %v", c, d))
}

// referenceMin is not math.Min, which lets −Inf win over a NaN.
func referenceMin(a, b float64) float64 {
	switch {
	case a != a || b != b:
		return math.NaN()
	case a < b || a == b && math.Signbit(a):
		return a
	}
	return b
}

func referenceInteger(c op.Code, a, b *big.Int) *big.Int {
	r := new(big.Int)
	switch c {
	case op.CodeSum, op.CodeAvg:
		return r.Add(a, b)
	case op.CodeProd:
		return r.Mul(a, b)
	case op.CodeMin:
		if a.Cmp(b) < 0 {
			return a
		}
		return b
	case op.CodeMax:
		if a.Cmp(b) > 0 {
			return a
		}
		return b
	case op.CodeBitAnd:
		return r.And(a, b)
	case op.CodeBitOr:
		return r.Or(a, b)
	case op.CodeBitXor:
		return r.Xor(a, b)
	}
	panic(fmt.Sprintf("no reference for %v of integers", c))
}

// fetch reads the bits of the first element of p.
func fetch(d op.DType, p []byte) uint64 {
	switch d.Size() {
	case 1:
		return uint64(p[0])
	case 2:
		return uint64(binary.NativeEndian.Uint16(p))
	case 4:
		return uint64(binary.NativeEndian.Uint32(p))
	}
	return binary.NativeEndian.Uint64(p)
}

// store writes the low bits of an element: integers wrap here.
func store(d op.DType, p []byte, bits uint64) {
	switch d.Size() {
	case 1:
		p[0] = byte(bits)
	case 2:
		binary.NativeEndian.PutUint16(p, uint16(bits))
	case 4:
		binary.NativeEndian.PutUint32(p, uint32(bits))
	default:
		binary.NativeEndian.PutUint64(p, bits)
	}
}

func integerOf(d op.DType, bits uint64) *big.Int {
	switch d {
	case op.Int8:
		return big.NewInt(int64(int8(bits)))
	case op.Int32:
		return big.NewInt(int64(int32(bits)))
	case op.Int64:
		return big.NewInt(int64(bits))
	}
	return new(big.Int).SetUint64(bits)
}

// bitsOfInteger is i modulo 2⁶⁴.
func bitsOfInteger(i *big.Int) uint64 {
	return new(big.Int).And(i, new(big.Int).SetUint64(math.MaxUint64)).Uint64()
}

// A format is that of a 16-bit float.
type format struct {
	fraction    int // bits
	minExponent int // of a normal number
	maxExponent int
}

var formats = map[op.DType]format{
	op.F16:  {fraction: 10, minExponent: -14, maxExponent: 15},
	op.BF16: {fraction: 7, minExponent: -126, maxExponent: 127},
}

// halves are the values of all 16-bit floats.
var halves = func() map[op.DType][]float64 {
	all := make(map[op.DType][]float64)
	for d, f := range formats {
		for bits := range uint64(1 << 16) {
			all[d] = append(all[d], f.value(bits))
		}
	}
	return all
}()

// floatOf is the value of an element, exactly.
func floatOf(d op.DType, bits uint64) float64 {
	switch d {
	case op.F32:
		return float64(math.Float32frombits(uint32(bits)))
	case op.F64:
		return math.Float64frombits(bits)
	}
	return halves[d][bits]
}

// bitsOfFloat rounds v to nearest even; a NaN becomes the one NaN.
func bitsOfFloat(d op.DType, v float64) uint64 {
	switch {
	case d == op.F64 && v != v:
		return 0x7ff8000000000000
	case d == op.F64:
		return math.Float64bits(v)
	case d == op.F32 && v != v:
		return 0x7fc00000
	case d == op.F32:
		return uint64(math.Float32bits(float32(v)))
	}
	return formats[d].bits(v)
}

func (f format) value(bits uint64) float64 {
	fraction := float64(bits & (1<<f.fraction - 1))
	exponent := int(bits & 0x7fff >> f.fraction)
	v := math.Ldexp(fraction, f.minExponent-f.fraction) // subnormal
	switch {
	case exponent == f.maxExponent-f.minExponent+2 && fraction != 0:
		return math.NaN()
	case exponent == f.maxExponent-f.minExponent+2:
		v = math.Inf(1)
	case exponent > 0:
		v = math.Ldexp(1+math.Ldexp(fraction, -f.fraction), exponent-1+f.minExponent)
	}
	if bits&0x8000 != 0 {
		return -v
	}
	return v
}

func (f format) bits(v float64) uint64 {
	infinity := uint64(f.maxExponent-f.minExponent+2) << f.fraction
	if v != v {
		return infinity | 1<<(f.fraction-1)
	}
	var sign uint64
	if math.Signbit(v) {
		sign, v = 0x8000, -v
	}
	if math.IsInf(v, 0) {
		return sign | infinity
	}
	if v == 0 {
		return sign
	}
	_, exponent := math.Frexp(v) // v < 2^exponent
	quantum := max(exponent-1, f.minExponent) - f.fraction
	places := uint64(math.RoundToEven(math.Ldexp(v, -quantum))) // up to and with 2^(fraction+1)
	// places has the implicit bit in it where v is normal: it adds one to the exponent's bits.
	rounded := uint64(quantum+f.fraction-f.minExponent)<<f.fraction + places
	return sign | min(rounded, infinity)
}
