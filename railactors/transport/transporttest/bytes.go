package transporttest

import (
	"bytes"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/polyrail/polyrail/railactors/transport"
)

func readN(t *testing.T, c transport.Conn, n int) []byte {
	t.Helper()
	b := make([]byte, n)
	if k, err := c.ReadFull(b); err != nil || k != n {
		t.Fatalf("read %d of %d bytes: %v", k, n, err)
	}
	return b
}

// pattern is n bytes in which a shift or a loss shows. They are shared: read only.
func pattern(n int) []byte { return allBytes()[:n:n] }

var allBytes = sync.OnceValue(func() []byte {
	b := make([]byte, unreadable)
	for i := range b {
		b[i] = byte(uint32(i) * 2654435761 >> 24)
	}
	return b
})

// randomSize draws from headers, small and large payloads alike, up to limit.
func randomSize(rng *rand.Rand, limit int) int {
	return min(1+rng.IntN(1<<(1+rng.IntN(18))), limit)
}

func equal(t *testing.T, got, want []byte) {
	t.Helper()
	if bytes.Equal(got, want) {
		return
	}
	for i := range min(len(got), len(want)) {
		if got[i] != want[i] {
			t.Fatalf("byte %d of %d is %#x, want %#x", i, len(want), got[i], want[i])
		}
	}
	t.Fatalf("%d bytes, want %d", len(got), len(want))
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
