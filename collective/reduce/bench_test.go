package reduce

import (
	"fmt"
	"testing"

	"github.com/polyrail/polyrail/collective/op"
)

// benchBytes is a typical run of segments: three of these fit into a second-level cache.
const benchBytes = 256 << 10

// The rate is that of output: each byte of it costs two bytes read.
func BenchmarkKernel(b *testing.B) {
	for _, impl := range implementations() {
		forEachKernel(func(o op.Op, d op.DType) {
			b.Run(fmt.Sprintf("op=%v/dtype=%v/impl=%s", o, d, impl.name), func(b *testing.B) {
				kernel := impl.binary[o.Code()][d]
				dst, x, y := make([]byte, benchBytes), ordinary(d), ordinary(d)
				b.SetBytes(benchBytes)
				for b.Loop() {
					kernel(dst, x, y)
				}
			})
		})
	}
}

func BenchmarkDivide(b *testing.B) {
	for _, impl := range implementations() {
		for _, d := range divisible() {
			b.Run(fmt.Sprintf("dtype=%v/impl=%s", d, impl.name), func(b *testing.B) {
				divide, p := impl.divide[d], ordinary(d)
				b.SetBytes(benchBytes)
				for b.Loop() {
					divide(p, 1)
				}
			})
		}
	}
}

// BenchmarkShort is the cost of a small operation's kernel, with the check that guards it.
func BenchmarkShort(b *testing.B) {
	for _, n := range []int{8, 64, 1024} {
		b.Run(fmt.Sprintf("op=sum/dtype=float32/bytes=%d", n), func(b *testing.B) {
			combine, err := For(op.Sum, op.F32)
			if err != nil {
				b.Fatal(err)
			}
			dst, x := make([]byte, n), make([]byte, n)
			for b.Loop() {
				if err := combine(dst, x, dst); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// ordinary is a buffer of numbers between 1 and 100, mixed so that no branch on them is foreseen.
func ordinary(d op.DType) []byte {
	p := make([]byte, benchBytes)
	d = d.Value() // of pairs, the index is such a number too
	for i := 0; i < len(p); i += d.Size() {
		number := 1 + i*7919%100
		if d.Integer() {
			store(d, p[i:], uint64(number))
		} else {
			store(d, p[i:], bitsOfFloat(d, float64(number)))
		}
	}
	return p
}
