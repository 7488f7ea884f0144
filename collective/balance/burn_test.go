package balance

import (
	"math/rand/v2"
	"testing"

	"github.com/polyrail/polyrail/collective/op"
	"github.com/polyrail/polyrail/collective/plan"
	"github.com/polyrail/polyrail/collective/table"
)

// shaped is what a rail takes behind a token bucket that fills again between two operations: nearly nothing up to so many bytes, and
// all of them at its rate beyond.
func shaped(bytes, rate, bucket float64) float64 {
	if bytes <= bucket {
		return 50e-6 + bytes/(4*rate)
	}
	return bytes / rate
}

// As measured over 250 and 62.5 Mbit/s: each line through two points promises more than the second rail can keep.
func TestBalancerLeavesAKneeAlone(t *testing.T) {
	const bytes, sets = 64 << 10, 400
	equal, err := Static(Equal(2), 16<<10, nil)
	if err != nil {
		t.Fatal(err)
	}
	for seed := range uint64(50) {
		rng := rand.New(rand.NewPCG(seed, 9))
		b := NewBalancer(Setup{Rails: 2, SplitBytes: 16 << 10, Start: equal, Algorithm: algorithmAt, Owners: func(op.Algorithm) int { return 2 }})
		bucket := 10e3 + 4e3*rng.Float64()
		takes := func(rail int, part float64) float64 {
			noisy := 1 + 0.04*(rng.Float64()-0.5)
			if rail == 0 {
				return noisy * part / 32e6
			}
			return noisy * shaped(part, 7.8e6, bucket)
		}
		for rail := range 2 {
			for _, size := range []int64{8, 32 << 10, 256 << 10} {
				b.Probed(rail, size, seconds(takes(rail, float64(size))))
			}
		}
		current := table.Table{Entries: b.Decide()}
		tables, slow := 0, 0
		for range sets {
			shares := plan.Rounds(256, current.Lookup(bytes).Weights)
			var set []Window
			took := 0.0
			for rail, s := range shares {
				if s == 0 {
					continue
				}
				part := bytes * float64(s) / 256
				elapsed := takes(rail, part)
				took = max(took, elapsed)
				set = append(set, Window{Rail: rail, Class: ClassOf(bytes), Operations: WindowOperations, Bytes: int64(part), Elapsed: seconds(elapsed)})
			}
			if took > 1.2*bytes/(32e6+7.8e6) {
				slow++
			}
			if b.Observe(set) {
				current = table.Table{Entries: b.Table()}
				tables++
			}
		}
		if slow > sets/8 || tables > sets/6 {
			t.Errorf("seed %d: %d of %d windows took 1.2 times what both rates allow, after %d tables", seed, slow, sets, tables)
		}
	}
}
