package balance

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
)

// page follows the windows of one size through the balancer, as docs/balancing.md shows them.
const page = "../../docs/balancing.md"

// followWindows are the lines of the page: a set of windows each, where anything differs from the one before.
func followWindows() string {
	const size = 4 << 20
	w := &world{rng: rand.New(rand.NewPCG(1, 1)), ranks: 4,
		alpha: []float64{50e-6, 60e-6, 60e-6}, rate: []float64{120e6, 30e6, 0.5e6}}
	w.start(false)
	k := &w.b.classes[ClassOf(size)]
	var b strings.Builder
	fmt.Fprintf(&b, "%-5s%-12s%-10s%-22s%-12s%s\n", "set", "mode", "split", "ms on the rails", "then", "split")
	last := ""
	for set := 1; set <= 60; set++ {
		if set == 41 {
			w.rate[1] *= 2
			b.WriteString("     the second rail becomes twice as fast\n")
		}
		mode, shares := k.mode, w.shares(size)
		var took []string
		for rail, rounds := range shares {
			one := make([]int, len(shares))
			if one[rail] = rounds; rounds > 0 {
				took = append(took, fmt.Sprintf("%.1f", 1000*w.exact(size, one)))
			} else {
				took = append(took, "–")
			}
		}
		w.set(size)
		line := fmt.Sprintf("%-12v%-10s%-22s%-12v%s", mode, split(shares), strings.Join(took, " / "), k.mode, split(w.shares(size)))
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
	before, rest, found := strings.Cut(string(text), begin)
	shown, after, closed := strings.Cut(rest, end)
	if !found || !closed {
		t.Fatalf("%s has no block of windows", page)
	}
	now := followWindows()
	if *updateWorlds {
		if err := os.WriteFile(page, []byte(before+begin+now+end+after), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if shown != now {
		t.Errorf("the page shows\n%s\nthe balancer does\n%s", shown, now)
	}
}
