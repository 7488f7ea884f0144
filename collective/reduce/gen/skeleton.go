package main

import (
	"github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// vectorBytes is the width of the registers, and what one expression computes.
const vectorBytes = 32

// An emitter writes one kernel's instructions.
type emitter struct {
	*build.Context
	constants map[constant]reg.VecVirtual
}

// emitBinary writes dst[i] = a[i] ∘ b[i] over n ≥ 32 bytes.
func emitBinary(ctx *build.Context, places map[constant]operand.Mem, k binary) {
	ctx.Function(k.Name)
	ctx.Attributes(build.NOSPLIT)
	ctx.SignatureExpr("func(dst, a, b *byte, n int)")
	e := emitter{Context: ctx, constants: map[constant]reg.VecVirtual{}}
	dst := e.pointer("dst")
	a, b := e.pointer("a"), e.pointer("b")
	n := e.pointer("n")
	for _, c := range k.Constants {
		e.broadcast(c, places[c])
	}
	e.loops(k.Unroll, dst, []reg.GPVirtual{a, b}, n, func(src []operand.Mem) reg.VecVirtual {
		return k.Vector(e, src[0], src[1])
	})
}

// emitDivide writes p[i] = p[i] / divisor over n ≥ 32 bytes.
func emitDivide(ctx *build.Context, places map[constant]operand.Mem, k divide) {
	ctx.Function(k.Name)
	ctx.Attributes(build.NOSPLIT)
	ctx.SignatureExpr("func(p *byte, n int, divisor " + k.Divisor + ")")
	e := emitter{Context: ctx, constants: map[constant]reg.VecVirtual{}}
	p, n := e.pointer("p"), e.pointer("n")
	scalar := ctx.Load(ctx.Param("divisor"), ctx.XMM()).(reg.VecVirtual)
	divisor := ctx.YMM()
	if k.Divisor == "float64" {
		ctx.VBROADCASTSD(scalar, divisor)
	} else {
		ctx.VBROADCASTSS(scalar, divisor)
	}
	for _, c := range k.Constants {
		e.broadcast(c, places[c])
	}
	e.loops(k.Unroll, p, nil, n, func(src []operand.Mem) reg.VecVirtual {
		return k.Vector(e, src[0], divisor)
	})
}

// loops applies vector to every 32 bytes of n and stores at dst what it returns. src are
// the operands that are read besides dst's own memory; without any, dst is the operand.
//
// What is left after the last whole vector is covered by one more over the last 32
// bytes, which overlaps it. That one is computed before the loops and stored after them:
// dst may be an operand, and an element combined twice would be wrong.
func (e emitter) loops(unroll int, dst reg.GPVirtual, src []reg.GPVirtual, n reg.GPVirtual,
	vector func([]operand.Mem) reg.VecVirtual) {
	at := func(p reg.GPVirtual, disp int) operand.Mem { return operand.Mem{Base: p, Disp: disp} }
	advancing := append([]reg.GPVirtual{dst}, src...)
	if src == nil {
		src = advancing
	}
	operands := func(place func(p reg.GPVirtual) operand.Mem) (mem []operand.Mem) {
		for _, p := range src {
			mem = append(mem, place(p))
		}
		return mem
	}

	e.Comment("The last 32 bytes, stored at the end.")
	last := vector(operands(func(p reg.GPVirtual) operand.Mem {
		return operand.Mem{Base: p, Index: n, Scale: 1, Disp: -vectorBytes}
	}))
	lastDst := e.GP64()
	e.LEAQ(operand.Mem{Base: dst, Index: n, Scale: 1, Disp: -vectorBytes}, lastDst)

	loop := func(label string, vectors int, next string) {
		step := operand.I32(vectors * vectorBytes)
		e.CMPQ(n, step)
		e.JB(operand.LabelRef(next))
		e.Label(label)
		for i := range vectors {
			disp := i * vectorBytes
			r := vector(operands(func(p reg.GPVirtual) operand.Mem { return at(p, disp) }))
			e.VMOVDQU(r, at(dst, disp))
		}
		for _, p := range advancing {
			e.ADDQ(step, p)
		}
		e.SUBQ(step, n)
		e.CMPQ(n, step)
		e.JAE(operand.LabelRef(label))
		e.Label(next)
	}
	loop("many", unroll, "few")
	loop("one", 1, "rest")
	e.VMOVDQU(last, operand.Mem{Base: lastDst})
	e.VZEROUPPER()
	e.RET()
}

// pointer loads a 64-bit parameter.
func (e emitter) pointer(name string) reg.GPVirtual {
	return e.Load(e.Param(name), e.GP64()).(reg.GPVirtual)
}
