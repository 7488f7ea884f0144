package balance

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// own is what an operation on one rail is charged.
func own(o *Overlap, began, ended time.Duration) time.Duration {
	times := []RailTime{{Elapsed: ended - began}}
	o.Own(began, times)
	return times[0].Elapsed
}

func TestOperationsInFlightTogetherAreChargedTheTimeTheirRailWorked(t *testing.T) {
	for _, c := range []struct {
		name  string
		spans []span
		want  []time.Duration
	}{
		{"one after the other", []span{{0, 10}, {12, 20}}, []time.Duration{10, 8}},
		{"in a queue", []span{{0, 10}, {0, 20}, {5, 30}}, []time.Duration{10, 10, 10}},
		{"a small one within a large one", []span{{40, 50}, {0, 100}}, []time.Duration{10, 90}},
		{"over a pause", []span{{0, 10}, {20, 30}, {5, 40}}, []time.Duration{10, 10, 20}},
		{"told late", []span{{0, 30}, {10, 20}}, []time.Duration{30, 0}},
	} {
		var o Overlap
		for i, s := range c.spans {
			if got := own(&o, s.from, s.to); got != c.want[i] {
				t.Errorf("%s: operation %d is charged %d, want %d", c.name, i, got, c.want[i])
			}
		}
	}
}

func TestOverlapChargesEachMomentOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var o Overlap
		worked := make(map[time.Duration]bool)
		for range rapid.IntRange(1, mostSpans).Draw(t, "operations") {
			began := time.Duration(rapid.IntRange(0, 50).Draw(t, "began"))
			ended := began + time.Duration(rapid.IntRange(0, 20).Draw(t, "elapsed"))
			want := time.Duration(0)
			for at := began; at < ended; at++ {
				if !worked[at] {
					worked[at] = true
					want++
				}
			}
			if got := own(&o, began, ended); got != want {
				t.Fatalf("%d to %d is charged %d, want %d", began, ended, got, want)
			}
		}
	})
}

func TestOverlapRemembersFewSpans(t *testing.T) {
	var o Overlap
	for i := range 10 * time.Duration(mostSpans) {
		own(&o, 2*i, 2*i+1)
	}
	if got := len(o.spans[0]); got != mostSpans {
		t.Errorf("%d spans are remembered, the limit is %d", got, mostSpans)
	}
}
