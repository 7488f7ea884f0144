package main

import (
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// binary is the kernel of one operator on the element types that share its instructions.
type binary struct {
	Name      string
	Code      string   // op.Code…
	DTypes    []string // op.…
	Unroll    int      // vectors per turn of the main loop
	Constants []constant
	// Vector emits the computation of 32 bytes from those at a and b.
	Vector func(e emitter, a, b operand.Mem) reg.VecVirtual
}

// divide is the kernel that divides one element type in place.
type divide struct {
	Name      string
	DType     string
	Divisor   string // the Go type of the parameter
	Unroll    int
	Constants []constant
	// Vector emits the computation of 32 bytes from those at p.
	Vector func(e emitter, p operand.Mem, divisor reg.VecVirtual) reg.VecVirtual
}

var (
	each8  = []string{"Int8", "Uint8"}
	each32 = []string{"Int32", "Uint32"}
	each64 = []string{"Int64", "Uint64"}
	each   = []string{"Int8", "Uint8", "Int32", "Uint32", "Int64", "Uint64"}

	withF32  = []constant{nan32}
	withF64  = []constant{nan64}
	withF16  = []constant{magnitude, infF16, nanF16}
	withBF16 = []constant{magnitude, infBF16, nanBF16}
	toBF16   = []constant{magnitude, infBF16, nanBF16, highHalves, one16}
)

// binaries are grouped by operator.
var binaries = []binary{
	{"sum8", "Sum", each8, 4, nil, plain((*asm).VPADDB)},
	{"sum32", "Sum", each32, 4, nil, plain((*asm).VPADDD)},
	{"sum64", "Sum", each64, 4, nil, plain((*asm).VPADDQ)},
	{"sumF16", "Sum", []string{"F16"}, 4, withF16, float16((*asm).VADDPS)},
	{"sumBF16", "Sum", []string{"BF16"}, 4, toBF16, bfloat16((*asm).VADDPS)},
	{"sumF32", "Sum", []string{"F32"}, 4, withF32, float32s((*asm).VADDPS)},
	{"sumF64", "Sum", []string{"F64"}, 4, withF64, float64s((*asm).VADDPD)},

	{"prod8", "Prod", each8, 2, []constant{lowBytes}, prod8},
	{"prod32", "Prod", each32, 4, nil, plain((*asm).VPMULLD)},
	{"prod64", "Prod", each64, 2, nil, prod64},
	{"prodF16", "Prod", []string{"F16"}, 4, withF16, float16((*asm).VMULPS)},
	{"prodBF16", "Prod", []string{"BF16"}, 4, toBF16, bfloat16((*asm).VMULPS)},
	{"prodF32", "Prod", []string{"F32"}, 4, withF32, float32s((*asm).VMULPS)},
	{"prodF64", "Prod", []string{"F64"}, 4, withF64, float64s((*asm).VMULPD)},

	{"minInt8", "Min", []string{"Int8"}, 4, nil, plain((*asm).VPMINSB)},
	{"minUint8", "Min", []string{"Uint8"}, 4, nil, plain((*asm).VPMINUB)},
	{"minInt32", "Min", []string{"Int32"}, 4, nil, plain((*asm).VPMINSD)},
	{"minUint32", "Min", []string{"Uint32"}, 4, nil, plain((*asm).VPMINUD)},
	{"minInt64", "Min", []string{"Int64"}, 4, nil, extremeInt64(lesser)},
	{"minUint64", "Min", []string{"Uint64"}, 4, []constant{sign64}, extremeUint64(lesser)},
	{"minF16", "Min", []string{"F16"}, 4, withF16, extreme16(lesser, infF16, nanF16)},
	{"minBF16", "Min", []string{"BF16"}, 4, withBF16, extreme16(lesser, infBF16, nanBF16)},
	{"minF32", "Min", []string{"F32"}, 4, withF32, extremeF32(lesser)},
	{"minF64", "Min", []string{"F64"}, 4, withF64, extremeF64(lesser)},

	{"maxInt8", "Max", []string{"Int8"}, 4, nil, plain((*asm).VPMAXSB)},
	{"maxUint8", "Max", []string{"Uint8"}, 4, nil, plain((*asm).VPMAXUB)},
	{"maxInt32", "Max", []string{"Int32"}, 4, nil, plain((*asm).VPMAXSD)},
	{"maxUint32", "Max", []string{"Uint32"}, 4, nil, plain((*asm).VPMAXUD)},
	{"maxInt64", "Max", []string{"Int64"}, 4, nil, extremeInt64(greater)},
	{"maxUint64", "Max", []string{"Uint64"}, 4, []constant{sign64}, extremeUint64(greater)},
	{"maxF16", "Max", []string{"F16"}, 4, withF16, extreme16(greater, infF16, nanF16)},
	{"maxBF16", "Max", []string{"BF16"}, 4, withBF16, extreme16(greater, infBF16, nanBF16)},
	{"maxF32", "Max", []string{"F32"}, 4, withF32, extremeF32(greater)},
	{"maxF64", "Max", []string{"F64"}, 4, withF64, extremeF64(greater)},

	{"bitAndAVX2", "BitAnd", each, 4, nil, plain(and)},
	{"bitOrAVX2", "BitOr", each, 4, nil, plain(or)},
	{"bitXorAVX2", "BitXor", each, 4, nil, plain(xor)},
}

var divides = []divide{
	{"divideF16", "F16", "float32", 4, withF16, float16Quotient},
	{"divideBF16", "BF16", "float32", 4, toBF16, bfloat16Quotient},
	{"divideF32", "F32", "float32", 2, withF32, float32Quotient},
	{"divideF64", "F64", "float64", 2, withF64, float64Quotient},
}
