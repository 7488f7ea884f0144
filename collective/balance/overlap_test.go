package balance

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// A rail that carries 1 byte/ns serves operations that began together, each in proportion to its size
// or one after the other: each is charged what it takes alone.
func TestOperationsInFlightTogetherAreChargedTheirOwnBytes(t *testing.T) {
	for _, c := range []struct {
		name          string
		own, all      int64
		elapsed, want time.Duration
	}{
		{"alone", 1000, 1000, 1000, 1000},
		{"a small one behind a large one", 10, 1010, 1010, 10},
		{"a large one that small ones pass", 1000, 1050, 1050, 1000},
		{"the third of three in a queue", 100, 300, 300, 100},
	} {
		if got := Own(c.elapsed, c.own, c.all); got != c.want {
			t.Errorf("%s is charged %d, want %d", c.name, got, c.want)
		}
	}
}

// What operations are charged has the rail's rate, whatever they shared it with.
func TestOwnKeepsTheRate(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		own := rapid.Int64Range(1, 1<<40).Draw(t, "own")
		all := own + rapid.Int64Range(0, 1<<40).Draw(t, "others")
		elapsed := time.Duration(rapid.Int64Range(1, int64(time.Hour)).Draw(t, "elapsed"))
		rate := float64(all) / float64(elapsed)
		if got, want := float64(Own(elapsed, own, all)), float64(own)/rate; got > want+1 || got < want-1 {
			t.Fatalf("%d of %d bytes in %v are charged %v ns, want %v", own, all, elapsed, got, want)
		}
	})
}
