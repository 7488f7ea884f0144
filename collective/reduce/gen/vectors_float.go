package main

import (
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// unordered is the predicate of VCMPPS and VCMPPD that holds where either operand is a NaN.
const unordered = operand.U8(3)

// oddWords has VPBLENDW take the upper word of each 32 bits from its first operand.
const oddWords = operand.U8(0b10101010)

// nearestEven is the rounding of VCVTPS2PH.
const nearestEven = operand.U8(0)

// oneNaN32 is r with package reduce's one NaN wherever left or right is a NaN.
func (e emitter) oneNaN32(r, left, right reg.VecVirtual) reg.VecVirtual {
	out := e.YMM()
	e.VBLENDVPS(e.do((*asm).VCMPPS, unordered, right, left), e.the(nan32), r, out)
	return out
}

// oneNaN64 is r with package reduce's one NaN wherever left or right is a NaN.
func (e emitter) oneNaN64(r, left, right reg.VecVirtual) reg.VecVirtual {
	return e.choose64(e.do((*asm).VCMPPD, unordered, right, left), e.the(nan64), r)
}

// float32s is an arithmetic operator on float32.
func float32s(i instruction) vector {
	return func(e emitter, a, b operand.Mem) reg.VecVirtual {
		r := e.do(i, b, e.load(a))
		return e.oneNaN32(r, r, r)
	}
}

// float64s is an arithmetic operator on float64.
func float64s(i instruction) vector {
	return func(e emitter, a, b operand.Mem) reg.VecVirtual {
		r := e.do(i, b, e.load(a))
		return e.oneNaN64(r, r, r)
	}
}

// bothWays works around VMINPS and its kin, which return the right operand where the two
// are equal or one is a NaN: evaluated both ways, the results differ in nothing but that,
// and for a pair of zeros of different signs the right one is their union (−0, the
// lesser) or their intersection (+0).
func (e emitter) bothWays(x extreme, i instruction, left, right reg.VecVirtual) reg.VecVirtual {
	return e.do(x.of(or, and), e.do(i, left, right), e.do(i, right, left))
}

func extremeF32(x extreme) vector {
	return func(e emitter, a, b operand.Mem) reg.VecVirtual {
		left, right := e.load(a), e.load(b)
		return e.oneNaN32(e.bothWays(x, x.of((*asm).VMINPS, (*asm).VMAXPS), left, right), left, right)
	}
}

func extremeF64(x extreme) vector {
	return func(e emitter, a, b operand.Mem) reg.VecVirtual {
		left, right := e.load(a), e.load(b)
		return e.oneNaN64(e.bothWays(x, x.of((*asm).VMINPD, (*asm).VMAXPD), left, right), left, right)
	}
}

// extreme16 needs no float32. As unsigned words both 16-bit types are in the order of their
// magnitudes, and the negative ones are above the others: the lesser word is the lesser number
// where neither is negative, the greater one where either is. −0 is below +0.
func extreme16(x extreme, inf, nan constant) vector {
	return func(e emitter, a, b operand.Mem) reg.VecVirtual {
		left, right := e.load(a), e.load(b)
		negative := e.do((*asm).VPSRAW, operand.U8(15), e.do(or, right, left))
		plain := e.do(x.of((*asm).VPMINUW, (*asm).VPMAXUW), right, left)
		mirrored := e.do(x.of((*asm).VPMAXUW, (*asm).VPMINUW), right, left)
		kept := e.choose8(negative, mirrored, plain)
		larger := e.do((*asm).VPMAXSW, e.magnitude16(right), e.magnitude16(left))
		return e.choose8(e.do((*asm).VPCMPGTW, e.the(inf), larger), e.the(nan), kept)
	}
}

func (e emitter) magnitude16(v reg.VecVirtual) reg.VecVirtual { return e.do(and, e.the(magnitude), v) }

// oneNaN16 is r with package reduce's one NaN wherever key is a NaN of its type. Where key is what
// was cut off a float32, that one was quiet, as every result of arithmetic is: the bit that
// says so is among those that are left.
func (e emitter) oneNaN16(r, key reg.VecVirtual, inf, nan constant) reg.VecVirtual {
	return e.choose8(e.do((*asm).VPCMPGTW, e.the(inf), e.magnitude16(key)), e.the(nan), r)
}

// float16 is an arithmetic operator on float16, in float32.
func float16(i instruction) vector {
	return func(e emitter, a, b operand.Mem) reg.VecVirtual {
		half := func(disp int) reg.VecVirtual {
			return e.do(i, e.do((*asm).VCVTPH2PS, b.Offset(disp)), e.do((*asm).VCVTPH2PS, a.Offset(disp)))
		}
		return e.narrowFloat16(half(0), half(vectorBytes/2))
	}
}

// narrowFloat16 rounds 16 float32, results of arithmetic, to float16.
func (e emitter) narrowFloat16(low, high reg.VecVirtual) reg.VecVirtual {
	r, upper, out := e.YMM(), e.XMM(), e.YMM()
	e.VCVTPS2PH(nearestEven, low, r.AsX())
	e.VCVTPS2PH(nearestEven, high, upper)
	e.VINSERTI128(operand.U8(1), upper, r, out)
	return e.oneNaN16(out, out, infF16, nanF16)
}

// bfloat16 is an arithmetic operator on bfloat16, in float32: once on the even elements, once on
// the odd ones.
func bfloat16(i instruction) vector {
	return func(e emitter, a, b operand.Mem) reg.VecVirtual {
		left, right := e.load(a), e.load(b)
		even := e.do(i, e.evenBFloat16(right), e.evenBFloat16(left))
		odd := e.do(i, e.oddBFloat16(right), e.oddBFloat16(left))
		return e.narrowBFloat16(even, odd)
	}
}

func (e emitter) evenBFloat16(v reg.VecVirtual) reg.VecVirtual {
	return e.do((*asm).VPSLLD, operand.U8(16), v)
}

func (e emitter) oddBFloat16(v reg.VecVirtual) reg.VecVirtual {
	return e.do(and, e.the(highHalves), v)
}

// narrowBFloat16 rounds 16 float32, results of arithmetic, to nearest even: all their upper words
// at once, which stay, by their lower ones. A word is rounded up from half of its last place on, or
// beyond half where it is even: 1 is taken off the lower one there, but not off 0, and its
// uppermost bit then says it.
func (e emitter) narrowBFloat16(even, odd reg.VecVirtual) reg.VecVirtual {
	upper, lower := e.YMM(), e.YMM()
	e.VPBLENDW(oddWords, odd, e.do((*asm).VPSRLD, operand.U8(16), even), upper)
	e.VPBLENDW(oddWords, e.do((*asm).VPSLLD, operand.U8(16), odd), even, lower)
	isEven := e.do(fixed((*asm).VPANDN), e.the(one16), upper) // not upper, and one
	up := e.do((*asm).VPSRLW, operand.U8(15), e.do((*asm).VPSUBUSW, isEven, lower))
	return e.oneNaN16(e.do((*asm).VPADDW, up, upper), upper, infBF16, nanBF16)
}

func float32Quotient(e emitter, p operand.Mem, divisor reg.VecVirtual) reg.VecVirtual {
	r := e.do((*asm).VDIVPS, divisor, e.load(p))
	return e.oneNaN32(r, r, r)
}

func float64Quotient(e emitter, p operand.Mem, divisor reg.VecVirtual) reg.VecVirtual {
	r := e.do((*asm).VDIVPD, divisor, e.load(p))
	return e.oneNaN64(r, r, r)
}

func float16Quotient(e emitter, p operand.Mem, divisor reg.VecVirtual) reg.VecVirtual {
	half := func(disp int) reg.VecVirtual {
		return e.do((*asm).VDIVPS, divisor, e.do((*asm).VCVTPH2PS, p.Offset(disp)))
	}
	return e.narrowFloat16(half(0), half(vectorBytes/2))
}

func bfloat16Quotient(e emitter, p operand.Mem, divisor reg.VecVirtual) reg.VecVirtual {
	v := e.load(p)
	even := e.do((*asm).VDIVPS, divisor, e.evenBFloat16(v))
	odd := e.do((*asm).VDIVPS, divisor, e.oddBFloat16(v))
	return e.narrowBFloat16(even, odd)
}
