// Package op holds the vocabulary that every layer shares: element types,
// operators, ranks, kinds of collective and the names of algorithms.
//
// It owns names and their wire numbers and nothing that computes: arithmetic is
// in collective/reduce, schedules are in collective/schedule.
package op

import (
	"fmt"
	"unsafe"
)

// DType is the type of one element. Its numbers are part of the wire format.
type DType uint8

// The element types. Zero is not a type, so that a header nobody filled in is invalid.
const (
	Int8 DType = 1 + iota
	Uint8
	Int32
	Uint32
	Int64
	Uint64
	F16
	BF16
	F32
	F64
	dtypeEnd
)

// DTypes lists every element type, in wire order.
var DTypes = []DType{Int8, Uint8, Int32, Uint32, Int64, Uint64, F16, BF16, F32, F64}

var dtypeNames = [dtypeEnd]string{"invalid", "int8", "uint8", "int32", "uint32", "int64", "uint64",
	"float16", "bfloat16", "float32", "float64"}
var dtypeSizes = [dtypeEnd]int{0, 1, 1, 4, 4, 8, 8, 2, 2, 4, 8}

// Valid reports whether d names an element type.
func (d DType) Valid() bool { return d > 0 && d < dtypeEnd }

// Size is the size of one element in bytes; 0 for an invalid type.
func (d DType) Size() int {
	if !d.Valid() {
		return 0
	}
	return dtypeSizes[d]
}

// Integer reports whether d is an integer type, on which the bitwise operators are defined.
func (d DType) Integer() bool { return d >= Int8 && d <= Uint64 }

func (d DType) String() string {
	if !d.Valid() {
		return fmt.Sprintf("dtype(%d)", uint8(d))
	}
	return dtypeNames[d]
}

// ParseDType is the inverse of String.
func ParseDType(s string) (DType, error) {
	for _, d := range DTypes {
		if dtypeNames[d] == s {
			return d, nil
		}
	}
	return 0, fmt.Errorf("unknown element type %q (one of %v)", s, DTypes)
}

// Element is the set of Go types that a buffer can hold.
type Element interface {
	~int8 | ~uint8 | ~int32 | ~uint32 | ~int64 | ~uint64 | ~float32 | ~float64 | Float16 | BFloat16
}

// DTypeOf is the element type of T.
func DTypeOf[T Element]() DType {
	var z T
	switch any(z).(type) {
	case Float16:
		return F16
	case BFloat16:
		return BF16
	}
	// Named types (type Celsius float32) have their base's type: told apart by size and arithmetic.
	size := unsafe.Sizeof(z)
	one, minusOne := T(1), T(0)
	minusOne--
	isFloat := one/T(2) != 0
	isSigned := minusOne < T(0)
	switch {
	case isFloat && size == 4:
		return F32
	case isFloat:
		return F64
	case size == 1 && isSigned:
		return Int8
	case size == 1:
		return Uint8
	case size == 4 && isSigned:
		return Int32
	case size == 4:
		return Uint32
	case isSigned:
		return Int64
	default:
		return Uint64
	}
}

// Bytes is the memory of s, without a copy.
func Bytes[T Element](s []T) []byte {
	if len(s) == 0 {
		return nil
	}
	var z T
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(s))), len(s)*int(unsafe.Sizeof(z)))
}
