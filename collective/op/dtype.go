// Package op holds the vocabulary that every layer shares: element types,
// operators, ranks, kinds of collective and the names of algorithms.
//
// It owns names and their wire numbers and nothing that computes: arithmetic is
// in collective/reduce, schedules are in collective/schedule.
package op

import (
	"fmt"
	"reflect"
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
	Int32Loc // pairs of a value and its index: Loc
	Int64Loc
	F32Loc
	F64Loc
	dtypeEnd
)

// DTypes lists every element type, in wire order.
var DTypes = []DType{Int8, Uint8, Int32, Uint32, Int64, Uint64, F16, BF16, F32, F64,
	Int32Loc, Int64Loc, F32Loc, F64Loc}

var dtypeNames = [dtypeEnd]string{"invalid", "int8", "uint8", "int32", "uint32", "int64", "uint64",
	"float16", "bfloat16", "float32", "float64", "int32loc", "int64loc", "float32loc", "float64loc"}
var dtypeSizes = [dtypeEnd]int{0, 1, 1, 4, 4, 8, 8, 2, 2, 4, 8, 8, 16, 8, 16}

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

// Loc reports whether d is a type of pairs, on which MinLoc and MaxLoc are defined.
func (d DType) Loc() bool { return d >= Int32Loc && d < dtypeEnd }

// Value is the type of a pair's value; d itself where elements are no pairs.
func (d DType) Value() DType {
	switch d {
	case Int32Loc:
		return Int32
	case Int64Loc:
		return Int64
	case F32Loc:
		return F32
	case F64Loc:
		return F64
	}
	return d
}

// Align is what the address of an element is a multiple of, as Go allocates it.
func (d DType) Align() int { return d.Value().Size() }

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

// Loc is a value and where it was found, such as the rank that has it. In those that are
// elements both are equally wide, so no padding stands between or after them.
type Loc[V int32 | int64 | float32 | float64, I int32 | int64] struct {
	Value V
	Index I
}

// Element is the set of Go types that a buffer can hold.
type Element interface {
	~int8 | ~uint8 | ~int32 | ~uint32 | ~int64 | ~uint64 | ~float32 | ~float64 | Float16 | BFloat16 |
		Loc[int32, int32] | Loc[int64, int64] | Loc[float32, int32] | Loc[float64, int64]
}

// DTypeOf is the element type of T.
func DTypeOf[T Element]() DType {
	var z T
	switch any(z).(type) {
	case Float16:
		return F16
	case BFloat16:
		return BF16
	case Loc[int32, int32]:
		return Int32Loc
	case Loc[int64, int64]:
		return Int64Loc
	case Loc[float32, int32]:
		return F32Loc
	case Loc[float64, int64]:
		return F64Loc
	}
	// Named types have their base's: type Celsius float32.
	return dtypeKinds[reflect.TypeFor[T]().Kind()]
}

var dtypeKinds = [...]DType{
	reflect.Int8: Int8, reflect.Uint8: Uint8, reflect.Int32: Int32, reflect.Uint32: Uint32,
	reflect.Int64: Int64, reflect.Uint64: Uint64, reflect.Float32: F32, reflect.Float64: F64,
}

// Bytes is the memory of s, without a copy.
func Bytes[T Element](s []T) []byte {
	if len(s) == 0 {
		return nil
	}
	var z T
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(s))), len(s)*int(unsafe.Sizeof(z)))
}
