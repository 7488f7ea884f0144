//go:build amd64 && !purego

package reduce

import "golang.org/x/sys/cpu"

// vectorBytes is the least length that the assembly takes: its kernels end with one whole
// vector over the last 32 bytes, read before the loop writes anything.
const vectorBytes = 32

type (
	// An avx2Binary sets n ≥ vectorBytes bytes of packed elements at dst from those at a and b.
	avx2Binary func(dst, a, b *byte, n int)
	// An avx2Divide32 divides n ≥ vectorBytes bytes of packed elements at p in float32.
	avx2Divide32 func(p *byte, n int, divisor float32)
	// An avx2Divide64 divides n ≥ vectorBytes bytes of packed elements at p in float64.
	avx2Divide64 func(p *byte, n int, divisor float64)
)

func choose() implementation {
	if cpu.X86.HasAVX2 && cpu.X86.HasF16C {
		return avx2()
	}
	return portable
}

// avx2 is the portable implementation with its longer operands handed to the assembly.
func avx2() implementation {
	impl := portable
	impl.name = "avx2+f16c"
	for c := range avx2Kernels {
		for d, k := range avx2Kernels[c] {
			if k != nil {
				impl.binary[c][d] = k.orShort(portable.binary[c][d])
			}
		}
	}
	for d, k := range avx2Divides32 {
		if k != nil {
			impl.divide[d] = k.orShort(portable.divide[d])
		}
	}
	for d, k := range avx2Divides64 {
		if k != nil {
			impl.divide[d] = k.orShort(portable.divide[d])
		}
	}
	return impl
}

func (k avx2Binary) orShort(short binaryKernel) binaryKernel {
	return func(dst, a, b []byte) {
		if len(dst) < vectorBytes {
			short(dst, a, b)
			return
		}
		k(&dst[0], &a[0], &b[0], len(dst))
	}
}

func (k avx2Divide32) orShort(short divideKernel) divideKernel {
	return func(p []byte, n int) {
		if len(p) < vectorBytes {
			short(p, n)
			return
		}
		k(&p[0], len(p), float32(n))
	}
}

func (k avx2Divide64) orShort(short divideKernel) divideKernel {
	return func(p []byte, n int) {
		if len(p) < vectorBytes {
			short(p, n)
			return
		}
		k(&p[0], len(p), float64(n))
	}
}
