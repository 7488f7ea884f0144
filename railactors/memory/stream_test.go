package memory

import (
	"bytes"
	"math/rand/v2"
	"testing"
)

func TestStreamCopiesWhateverLengthsAndAddresses(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	src := make([]byte, 1000)
	for i := range src {
		src[i] = byte(rng.Uint32())
	}
	for range 20_000 {
		from, at := rng.IntN(70), rng.IntN(70)
		room, length := rng.IntN(900), rng.IntN(900)
		dst := bytes.Repeat([]byte{0xee}, len(src))
		want := bytes.Clone(dst)
		copied := copy(want[at:at+room], src[from:from+length])
		if n := Stream(dst[at:at+room], src[from:from+length]); n != copied || !bytes.Equal(dst, want) {
			t.Fatalf("%d bytes at %d, to %d at %d: copied %d", length, from, room, at, n)
		}
	}
}
