package reduce

import "github.com/polyrail/polyrail/collective/op"

// The kernels of the two 16-bit types: widen both operands, combine in float32, round once.

func sumFloat16(dst, a, b []byte) {
	d, av, bv := elements[uint16](dst), elements[uint16](a), elements[uint16](b)
	av, bv = av[:len(d)], bv[:len(d)]
	for i := range d {
		x, y := op.Float16(av[i]).Float32(), op.Float16(bv[i]).Float32()
		d[i] = uint16(op.ToFloat16(one(x + y)))
	}
}

func prodFloat16(dst, a, b []byte) {
	d, av, bv := elements[uint16](dst), elements[uint16](a), elements[uint16](b)
	av, bv = av[:len(d)], bv[:len(d)]
	for i := range d {
		x, y := op.Float16(av[i]).Float32(), op.Float16(bv[i]).Float32()
		d[i] = uint16(op.ToFloat16(one(x * y)))
	}
}

func minFloat16(dst, a, b []byte) {
	d, av, bv := elements[uint16](dst), elements[uint16](a), elements[uint16](b)
	av, bv = av[:len(d)], bv[:len(d)]
	for i := range d {
		x, y := op.Float16(av[i]).Float32(), op.Float16(bv[i]).Float32()
		d[i] = uint16(op.ToFloat16(one(min(x, y))))
	}
}

func maxFloat16(dst, a, b []byte) {
	d, av, bv := elements[uint16](dst), elements[uint16](a), elements[uint16](b)
	av, bv = av[:len(d)], bv[:len(d)]
	for i := range d {
		x, y := op.Float16(av[i]).Float32(), op.Float16(bv[i]).Float32()
		d[i] = uint16(op.ToFloat16(one(max(x, y))))
	}
}

func divideFloat16(p []byte, n int) {
	v, divisor := elements[uint16](p), float32(n)
	for i := range v {
		v[i] = uint16(op.ToFloat16(one(op.Float16(v[i]).Float32() / divisor)))
	}
}

func sumBFloat16(dst, a, b []byte) {
	d, av, bv := elements[uint16](dst), elements[uint16](a), elements[uint16](b)
	av, bv = av[:len(d)], bv[:len(d)]
	for i := range d {
		x, y := op.BFloat16(av[i]).Float32(), op.BFloat16(bv[i]).Float32()
		d[i] = uint16(op.ToBFloat16(one(x + y)))
	}
}

func prodBFloat16(dst, a, b []byte) {
	d, av, bv := elements[uint16](dst), elements[uint16](a), elements[uint16](b)
	av, bv = av[:len(d)], bv[:len(d)]
	for i := range d {
		x, y := op.BFloat16(av[i]).Float32(), op.BFloat16(bv[i]).Float32()
		d[i] = uint16(op.ToBFloat16(one(x * y)))
	}
}

func minBFloat16(dst, a, b []byte) {
	d, av, bv := elements[uint16](dst), elements[uint16](a), elements[uint16](b)
	av, bv = av[:len(d)], bv[:len(d)]
	for i := range d {
		x, y := op.BFloat16(av[i]).Float32(), op.BFloat16(bv[i]).Float32()
		d[i] = uint16(op.ToBFloat16(one(min(x, y))))
	}
}

func maxBFloat16(dst, a, b []byte) {
	d, av, bv := elements[uint16](dst), elements[uint16](a), elements[uint16](b)
	av, bv = av[:len(d)], bv[:len(d)]
	for i := range d {
		x, y := op.BFloat16(av[i]).Float32(), op.BFloat16(bv[i]).Float32()
		d[i] = uint16(op.ToBFloat16(one(max(x, y))))
	}
}

func divideBFloat16(p []byte, n int) {
	v, divisor := elements[uint16](p), float32(n)
	for i := range v {
		v[i] = uint16(op.ToBFloat16(one(op.BFloat16(v[i]).Float32() / divisor)))
	}
}
