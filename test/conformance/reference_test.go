package conformance

import (
	"encoding/binary"
	"math"
	"slices"

	"github.com/polyrail/polyrail/collective/op"
	"github.com/polyrail/polyrail/test/order"
)

// The reference works on the bits of one element, in a uint64.

// combine is the reference of one step: a ∘ b.
func combine(d op.DType, code op.Code, a, b uint64) uint64 {
	if code == op.CodeUser {
		return userBits(a, b)
	}
	switch d {
	case op.Int8:
		return uint64(uint8(integer(code, int8(a), int8(b))))
	case op.Uint8:
		return uint64(integer(code, uint8(a), uint8(b)))
	case op.Int32:
		return uint64(uint32(integer(code, int32(a), int32(b))))
	case op.Uint32:
		return uint64(integer(code, uint32(a), uint32(b)))
	case op.Int64:
		return uint64(integer(code, int64(a), int64(b)))
	case op.Uint64:
		return integer(code, a, b)
	case op.F64:
		return bits64(float(code, math.Float64frombits(a), math.Float64frombits(b)))
	}
	return narrow(d, float(code, widen(d, a), widen(d, b)))
}

// divide is the reference of what finishes an average over n ranks.
func divide(d op.DType, a uint64, n int) uint64 {
	switch d {
	case op.Int8:
		return uint64(uint8(int64(int8(a)) / int64(n)))
	case op.Uint8, op.Uint32, op.Uint64:
		return a / uint64(n)
	case op.Int32:
		return uint64(uint32(int64(int32(a)) / int64(n)))
	case op.Int64:
		return uint64(int64(a) / int64(n))
	case op.F64:
		return bits64(math.Float64frombits(a) / float64(n))
	}
	return narrow(d, widen(d, a)/float32(n))
}

func integer[T int8 | uint8 | int32 | uint32 | int64 | uint64](code op.Code, a, b T) T {
	switch code {
	case op.CodeSum, op.CodeAvg:
		return a + b
	case op.CodeProd:
		return a * b
	case op.CodeMin:
		return min(a, b)
	case op.CodeMax:
		return max(a, b)
	case op.CodeBitAnd:
		return a & b
	case op.CodeBitOr:
		return a | b
	case op.CodeBitXor:
		return a ^ b
	}
	panic("no integer operator " + code.String())
}

func float[T float32 | float64](code op.Code, a, b T) T {
	switch code {
	case op.CodeSum, op.CodeAvg:
		return a + b
	case op.CodeProd:
		return a * b
	case op.CodeMin:
		return min(a, b)
	case op.CodeMax:
		return max(a, b)
	}
	panic("no operator on floating-point numbers " + code.String())
}

// widen is exact.
func widen(d op.DType, a uint64) float32 {
	switch d {
	case op.F16:
		return op.Float16(a).Float32()
	case op.BF16:
		return op.BFloat16(a).Float32()
	}
	return math.Float32frombits(uint32(a))
}

// narrow rounds once to nearest even. There is one NaN only: quiet, positive, without a payload.
func narrow(d op.DType, f float32) uint64 {
	if f != f {
		f = math.Float32frombits(0x7fc00000)
	}
	switch d {
	case op.F16:
		return uint64(op.ToFloat16(f))
	case op.BF16:
		return uint64(op.ToBFloat16(f))
	}
	return uint64(math.Float32bits(f))
}

func bits64(f float64) uint64 {
	if f != f {
		return 0x7ff8000000000000
	}
	return math.Float64bits(f)
}

// userOp is a user-defined operator for tests: on each byte 3·a + b. It is neither associative nor
// commutative, which the runtime asks of an operator only so that the order doesn't
// matter to the user; here it shows the order on integers too.
func userOp(d op.DType) op.Op {
	return op.User("thrice", d, func(dst, a, b []byte) error {
		for i := range dst {
			dst[i] = 3*a[i] + b[i]
		}
		return nil
	})
}

func userBits(a, b uint64) (c uint64) {
	for shift := 0; shift < 64; shift += 8 {
		c |= uint64(3*uint8(a>>shift)+uint8(b>>shift)) << shift
	}
	return c
}

// results are what the operation leaves in the ranks' destinations; nil: a rank has none.
func (c *testCase) results() [][]byte {
	n, size := c.ranks, c.dtype.Size()
	at := []int{0} // where each rank's part begins, in bytes, and where the last one ends
	for _, count := range c.counts() {
		at = append(at, at[len(at)-1]+count*size)
	}
	results := make([][]byte, n)
	for r := range n {
		switch c.kind {
		case op.KindAllReduce:
			if r > 0 { // the same bits everywhere
				results[r] = results[0]
				continue
			}
			results[r] = c.allReduce()
		case op.KindReduce:
			if r == c.root {
				results[r] = c.fold(c.order().Order(r), 0, at[1])
			}
		case op.KindReduceScatter:
			results[r] = c.fold(c.order().Order(r), at[r], at[r+1])
		case op.KindAllGather, op.KindGather:
			if c.kind == op.KindAllGather || r == c.root {
				results[r] = slices.Concat(c.operands...)
			}
		case op.KindScatter:
			results[r] = c.operands[c.root][at[r]:at[r+1]]
		case op.KindBroadcast:
			if r != c.root { // whose operand it is
				results[r] = c.operands[c.root]
			}
		case op.KindAllToAll:
			for _, operand := range c.operands {
				results[r] = append(results[r], operand[at[r]:at[r+1]]...)
			}
		case op.KindScan, op.KindExScan:
			if e := c.order().Prefix(r); e != nil {
				results[r] = c.fold(e, 0, at[1])
			}
		default:
			panic("no reference of " + c.kind.String())
		}
	}
	return results
}

// allReduce is the result of one: the buffer is cut in a block per owner, in multiples of 64 bytes.
func (c *testCase) allReduce() (result []byte) {
	length, owners := len(c.operands[0]), order.Owners(c.algorithm, c.ranks)
	block := ((length+owners-1)/owners + 63) / 64 * 64
	for owner := range owners {
		e := c.order().Order(owner)
		result = append(result, c.fold(e, min(owner*block, length), min((owner+1)*block, length))...)
	}
	return result
}

// fold evaluates an expression over the bytes from … to of the operands.
func (c *testCase) fold(e *order.Expr, from, to int) []byte {
	size := c.dtype.Size()
	result := make([]byte, to-from)
	for at := from; at < to; at += size {
		if c.dtype.Loc() {
			copy(result[at-from:], evaluatePair(c.dtype, c.code, e, c.operands, at))
			continue
		}
		v := evaluate(c.dtype, c.code, e, c.operands, at)
		if c.code == op.CodeAvg {
			v = divide(c.dtype, v, c.ranks)
		}
		store(c.dtype, result[at-from:], v)
	}
	return result
}

func evaluate(d op.DType, code op.Code, e *order.Expr, operands [][]byte, at int) uint64 {
	if len(e.Args) == 0 {
		return load(d, operands[e.Rank][at:])
	}
	v := evaluate(d, code, e.Args[0], operands, at)
	for _, arg := range e.Args[1:] {
		v = combine(d, code, v, evaluate(d, code, arg, operands, at))
	}
	return v
}

func load(d op.DType, b []byte) uint64 {
	switch d.Size() {
	case 1:
		return uint64(b[0])
	case 2:
		return uint64(binary.NativeEndian.Uint16(b))
	case 4:
		return uint64(binary.NativeEndian.Uint32(b))
	}
	return binary.NativeEndian.Uint64(b)
}

func store(d op.DType, b []byte, v uint64) {
	switch d.Size() {
	case 1:
		b[0] = uint8(v)
	case 2:
		binary.NativeEndian.PutUint16(b, uint16(v))
	case 4:
		binary.NativeEndian.PutUint32(b, uint32(v))
	default:
		binary.NativeEndian.PutUint64(b, v)
	}
}
