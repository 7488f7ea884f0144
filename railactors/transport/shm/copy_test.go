package shm

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"
)

func TestCopyBytesCopiesWhateverLengthsAndAddresses(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	src, dst := make([]byte, 20_000), make([]byte, 20_000)
	for i := range src {
		src[i] = byte(rng.Uint32())
	}
	for range 5_000 {
		from, at := rng.IntN(200), rng.IntN(200)
		room, length := rng.IntN(9_000), rng.IntN(9_000)
		for i := range dst {
			dst[i] = 0xee
		}
		want := bytes.Clone(dst)
		copied := copy(want[at:at+room], src[from:from+length])
		if n := copyBytes(dst[at:at+room], src[from:from+length]); n != copied || !bytes.Equal(dst, want) {
			t.Fatalf("%d bytes at %d, to %d at %d: copied %d", length, from, room, at, n)
		}
	}
}

func BenchmarkCopyBytes(b *testing.B) {
	src, dst := make([]byte, 1<<20+64), make([]byte, 1<<20+64)
	for _, size := range []int{4 << 10, 128 << 10, 1 << 20} {
		for _, at := range []int{0, 1, 48} {
			b.Run(fmt.Sprintf("%dKiB/at%d", size>>10, at), func(b *testing.B) {
				b.SetBytes(int64(size))
				for b.Loop() {
					copyBytes(dst[at:], src[:size])
				}
			})
		}
	}
}
