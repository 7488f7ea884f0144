package main

import (
	"github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// This file holds the computations of 32 bytes on integers; vectors_float.go has those on floats.

type asm = build.Context

// An instruction is one of avo's, with its operands in Go's order: the destination last,
// the left operand before it.
type instruction func(c *asm, ops ...operand.Op)

// fixed adapts an instruction of which avo knows only one form.
func fixed(f func(c *asm, right, left, dst operand.Op)) instruction {
	return func(c *asm, ops ...operand.Op) { f(c, ops[0], ops[1], ops[2]) }
}

var (
	and = fixed((*asm).VPAND)
	or  = fixed((*asm).VPOR)
	xor = fixed((*asm).VPXOR)
)

// do emits i into a new register.
func (e emitter) do(i instruction, ops ...operand.Op) reg.VecVirtual {
	r := e.YMM()
	i(e.Context, append(ops, r)...)
	return r
}

func (e emitter) load(m operand.Mem) reg.VecVirtual {
	r := e.YMM()
	e.VMOVDQU(m, r)
	return r
}

// choose64 takes, of each 64 bits, those of yes where the upper bit of mask is set, else those of no.
func (e emitter) choose64(mask, yes, no operand.Op) reg.VecVirtual {
	r := e.YMM()
	e.VBLENDVPD(mask, yes, no, r)
	return r
}

// choose8 takes, of each byte, that of yes where the upper bit of mask is set, else that of no.
func (e emitter) choose8(mask, yes, no operand.Op) reg.VecVirtual {
	r := e.YMM()
	e.VPBLENDVB(mask, yes, no, r)
	return r
}

type vector = func(e emitter, a, b operand.Mem) reg.VecVirtual

// plain is an operator that is one instruction.
func plain(i instruction) vector {
	return func(e emitter, a, b operand.Mem) reg.VecVirtual { return e.do(i, b, e.load(a)) }
}

// prod8 multiplies words twice: once for the even bytes, once for the odd ones, which
// stay in the upper half when one factor does.
func prod8(e emitter, a, b operand.Mem) reg.VecVirtual {
	left, right := e.load(a), e.load(b)
	even := e.do(and, e.the(lowBytes), e.do((*asm).VPMULLW, right, left))
	oddRight := e.do(fixed((*asm).VPANDN), right, e.the(lowBytes)) // right and not lowBytes
	odd := e.do((*asm).VPMULLW, oddRight, e.do((*asm).VPSRLW, operand.U8(8), left))
	return e.do(or, odd, even)
}

// prod64 is low·low + (low·high + high·low)·2³², as there is no instruction for it.
func prod64(e emitter, a, b operand.Mem) reg.VecVirtual {
	left, right := e.load(a), e.load(b)
	swapped := e.do((*asm).VPSHUFD, operand.U8(0b10_11_00_01), right)
	cross := e.do((*asm).VPMULLD, swapped, left) // low·high and high·low, side by side
	sum := e.do((*asm).VPADDD, e.do((*asm).VPSLLQ, operand.U8(32), cross), cross)
	high := e.do((*asm).VPSLLQ, operand.U8(32), e.do((*asm).VPSRLQ, operand.U8(32), sum))
	return e.do((*asm).VPADDQ, high, e.do((*asm).VPMULUDQ, right, left))
}

// An extreme says which of two elements an operator keeps.
type extreme int

const (
	lesser extreme = iota
	greater
)

func (x extreme) of(min, max instruction) instruction {
	if x == lesser {
		return min
	}
	return max
}

// extremeOf64 keeps an element of left or right by whether its key is greater in left.
func (e emitter) extremeOf64(x extreme, leftKey, rightKey, left, right reg.VecVirtual) reg.VecVirtual {
	leftGreater := e.do((*asm).VPCMPGTQ, rightKey, leftKey)
	if x == lesser {
		return e.choose64(leftGreater, right, left)
	}
	return e.choose64(leftGreater, left, right)
}

func extremeInt64(x extreme) vector {
	return func(e emitter, a, b operand.Mem) reg.VecVirtual {
		left, right := e.load(a), e.load(b)
		return e.extremeOf64(x, left, right, left, right)
	}
}

// extremeUint64 compares with the upper bit inverted, which orders unsigned numbers as signed ones.
func extremeUint64(x extreme) vector {
	return func(e emitter, a, b operand.Mem) reg.VecVirtual {
		left, right := e.load(a), e.load(b)
		return e.extremeOf64(x, e.do(xor, e.the(sign64), left), e.do(xor, e.the(sign64), right), left, right)
	}
}
