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

// A program goes from small operations to large ones, as node demo does. What brief operations take
// behind a shaper is no rail's rate. Each size must begin with a good division all the same: ten
// operations of 16 MiB go by before a window corrects a wrong one.
func TestLargerSizesBeginWellAfterBriefOnesOverTokenBuckets(t *testing.T) {
	const seeds = 20
	for _, rate := range [][]float64{{50e6, 50e6}, {60e6, 15e6}} {
		for _, saved := range []float64{1e-3, 2e-3, 4e-3} { // seconds
			var sum float64
			sizes := 0
			for seed := range uint64(seeds) {
				w := newBuckets(seed, rate, []float64{rate[0] * saved, rate[1] * saved})
				w.jitter = 0.3
				for size := 1 << 10; size <= 16<<20; size *= 4 {
					if s := w.shares(size); size >= 1<<20 {
						sizes++
						sum += max(float64(s[0])/rate[0], float64(s[1])/rate[1]) *
							(rate[0] + rate[1]) / float64(s[0]+s[1])
					}
					for end := w.now + 0.6; w.now < end; {
						w.step(size)
					}
				}
			}
			over := sum / float64(sizes)
			t.Logf("rates %v, bursts of %v s: %.3f times the best division", rate, saved, over)
			if over > 1.3 {
				t.Errorf("rates %v, bursts of %v s: operations of a new size take %.2f times the best",
					rate, saved, over)
			}
		}
	}
}
