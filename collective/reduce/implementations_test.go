package reduce

import (
	"math/rand/v2"

	"github.com/polyrail/polyrail/collective/op"
)

// implementations lists what can run on this processor in this build.
func implementations() []implementation {
	if chosen.name == portable.name {
		return []implementation{portable}
	}
	return []implementation{portable, chosen}
}

// forEachKernel calls f for every operator with a kernel of its own on each element type that it is
// defined on.
func forEachKernel(f func(o op.Op, d op.DType)) {
	for _, o := range op.BuiltIn {
		for _, d := range op.DTypes {
			if o.Code() != op.CodeAvg && o.Check(d) == nil {
				f(o, d)
			}
		}
	}
}

// specials are the bits of elements at the edges of their type.
func specials(d op.DType) []uint64 {
	switch d {
	case op.F16:
		return []uint64{0, 0x8000, 1, 0x8001, 2, 0x03ff, 0x83ff, 0x0400, 0x8400, 0x1400, 0x3c00, 0xbc00, 0x3c01, 0x3bff,
			0x4000, 0x4248, 0x6800, 0x6801, 0x77ff, 0x7800, 0x7bff, 0xfbff, 0x7bfe, 0x7c00, 0xfc00,
			0x7c01, 0xfc01, 0x7d55, 0x7e00, 0xfe00, 0x7fff, 0xffff}
	case op.BF16:
		return []uint64{0, 0x8000, 1, 0x8001, 2, 0x007f, 0x807f, 0x0080, 0x8080, 0x3380, 0x3f80, 0xbf80, 0x3f81, 0x3f7f,
			0x4000, 0x4049, 0x4380, 0x4381, 0x7eff, 0x7f00, 0x7f7f, 0xff7f, 0x7f7e, 0x7f80, 0xff80,
			0x7f81, 0xff81, 0x7faa, 0x7fc0, 0xffc0, 0x7fff, 0xffff}
	case op.F32:
		return []uint64{0, 0x80000000, 1, 0x80000001, 0x007fffff, 0x807fffff, 0x00800000, 0x80800000,
			0x33800000, 0x3f800000, 0xbf800000, 0x3f800001, 0x40490fdb, 0x4b800000, 0x4b800001, 0x7effffff, 0x7f000000,
			0x7f7fffff, 0xff7fffff, 0x7f800000, 0xff800000,
			0x7f800001, 0xff800001, 0x7fa00000, 0x7fc00000, 0xffc00000, 0x7fc12345, 0xffffffff}
	case op.F64:
		return []uint64{0, 1 << 63, 1, 1<<63 | 1, 0x000fffffffffffff, 0x800fffffffffffff, 0x0010000000000000,
			0x3ca0000000000000, 0x3ff0000000000000, 0xbff0000000000000, 0x3ff0000000000001, 0x400921fb54442d18,
			0x7fdfffffffffffff, 0x7fe0000000000000, 0x7fefffffffffffff, 0xffefffffffffffff, 0x7ff0000000000000, 0xfff0000000000000,
			0x7ff0000000000001, 0xfff0000000000001, 0x7ff8000000000000, 0xfff8000000000000, 0x7ff8000012345678, 0xffffffffffffffff}
	}
	top := uint64(1) << (d.Size()*8 - 1)
	return []uint64{0, 1, 2, 3, 15, 16, 85, 100, top - 2, top - 1, top, top + 1, 2*top - 2, 2*top - 1}
}

// fill writes random elements, one in four of them special.
func fill(rng *rand.Rand, d op.DType, p []byte) {
	if d.Loc() {
		fillLocs(rng, d, p)
		return
	}
	edge := specials(d)
	for i := 0; i+d.Size() <= len(p); i += d.Size() {
		bits := rng.Uint64()
		if rng.IntN(4) == 0 {
			bits = edge[rng.IntN(len(edge))]
		}
		store(d, p[i:], bits)
	}
}

// fillLocs writes random pairs, with few different values and indexes, so that many are equal.
func fillLocs(rng *rand.Rand, d op.DType, p []byte) {
	v := d.Value()
	values, indexes := specials(v), specials(indexType(d))
	for i := 0; i+d.Size() <= len(p); i += d.Size() {
		store(v, p[i:], values[rng.IntN(len(values))])
		store(v, p[i+v.Size():], indexes[rng.IntN(len(indexes))])
	}
}
