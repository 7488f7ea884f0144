package main

import (
	"github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// A constant is a value repeated over a whole register, kept there during the loops.
type constant struct {
	name string
	bits operand.Constant // its size is the distance at which it is repeated
}

var (
	nan64   = constant{"nan64", operand.U64(0x7ff8000000000000)}
	nan32   = constant{"nan32", operand.U32(0x7fc00000)}
	nanF16  = constant{"nanF16", operand.U16(0x7e00)}
	nanBF16 = constant{"nanBF16", operand.U16(0x7fc0)}
	infF16  = constant{"infF16", operand.U16(0x7c00)}
	infBF16 = constant{"infBF16", operand.U16(0x7f80)}

	sign64     = constant{"sign64", operand.U64(1 << 63)}
	magnitude  = constant{"magnitude", operand.U16(0x7fff)}
	lowBytes   = constant{"lowBytes", operand.U16(0x00ff)}
	highHalves = constant{"highHalves", operand.U32(0xffff0000)}
	one16      = constant{"one16", operand.U16(1)}
)

var constants = []constant{nan64, nan32, nanF16, nanBF16, infF16, infBF16,
	sign64, magnitude, lowBytes, highHalves, one16}

// defineConstants writes the data section and says where each constant is.
func defineConstants(ctx *build.Context) map[constant]operand.Mem {
	places := make(map[constant]operand.Mem, len(constants))
	for _, c := range constants {
		places[c] = ctx.ConstData(c.name, c.bits)
	}
	return places
}

// broadcast loads c into a register for the length of the kernel.
func (e emitter) broadcast(c constant, place operand.Mem) {
	r := e.YMM()
	switch c.bits.Bytes() {
	case 2:
		e.VPBROADCASTW(place, r)
	case 4:
		e.VPBROADCASTD(place, r)
	default:
		e.VPBROADCASTQ(place, r)
	}
	e.constants[c] = r
}

// the returns the register that holds c.
func (e emitter) the(c constant) reg.VecVirtual {
	r, ok := e.constants[c]
	if !ok {
		panic("a kernel uses the constant " + c.name + " and does not list it")
	}
	return r
}
