package balance

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/polyrail/polyrail/collective/op"
	"github.com/polyrail/polyrail/collective/plan"
	"github.com/polyrail/polyrail/collective/schedule"
	"github.com/polyrail/polyrail/collective/table"
)

// host is a busy computer: all rails are equal, and what limits them is one and the same processor
// (several rails over loopback) or link. No division gains much over the equal one, and the times
// of rails say little of what they could do: a rail with a small part may end with the others, or
// one of them always first.
type host struct {
	rng      *rand.Rand
	rails    int
	ranks    int
	startup  float64   // seconds
	rate     float64   // of all rails together, bytes/s
	uneven   float64   // how much longer an operation takes with all of it on one rail
	together float64   // 0: a rail ends when its part was served in turns with the others, 1: with the last one
	lead     []float64 // by rail, how much earlier than that it ends by the order in which work is begun
	mood     float64   // deviation, in logarithms, of all rails alike, from one set to the next
	own      float64   // and of each by itself
	stalls   float64   // part of the windows that take several times as long
	b        *Balancer
	table    *table.Table
	commits  int
}

func randomHost(seed uint64) *host {
	rng := rand.New(rand.NewPCG(seed, 44))
	between := func(low, high float64) float64 { return low + (high-low)*rng.Float64() }
	h := &host{
		rng: rng, rails: 2 + rng.IntN(3), ranks: 2 + rng.IntN(7), startup: between(20e-6, 200e-6), rate: 0.2e9 * math.Pow(20, rng.Float64()),
		uneven: between(0, 0.5), together: rng.Float64(), mood: between(0.03, 0.4), own: between(0.02, 0.3), stalls: between(0, 0.1),
	}
	for range h.rails {
		h.lead = append(h.lead, between(0, 0.3))
	}
	start, err := Static(Equal(h.rails), 16<<10, nil)
	if err != nil {
		panic(err)
	}
	h.table = start
	h.b = NewBalancer(Setup{Rails: h.rails, SplitBytes: 16 << 10, Start: start, Algorithm: algorithmAt, Owners: h.owners})
	for rail := range h.rails {
		for _, bytes := range []int{8, 16 << 10, 32 << 10, 256 << 10} {
			only := make([]int, h.rails)
			only[rail] = 1
			var elapsed []time.Duration
			for range 4 {
				elapsed = append(elapsed, seconds(h.exact(bytes, only)*h.swing(h.mood)*h.swing(h.own)))
			}
			h.b.Probed(rail, int64(bytes), elapsed...)
		}
	}
	h.table = &table.Table{Entries: h.b.Decide()}
	return h
}

// swing is a factor with a heavy tail.
func (h *host) swing(deviation float64) float64 {
	return math.Exp(deviation*h.rng.NormFloat64()) * tail(h.rng, h.stalls)
}

func (h *host) owners(a op.Algorithm) int {
	if a == op.Ring {
		return h.ranks
	}
	return 1
}

func (h *host) rounds(bytes int) int {
	return plan.RoundsOf(plan.Even(bytes, h.owners(algorithmAt(int64(bytes))))[0], schedule.Cost{})
}

func (h *host) shares(bytes int) []int {
	return plan.Rounds(h.rounds(bytes), h.table.Lookup(int64(bytes)).Weights)
}

func (h *host) equal(bytes int) []int { return plan.Rounds(h.rounds(bytes), Equal(h.rails)) }

// exact is the noiseless time of a division.
func (h *host) exact(bytes int, shares []int) float64 {
	sum := 0
	for _, s := range shares {
		sum += s
	}
	fair := 1 / float64(h.rails)
	largest := float64(shares[most(shares)]) / float64(sum)
	return h.startup + float64(bytes)/h.rate*(1+h.uneven*(largest-fair)/(1-fair))
}

// ends is when each rail's part of an operation of that time is done.
func (h *host) ends(shares []int, took float64) []float64 {
	order, sum := make([]int, len(shares)), 0
	for i, s := range shares {
		order[i] = i
		sum += s
	}
	slices.SortFunc(order, func(a, b int) int { return shares[a] - shares[b] })
	ends, at, served := make([]float64, len(shares)), 0.0, 0
	for n, rail := range order {
		at += float64((shares[rail]-served)*(len(order)-n)) / float64(sum)
		served = shares[rail]
		ends[rail] = took * (h.together + (1-h.together)*at) * (1 - h.lead[rail])
	}
	return ends
}

// set runs a set of windows, and returns what its operations took against equal shares, the change
// of tables included.
func (h *host) set(bytes int) (cost float64) {
	shares := h.shares(bytes)
	took := h.exact(bytes, shares)
	cost = took / h.exact(bytes, h.equal(bytes))
	all := h.swing(h.mood)
	var windows []Window
	for rail, end := range h.ends(shares, took) {
		if shares[rail] > 0 {
			windows = append(windows, Window{Rail: rail, Class: ClassOf(int64(bytes)), Operations: WindowOperations,
				Bytes: int64(float64(bytes) * float64(shares[rail]) / float64(h.rounds(bytes))), Elapsed: seconds(end * all * h.swing(h.own))})
		}
	}
	if h.b.Observe(windows) {
		h.table = &table.Table{Entries: h.b.Table()}
		h.commits++
		cost += 0.05 // ranks wait for each other, as long as half an operation
	}
	return cost
}

func TestRailsOfOneProcessorAreLeftEqual(t *testing.T) {
	const sets = 100
	hosts := cases() / 5
	sum, late, tables := 0.0, 0, 0
	var costs []float64
	for seed := range hosts {
		h := randomHost(seed)
		size := (32 << 10) << h.rng.IntN(10)
		before, cost := 0, 0.0
		for i := range sets {
			cost += h.set(size)
			if i == sets/2 {
				before = h.commits
			}
		}
		cost /= sets
		sum += cost
		costs = append(costs, cost)
		tables += h.commits - before
		if cost > 1.15 {
			late++
		}
	}
	slices.Sort(costs)
	t.Logf("mean %.4f, median %.3f, 90 %%: %.3f, 99 %%: %.3f, worst %.3f; %d of %d above 1.15; %.4f tables a set", sum/float64(hosts), costs[len(costs)/2],
		costs[len(costs)*9/10], costs[len(costs)*99/100], costs[len(costs)-1], late, hosts, float64(tables)/float64(hosts)/(sets/2))
	if mean := sum / float64(hosts); mean > 1.03 {
		t.Errorf("operations take %.3f times what equal shares take", mean)
	}
	if tables > int(hosts)*sets/2/20 {
		t.Errorf("%d tables in %d sets of windows", tables, int(hosts)*sets/2)
	}
}

// Of the splits that this host has sampled for a set each, one took less by luck. It must not lead away
// from equal shares.
func TestALuckySampleDoesNotEndTheBaseline(t *testing.T) {
	h := randomHost(0)
	size := (32 << 10) << h.rng.IntN(10)
	for range 200 {
		h.set(size)
	}
	if over := h.exact(size, h.shares(size)) / h.exact(size, h.equal(size)); over > 1.05 {
		t.Errorf("shares %v take %.3f times what equal ones do", h.shares(size), over)
	}
}
