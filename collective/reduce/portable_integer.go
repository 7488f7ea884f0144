package reduce

// The loops work on eight elements at a time, through pointers to arrays, so that no
// bound is checked inside; each element is read before it is written, so dst may be a or b.

func sumInteger[T integer](dst, a, b []byte) {
	d, x, y := elements[T](dst), elements[T](a), elements[T](b)
	for len(d) >= 8 && len(x) >= 8 && len(y) >= 8 {
		d8, x8, y8 := (*[8]T)(d), (*[8]T)(x), (*[8]T)(y)
		d8[0] = x8[0] + y8[0]
		d8[1] = x8[1] + y8[1]
		d8[2] = x8[2] + y8[2]
		d8[3] = x8[3] + y8[3]
		d8[4] = x8[4] + y8[4]
		d8[5] = x8[5] + y8[5]
		d8[6] = x8[6] + y8[6]
		d8[7] = x8[7] + y8[7]
		d, x, y = d[8:], x[8:], y[8:]
	}
	x, y = x[:len(d)], y[:len(d)]
	for i := range d {
		d[i] = x[i] + y[i]
	}
}

// sumBytes adds eight bytes in one word: without their upper bits no carry leaves a byte,
// and the upper bits are added apart, without a carry.
func sumBytes(dst, a, b []byte) {
	const upper = 0x8080808080808080
	d, x, y := elements[uint64](dst), elements[uint64](a), elements[uint64](b)
	x, y = x[:len(d)], y[:len(d)]
	for i := range d {
		d[i] = (x[i]&^upper + y[i]&^upper) ^ (x[i]^y[i])&upper
	}
	for i := len(d) * 8; i < len(dst); i++ {
		dst[i] = a[i] + b[i]
	}
}

func prodInteger[T integer](dst, a, b []byte) {
	d, x, y := elements[T](dst), elements[T](a), elements[T](b)
	for len(d) >= 8 && len(x) >= 8 && len(y) >= 8 {
		d8, x8, y8 := (*[8]T)(d), (*[8]T)(x), (*[8]T)(y)
		d8[0] = x8[0] * y8[0]
		d8[1] = x8[1] * y8[1]
		d8[2] = x8[2] * y8[2]
		d8[3] = x8[3] * y8[3]
		d8[4] = x8[4] * y8[4]
		d8[5] = x8[5] * y8[5]
		d8[6] = x8[6] * y8[6]
		d8[7] = x8[7] * y8[7]
		d, x, y = d[8:], x[8:], y[8:]
	}
	x, y = x[:len(d)], y[:len(d)]
	for i := range d {
		d[i] = x[i] * y[i]
	}
}

func minInteger[T integer](dst, a, b []byte) {
	d, x, y := elements[T](dst), elements[T](a), elements[T](b)
	for len(d) >= 8 && len(x) >= 8 && len(y) >= 8 {
		d8, x8, y8 := (*[8]T)(d), (*[8]T)(x), (*[8]T)(y)
		d8[0] = min(x8[0], y8[0])
		d8[1] = min(x8[1], y8[1])
		d8[2] = min(x8[2], y8[2])
		d8[3] = min(x8[3], y8[3])
		d8[4] = min(x8[4], y8[4])
		d8[5] = min(x8[5], y8[5])
		d8[6] = min(x8[6], y8[6])
		d8[7] = min(x8[7], y8[7])
		d, x, y = d[8:], x[8:], y[8:]
	}
	x, y = x[:len(d)], y[:len(d)]
	for i := range d {
		d[i] = min(x[i], y[i])
	}
}

func maxInteger[T integer](dst, a, b []byte) {
	d, x, y := elements[T](dst), elements[T](a), elements[T](b)
	for len(d) >= 8 && len(x) >= 8 && len(y) >= 8 {
		d8, x8, y8 := (*[8]T)(d), (*[8]T)(x), (*[8]T)(y)
		d8[0] = max(x8[0], y8[0])
		d8[1] = max(x8[1], y8[1])
		d8[2] = max(x8[2], y8[2])
		d8[3] = max(x8[3], y8[3])
		d8[4] = max(x8[4], y8[4])
		d8[5] = max(x8[5], y8[5])
		d8[6] = max(x8[6], y8[6])
		d8[7] = max(x8[7], y8[7])
		d, x, y = d[8:], x[8:], y[8:]
	}
	x, y = x[:len(d)], y[:len(d)]
	for i := range d {
		d[i] = max(x[i], y[i])
	}
}

func bitAnd(dst, a, b []byte) {
	d, x, y := elements[uint64](dst), elements[uint64](a), elements[uint64](b)
	x, y = x[:len(d)], y[:len(d)]
	for i := range d {
		d[i] = x[i] & y[i]
	}
	for i := len(d) * 8; i < len(dst); i++ {
		dst[i] = a[i] & b[i]
	}
}

func bitOr(dst, a, b []byte) {
	d, x, y := elements[uint64](dst), elements[uint64](a), elements[uint64](b)
	x, y = x[:len(d)], y[:len(d)]
	for i := range d {
		d[i] = x[i] | y[i]
	}
	for i := len(d) * 8; i < len(dst); i++ {
		dst[i] = a[i] | b[i]
	}
}

func bitXor(dst, a, b []byte) {
	d, x, y := elements[uint64](dst), elements[uint64](a), elements[uint64](b)
	x, y = x[:len(d)], y[:len(d)]
	for i := range d {
		d[i] = x[i] ^ y[i]
	}
	for i := len(d) * 8; i < len(dst); i++ {
		dst[i] = a[i] ^ b[i]
	}
}

// divideInteger divides in T where n is a value of T, otherwise in int64: −128 / 128 is −1 in int8 too.
func divideInteger[T integer](p []byte, n int) {
	v, divisor := elements[T](p), T(n)
	if divisor < 1 || int64(divisor) != int64(n) {
		for i := range v {
			v[i] = T(int64(v[i]) / int64(n))
		}
		return
	}
	for i := range v {
		v[i] /= divisor
	}
}
