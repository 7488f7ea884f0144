package reduce

import "math"

type float interface{ float32 | float64 }

// one makes every NaN the same one: which payload, sign and quietness come out of an
// addition depends on the processor, and in Go on the order that the compiler gave the operands.
func one[T float](r T) T {
	if r != r {
		return canonicalNaN[T]()
	}
	return r
}

// canonicalNaN is the NaN of every result: quiet, positive, no payload. It is made from
// bits: conversions and arithmetic don't promise any.
func canonicalNaN[T float]() T {
	var z T
	switch p := any(&z).(type) {
	case *float32:
		*p = math.Float32frombits(0x7fc00000)
	case *float64:
		*p = math.Float64frombits(0x7ff8000000000000)
	}
	return z
}

func sumFloat[T float](dst, a, b []byte) {
	d, x, y := elements[T](dst), elements[T](a), elements[T](b)
	for len(d) >= 8 && len(x) >= 8 && len(y) >= 8 {
		d8, x8, y8 := (*[8]T)(d), (*[8]T)(x), (*[8]T)(y)
		d8[0] = one(x8[0] + y8[0])
		d8[1] = one(x8[1] + y8[1])
		d8[2] = one(x8[2] + y8[2])
		d8[3] = one(x8[3] + y8[3])
		d8[4] = one(x8[4] + y8[4])
		d8[5] = one(x8[5] + y8[5])
		d8[6] = one(x8[6] + y8[6])
		d8[7] = one(x8[7] + y8[7])
		d, x, y = d[8:], x[8:], y[8:]
	}
	x, y = x[:len(d)], y[:len(d)]
	for i := range d {
		d[i] = one(x[i] + y[i])
	}
}

func prodFloat[T float](dst, a, b []byte) {
	d, x, y := elements[T](dst), elements[T](a), elements[T](b)
	for len(d) >= 8 && len(x) >= 8 && len(y) >= 8 {
		d8, x8, y8 := (*[8]T)(d), (*[8]T)(x), (*[8]T)(y)
		d8[0] = one(x8[0] * y8[0])
		d8[1] = one(x8[1] * y8[1])
		d8[2] = one(x8[2] * y8[2])
		d8[3] = one(x8[3] * y8[3])
		d8[4] = one(x8[4] * y8[4])
		d8[5] = one(x8[5] * y8[5])
		d8[6] = one(x8[6] * y8[6])
		d8[7] = one(x8[7] * y8[7])
		d, x, y = d[8:], x[8:], y[8:]
	}
	x, y = x[:len(d)], y[:len(d)]
	for i := range d {
		d[i] = one(x[i] * y[i])
	}
}

func minFloat[T float](dst, a, b []byte) {
	d, x, y := elements[T](dst), elements[T](a), elements[T](b)
	for len(d) >= 8 && len(x) >= 8 && len(y) >= 8 {
		d8, x8, y8 := (*[8]T)(d), (*[8]T)(x), (*[8]T)(y)
		d8[0] = one(min(x8[0], y8[0]))
		d8[1] = one(min(x8[1], y8[1]))
		d8[2] = one(min(x8[2], y8[2]))
		d8[3] = one(min(x8[3], y8[3]))
		d8[4] = one(min(x8[4], y8[4]))
		d8[5] = one(min(x8[5], y8[5]))
		d8[6] = one(min(x8[6], y8[6]))
		d8[7] = one(min(x8[7], y8[7]))
		d, x, y = d[8:], x[8:], y[8:]
	}
	x, y = x[:len(d)], y[:len(d)]
	for i := range d {
		d[i] = one(min(x[i], y[i]))
	}
}

func maxFloat[T float](dst, a, b []byte) {
	d, x, y := elements[T](dst), elements[T](a), elements[T](b)
	for len(d) >= 8 && len(x) >= 8 && len(y) >= 8 {
		d8, x8, y8 := (*[8]T)(d), (*[8]T)(x), (*[8]T)(y)
		d8[0] = one(max(x8[0], y8[0]))
		d8[1] = one(max(x8[1], y8[1]))
		d8[2] = one(max(x8[2], y8[2]))
		d8[3] = one(max(x8[3], y8[3]))
		d8[4] = one(max(x8[4], y8[4]))
		d8[5] = one(max(x8[5], y8[5]))
		d8[6] = one(max(x8[6], y8[6]))
		d8[7] = one(max(x8[7], y8[7]))
		d, x, y = d[8:], x[8:], y[8:]
	}
	x, y = x[:len(d)], y[:len(d)]
	for i := range d {
		d[i] = one(max(x[i], y[i]))
	}
}

func divideFloat[T float](p []byte, n int) {
	v, divisor := elements[T](p), T(n)
	for i := range v {
		v[i] = one(v[i] / divisor)
	}
}
