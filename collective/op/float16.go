package op

import "math"

// Float16 is an IEEE 754 binary16 number by its bits.
type Float16 uint16

// BFloat16 is a bfloat16 number (the upper half of a float32) by its bits.
type BFloat16 uint16

// Float32 widens b exactly.
func (b BFloat16) Float32() float32 { return math.Float32frombits(uint32(b) << 16) }

// ToBFloat16 rounds to nearest even. A NaN stays a NaN (quiet, upper payload bits and sign kept).
func ToBFloat16(f float32) BFloat16 {
	u := math.Float32bits(f)
	if u&0x7fffffff > 0x7f800000 {
		return BFloat16(u>>16 | 0x40)
	}
	return BFloat16((u + 0x7fff + u>>16&1) >> 16)
}

// Float32 widens h exactly; a NaN becomes quiet, as VCVTPH2PS does.
func (h Float16) Float32() float32 {
	sign := uint32(h>>15) << 31
	exp := uint32(h >> 10 & 0x1f)
	frac := uint32(h & 0x3ff)
	switch {
	case exp == 0x1f && frac != 0:
		return math.Float32frombits(sign | 0x7fc00000 | frac<<13)
	case exp == 0x1f:
		return math.Float32frombits(sign | 0x7f800000)
	case exp == 0 && frac == 0:
		return math.Float32frombits(sign)
	case exp == 0: // subnormal: frac × 2⁻²⁴, exact in float32
		f := float32(frac) * (1.0 / (1 << 24))
		return math.Float32frombits(sign | math.Float32bits(f))
	}
	return math.Float32frombits(sign | (exp+112)<<23 | frac<<13)
}

// ToFloat16 rounds to nearest even; what is too large becomes ±Inf, a NaN stays
// a NaN (quiet, upper payload bits and sign kept), as VCVTPS2PH does.
func ToFloat16(f float32) Float16 {
	u := math.Float32bits(f)
	sign := Float16(u >> 16 & 0x8000)
	abs := u & 0x7fffffff
	switch {
	case abs > 0x7f800000:
		return sign | 0x7e00 | Float16(abs>>13&0x3ff)
	case abs >= 0x47800000: // ≥ 65536
		return sign | 0x7c00
	case abs < 0x38800000: // below 2⁻¹⁴: subnormal or zero; float32 addition does the rounding
		magic := math.Float32frombits(0x3f000000) // 0.5: its last place is 2⁻²⁴
		r := math.Float32bits(math.Float32frombits(abs)+magic) - 0x3f000000
		return sign | Float16(r)
	}
	r := abs - 112<<23
	r += 0xfff + r>>13&1
	return sign | Float16(r>>13)
}
