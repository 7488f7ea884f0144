package balance

import "testing"

// Behind token buckets what a rail takes depends on what it was given before. Brief operations must
// all the same come near the best division that can be found by hand, and never cost more than one
// rail alone.
func TestBriefOperationsOverTokenBucketsComeNearTheBestDivision(t *testing.T) {
	if testing.Short() {
		t.Skip("long under the race detector, which finds nothing in a core without goroutines")
	}
	const seeds = 100
	for _, size := range []int{8 << 10, 16 << 10, 32 << 10, 64 << 10, 128 << 10, 256 << 10} {
		var sum float64
		far, worse := 0, 0
		for seed := range uint64(seeds) {
			rate, burst := randomBuckets(seed, 2)
			alone, best := byHand(size, rate, burst)
			took := newBuckets(seed, rate, burst).mean(size, max(1.4, 80*alone), nil)
			sum += took / best
			if took > 1.15*best {
				far++
			}
			if took > 1.05*alone {
				worse++
			}
		}
		t.Logf("%d bytes: %.3f times the best division; %d above 1.15, %d slower than one rail", size, sum/seeds, far, worse)
		if sum > 1.06*seeds || far > seeds/8 || worse > seeds/50 {
			t.Errorf("%d bytes: %.3f times the best division; %d of %d above 1.15, %d slower than one rail", size, sum/seeds, far, seeds, worse)
		}
	}
}
