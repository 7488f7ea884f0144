package reduce

import (
	"unsafe"

	"github.com/polyrail/polyrail/collective/op"
)

// portable is the implementation in Go.
var portable = implementation{
	name: "go",
	binary: binaryTable{
		op.CodeSum: {
			op.Int8: sumBytes, op.Uint8: sumBytes,
			op.Int32: sumInteger[uint32], op.Uint32: sumInteger[uint32],
			op.Int64: sumInteger[uint64], op.Uint64: sumInteger[uint64],
			op.F16: sumFloat16, op.BF16: sumBFloat16,
			op.F32: sumFloat[float32], op.F64: sumFloat[float64],
		},
		op.CodeProd: {
			op.Int8: prodInteger[uint8], op.Uint8: prodInteger[uint8],
			op.Int32: prodInteger[uint32], op.Uint32: prodInteger[uint32],
			op.Int64: prodInteger[uint64], op.Uint64: prodInteger[uint64],
			op.F16: prodFloat16, op.BF16: prodBFloat16,
			op.F32: prodFloat[float32], op.F64: prodFloat[float64],
		},
		op.CodeMin: {
			op.Int8: minInteger[int8], op.Uint8: minInteger[uint8],
			op.Int32: minInteger[int32], op.Uint32: minInteger[uint32],
			op.Int64: minInteger[int64], op.Uint64: minInteger[uint64],
			op.F16: minFloat16, op.BF16: minBFloat16,
			op.F32: minFloat[float32], op.F64: minFloat[float64],
		},
		op.CodeMax: {
			op.Int8: maxInteger[int8], op.Uint8: maxInteger[uint8],
			op.Int32: maxInteger[int32], op.Uint32: maxInteger[uint32],
			op.Int64: maxInteger[int64], op.Uint64: maxInteger[uint64],
			op.F16: maxFloat16, op.BF16: maxBFloat16,
			op.F32: maxFloat[float32], op.F64: maxFloat[float64],
		},
		op.CodeBitAnd: forIntegers(bitAnd),
		op.CodeBitOr:  forIntegers(bitOr),
		op.CodeBitXor: forIntegers(bitXor),
		op.CodeMinLoc: {
			op.Int32Loc: minLocInteger[int32, int32], op.Int64Loc: minLocInteger[int64, int64],
			op.F32Loc: minLocFloat[float32, int32], op.F64Loc: minLocFloat[float64, int64],
		},
		op.CodeMaxLoc: {
			op.Int32Loc: maxLocInteger[int32, int32], op.Int64Loc: maxLocInteger[int64, int64],
			op.F32Loc: maxLocFloat[float32, int32], op.F64Loc: maxLocFloat[float64, int64],
		},
	},
	divide: divideTable{
		op.Int8: divideInteger[int8], op.Uint8: divideInteger[uint8],
		op.Int32: divideInteger[int32], op.Uint32: divideInteger[uint32],
		op.Int64: divideInteger[int64], op.Uint64: divideInteger[uint64],
		op.F16: divideFloat16, op.BF16: divideBFloat16,
		op.F32: divideFloat[float32], op.F64: divideFloat[float64],
	},
}

// forIntegers gives every integer type the same, bitwise, kernel.
func forIntegers(k binaryKernel) (t [dtypes]binaryKernel) {
	for _, d := range op.DTypes {
		if d.Integer() {
			t[d] = k
		}
	}
	return t
}

type integer interface {
	int8 | uint8 | int32 | uint32 | int64 | uint64
}

// elements is p as elements of type T, without what is left over at its end.
func elements[T any](p []byte) []T {
	var z T
	n := len(p) / int(unsafe.Sizeof(z))
	if n == 0 {
		return nil // p may be shorter than the T that a pointer to it would promise
	}
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(p))), n)
}
