package balance

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
)

// page follows the windows of one size through the balancer, as docs/balancing.md shows them.
const page = "../../docs/balancing.md"

// event is what happens before a set.
type event struct {
	set  int
	text string
	do   func(w *world, k *class)
}

// story is an example of the page: sets of windows of one size.
type story struct {
	size        int
	alpha, rate []float64
	sets        int
	events      []event
}

// stories are in the page's order.
var stories = []story{
	{4 << 20, []float64{50e-6, 60e-6, 60e-6}, []float64{120e6, 30e6, 0.5e6}, 60, []event{
		{41, "the second rail becomes twice as fast", func(w *world, _ *class) { w.rate[1] *= 2 }},
	}},
	{2 << 20, []float64{100e-6, 30e-6}, []float64{15e6, 40e6}, 60, []event{
		{21, "the host is noisy from now on: a deviation of 9 %", func(_ *world, k *class) { k.own.variance = 0.09 * 0.09 }},
		{22, "the first rail takes twice as long in one set", func(w *world, _ *class) { w.rate[0] /= 2 }},
		{23, "", func(w *world, _ *class) { w.rate[0] *= 2 }},
		{40, "the first rail becomes five times as slow", func(w *world, _ *class) { w.rate[0] /= 5 }},
	}},
}

// follow are the lines of the page: a set of windows each, where anything differs from the one before.
func (s *story) follow() string {
	w := &world{rng: rand.New(rand.NewPCG(1, 1)), ranks: 4, alpha: slices.Clone(s.alpha), rate: slices.Clone(s.rate)}
	w.start(false)
	k := &w.b.classes[ClassOf(int64(s.size))]
	var b strings.Builder
	fmt.Fprintf(&b, "%-5s%-12s%-10s%-22s%-12s%s\n", "set", "mode", "split", "ms on the rails", "then", "split")
	last := ""
	for set := 1; set <= s.sets; set++ {
		for _, e := range s.events {
			if e.set == set {
				if e.do(w, k); e.text != "" {
					fmt.Fprintf(&b, "     %s\n", e.text)
				}
			}
		}
		mode, shares := k.mode, w.shares(s.size)
		var took []string
		for rail, rounds := range shares {
			one := make([]int, len(shares))
			if one[rail] = rounds; rounds > 0 {
				took = append(took, fmt.Sprintf("%.1f", 1000*w.exact(s.size, one)))
			} else {
				took = append(took, "–")
			}
		}
		w.set(s.size)
		line := fmt.Sprintf("%-12v%-10s%-22s%-12v%s", mode, split(shares), strings.Join(took, " / "), k.mode, split(w.shares(s.size)))
		if line != last {
			fmt.Fprintf(&b, "%-5d%s\n", set, line)
		}
		last = line
	}
	return b.String()
}

func split(shares []int) string {
	return strings.ReplaceAll(strings.Trim(fmt.Sprint(shares), "[]"), " ", "/")
}

// TestThePageFollowsTheBalancer: with -update it writes what the balancer does now.
func TestThePageFollowsTheBalancer(t *testing.T) {
	const begin, end = "```windows\n", "```\n"
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	rest, now := string(text), ""
	for i := range stories {
		before, after, found := strings.Cut(rest, begin)
		shown, after, closed := strings.Cut(after, end)
		if !found || !closed {
			t.Fatalf("%s has %d blocks of windows, want %d", page, i, len(stories))
		}
		does := stories[i].follow()
		if shown != does && !*updateWorlds {
			t.Errorf("the page shows\n%s\nthe balancer does\n%s", shown, does)
		}
		now, rest = now+before+begin+does+end, after
	}
	if *updateWorlds {
		if err := os.WriteFile(page, []byte(now+rest), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
