//go:build linux

package netlab

import (
	"flag"
	"slices"
	"testing"
	"time"
)

var changes = flag.Int("changes", 0, "how often a rail becomes slower and fast again under load (about 60 s each); 0: not at all")

const (
	slow = 62.5 * float64(Mbit)
	// within is how many operations learning may take, tolerated what one may then take, × the bound.
	within    = 30
	tolerated = 1.10
)

// TestAChangedRateIsFollowed: one rail of all hosts becomes slower, and fast again.
func TestAChangedRateIsFollowed(t *testing.T) {
	if *changes == 0 {
		t.Skip("SKIPPED: -changes N measures N changes of a rail's rate")
	}
	b := Up(t, Config{Hosts: cutHosts, Rails: []Rate{rate, rate}, Management: true})
	d, end := ranksOn(t, b, "tcp", 1, cutBytes)
	defer end()
	d.until(t, "operations before the change", func() bool { return len(d.operations()) >= within+10 })
	for range *changes {
		for _, r := range []Rate{Rate(slow), rate} {
			for host := 1; host <= cutHosts; host++ {
				b.SetRate(host, 2, r)
			}
			changed := time.Now()
			after := func() (all []line) {
				for _, o := range d.operations() {
					if o.Begin.After(changed) {
						all = append(all, o)
					}
				}
				return all
			}
			d.until(t, "operations after the change", func() bool { return len(after()) >= within+10 })
			bound := 2 * float64(cutHosts-1) / cutHosts * cutBytes * 8 / float64(rate+r)
			var ratios []float64
			for _, o := range after() {
				ratios = append(ratios, o.Took.Seconds()/bound)
				if o.Wrong > 0 {
					t.Errorf("operation %d: %d wrong elements", o.Operation, o.Wrong)
				}
			}
			settled := slices.Sorted(slices.Values(ratios[within:]))
			first := slices.IndexFunc(ratios, func(x float64) bool { return x <= tolerated })
			t.Logf("250+%v Mbit/s: the first operation within %.2f × the bound was number %d; median of operations %d … %d: %.3f ×; all: %.2f",
				r/Mbit, tolerated, first+1, within+1, len(ratios), settled[len(settled)/2], ratios)
			if settled[len(settled)/2] > tolerated {
				t.Errorf("250+%v Mbit/s: %d operations after the change they take %.3f × the bound", r/Mbit, within, settled[len(settled)/2])
			}
		}
	}
}
