package polyrail_test

import (
	"fmt"
	"testing"
	"time"

	. "github.com/polyrail/polyrail"
	"github.com/polyrail/polyrail/railactors/transport/fault"
)

// Results that go to all ranks at once, in datagrams of which some are lost, are the same to the bit,
// and no operation waits for ever.
func TestResultsByMulticast(t *testing.T) {
	for _, c := range []struct {
		results TreeResults
		loss    float64
		levels  int
		rounds  int
	}{
		{ResultsMulticast, 0, 1, 100}, {ResultsMulticast, 0.01, 1, 1000}, {ResultsMulticast, 0.3, 1, 300},
		{ResultsMulticast, 1, 1, 50}, {ResultsMulticast, 0.3, 2, 100}, {ResultsBoth, 0.3, 1, 100},
	} {
		t.Run(fmt.Sprintf("%v,loss=%v,levels=%d", c.results, c.loss, c.levels), func(t *testing.T) {
			rounds := c.rounds
			if brief() {
				rounds = min(rounds, 50)
			}
			resultsByMulticast(t, c.results, c.loss, c.levels, rounds)
		})
	}
}

func resultsByMulticast(t *testing.T, results TreeResults, loss float64, levels, rounds int) {
	const ranks = 4
	nodes, radix := 1, 0
	if levels == 2 {
		nodes, radix = 3, 2
	}
	var rails []*fault.Transport
	adapt := func(c *Config) {
		f := fault.Wrap(c.Rails[0].Transport, fault.Options{Delay: 50 * time.Microsecond,
			CastLoss: loss, CastSeed: uint64(len(rails) + 1)})
		rails = append(rails, f)
		c.Rails[0].Transport = f
		c.Trees, c.TreeFragment, c.TreeRadix, c.TreeResults = TreesAlways, 1<<10, radix, results
	}
	inGrove(t, ranks, nodes, 1, adapt, func(b *bed, comms []*Communicator) {
		untilTree(b, comms[0], true)
		for i := range int64(4) { // the first ones are still of the table before
			wholeSums(b, comms, 1000, i, Sum)
		}
		for i := range rounds {
			elements := []int{1, 2, 128, 129, 1000, 3000}[i%6] // of 8 bytes: 1 KiB is the longest datagram
			if levels == 1 {
				smallSums(b, comms, elements, uint64(i))
			} else {
				wholeSums(b, comms, elements, int64(i), Sum)
			}
		}
		wholeSums(b, comms, 50_000, 1, Sum) // of the ring: 400 fragments, 16 of them at once
		var casts, lost int64
		for _, r := range rails[:ranks] {
			casts, lost = casts+r.Counters().Casts, lost+r.Counters().CastsLost
		}
		if casts < int64(ranks*rounds) || (lost == 0) != (loss == 0) {
			t.Errorf("%d datagrams came, %d were lost", casts, lost)
		}
	})
}
