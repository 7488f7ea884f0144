package peer

import (
	"container/heap"
	"math/rand/v2"
	"testing"
	"time"
)

// The ring: ranks that pass frames on to the next one, as a ring allreduce does. Each span is a chain:
// a rank sends its frame of the next step when that of the step before has arrived whole. A rank's
// rails deliver one frame after the other, a little quicker or slower each time. A socket takes frames
// while it holds little that is unsent. Acknowledgements wait behind packets of other connections.
type ring struct {
	t       *testing.T
	rng     *rand.Rand
	now     time.Duration
	rates   []float64 // bytes per second, by rail
	ranks   []*ringRank
	events  ringEvents
	numbers int // of events
	left    int // frames that have not arrived
}

// ringRank is a rank and its rails to the next one.
type ringRank struct {
	core    *Core[ringFrame]
	rails   []ringRail
	carried []int // bytes, by rail
}

type ringRail struct {
	free     time.Duration // when it has delivered what it has
	blocked  bool          // its socket is full
	received uint64        // by the next rank
	owed     int           // bytes that it has not acknowledged
	armed    bool
}

type ringFrame struct{ lane, bytes, step int }

type ringEvent struct {
	at     time.Duration
	number int
	run    func()
}

type ringEvents []ringEvent

func (e ringEvents) Len() int      { return len(e) }
func (e ringEvents) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e *ringEvents) Push(x any)   { *e = append(*e, x.(ringEvent)) }
func (e ringEvents) Less(i, j int) bool {
	return e[i].at < e[j].at || e[i].at == e[j].at && e[i].number < e[j].number
}

func (e *ringEvents) Pop() any {
	last := (*e)[len(*e)-1]
	*e = (*e)[:len(*e)-1]
	return last
}

const (
	ringAckBytes = 512 << 10
	ringUnsent   = 256 << 10 // that a socket holds at most when it takes a frame
	ringWake     = 160 << 10 // unsent bytes at which a full one takes frames again
	ringPackets  = 2 * 9014  // bytes that an acknowledgement waits behind at most
)

func newRing(t *testing.T, seed uint64, ranks int, rates ...float64) *ring {
	g := &ring{t: t, rates: rates, rng: rand.New(rand.NewPCG(seed, 7))}
	for range ranks {
		n := &ringRank{rails: make([]ringRail, len(rates)), carried: make([]int, len(rates))}
		n.core = New[ringFrame](Config{Rails: len(rates), InFlightBytes: 2 << 20, AckBytes: ringAckBytes,
			CreditBytes: 1, AckDelay: bedDelay})
		for r := range rates {
			var fx Effects[ringFrame]
			n.core.Connected(r, 1, &fx)
		}
		g.ranks = append(g.ranks, n)
	}
	return g
}

func (g *ring) steps() int { return 2 * (len(g.ranks) - 1) }

// after has something happen that much later.
func (g *ring) after(d time.Duration, run func()) {
	g.numbers++
	heap.Push(&g.events, ringEvent{g.now + d, g.numbers, run})
}

// transit is what a rail takes for so many bytes.
func (g *ring) transit(rail int, bytes float64) time.Duration {
	return time.Duration(bytes / g.rates[rail] * 1e9)
}

// allreduce runs one that has these spans on each lane, in bytes of a block, and returns how long that
// takes.
func (g *ring) allreduce(lanes [][]int) time.Duration {
	began, end := g.now, g.now
	for _, n := range g.ranks {
		n.core.At(g.now, 1)
		for lane, spans := range lanes {
			for _, bytes := range spans {
				n.core.Expect(lane, g.steps()*bytes)
				g.left += g.steps()
			}
		}
	}
	for rank := range g.ranks {
		for span := range lanes[0] {
			for lane := range lanes {
				g.send(rank, ringFrame{lane, lanes[lane][span], 0})
			}
		}
	}
	for g.events.Len() > 0 {
		e := heap.Pop(&g.events).(ringEvent)
		g.now = e.at
		before := g.left
		if e.run(); g.left < before {
			end = g.now
		}
	}
	if g.left > 0 {
		g.t.Fatalf("%d frames did not arrive", g.left)
	}
	return end - began
}

func (g *ring) send(rank int, f ringFrame) {
	var fx Effects[ringFrame]
	core := g.ranks[rank].core
	core.At(g.now, 1)
	core.Send(Item[ringFrame]{Frame: f, Rail: f.lane, Rails: 1<<len(g.rates) - 1, Bytes: f.bytes, Announced: true}, &fx)
	g.carryOut(rank, &fx)
}

func (g *ring) carryOut(rank int, fx *Effects[ringFrame]) {
	for rail := range fx.Wake.All() {
		g.write(rank, rail)
	}
}

func (g *ring) write(rank, rail int) {
	n := g.ranks[rank]
	l := &n.rails[rail]
	for !l.blocked {
		it, number, ok := n.core.Take(rail, 1)
		if !ok {
			break
		}
		n.carried[rail] += it.Bytes
		l.free = max(l.free, g.now) + g.transit(rail, float64(it.Bytes)*(0.98+0.04*g.rng.Float64()))
		g.after(l.free-g.now, func() { g.arrive(rank, rail, it, number) })
		if unsent := (l.free - g.now).Seconds() * g.rates[rail]; unsent > ringUnsent {
			l.blocked = true
			g.after(g.transit(rail, unsent-ringWake), func() {
				l.blocked = false
				n.core.At(g.now, 1)
				g.write(rank, rail)
			})
		}
	}
	var fx Effects[ringFrame]
	n.core.Written(rail, 1, &fx)
	g.carryOut(rank, &fx)
}

func (g *ring) arrive(rank, rail int, it Item[ringFrame], number uint64) {
	g.left--
	l := &g.ranks[rank].rails[rail]
	l.received = number
	l.owed += it.Bytes
	if it.AckNow || l.owed >= ringAckBytes {
		g.acknowledge(rank, rail)
	} else if !l.armed {
		l.armed = true
		g.after(bedDelay, func() {
			if l.armed = false; l.owed > 0 {
				g.acknowledge(rank, rail)
			}
		})
	}
	if it.Frame.step++; it.Frame.step < g.steps() {
		g.send((rank+1)%len(g.ranks), it.Frame)
	}
}

func (g *ring) acknowledge(rank, rail int) {
	core, l := g.ranks[rank].core, &g.ranks[rank].rails[rail]
	received := l.received
	l.owed = 0
	g.after(g.transit(rail, ringPackets*g.rng.Float64())+100*time.Microsecond, func() {
		var fx Effects[ringFrame]
		core.At(g.now, 1)
		if received > core.links[rail].acked { // else a later one was quicker
			if err := core.Acked(rail, 1, received, &fx); err != nil {
				g.t.Fatal(err)
			}
		}
		g.carryOut(rank, &fx)
	})
}

// cut divides a block among lanes by weight, each of them into so many spans.
func cut(block, spans int, weights ...int) [][]int {
	lanes := make([][]int, len(weights))
	for lane, w := range weights {
		for range spans {
			lanes[lane] = append(lanes[lane], block*w/total(weights)/spans)
		}
	}
	return lanes
}

// TestARingOverUnequalRailsUsesThemAll: nobody adapts equal shares. The slowest rail carries what it
// ends in time, and its rate is known though it has one frame at a time.
func TestARingOverUnequalRailsUsesThemAll(t *testing.T) {
	for _, c := range []struct {
		rates []float64
		block int
		spans int
		limit float64 // × the bound
	}{
		{[]float64{180 * mbit, 95 * mbit, 40 * mbit}, 1 << 20, 3, 1.06},
		{[]float64{180 * mbit, 95 * mbit, 40 * mbit}, 4 << 20, 6, 1.05},
		{[]float64{250 * mbit, 62.5 * mbit}, 256 << 10, 2, 1.17},
		{[]float64{250 * mbit, 62.5 * mbit}, 1 << 20, 2, 1.12},
		{[]float64{250 * mbit, 62.5 * mbit}, 4 << 20, 8, 1.05},
	} {
		var took, bound time.Duration
		rate := 0.0
		for _, r := range c.rates {
			rate += r
		}
		for seed := range uint64(20) {
			g := newRing(t, seed, 4, c.rates...)
			lanes := cut(c.block, c.spans, []int{1, 1, 1}[:len(c.rates)]...)
			for operation := range 10 {
				d := g.allreduce(lanes)
				if operation < 4 {
					continue // they teach the rates
				}
				took += d
				bound += time.Duration(float64(g.steps()*c.block) / rate * 1e9)
			}
		}
		if ratio := took.Seconds() / bound.Seconds(); ratio > c.limit {
			t.Errorf("rails of %.0f, blocks of %d in %d spans: %.3f × the bound", c.rates, c.block, c.spans, ratio)
		}
	}
}

// TestARingKeepsSharesThatAreRight: each rail carries its lane, whatever the noise.
func TestARingKeepsSharesThatAreRight(t *testing.T) {
	for _, weights := range [][]int{{1, 1}, {4, 1}, {36, 19, 8}} {
		for _, block := range []int{64 << 10, 256 << 10, 1 << 20} {
			rates := make([]float64, len(weights))
			for r, w := range weights {
				rates[r] = float64(500*w/total(weights)) * mbit
			}
			g := newRing(t, 1, 4, rates...)
			lanes := cut(block, 2, weights...)
			for range 20 {
				for _, n := range g.ranks {
					clear(n.carried)
				}
				g.allreduce(lanes)
				for rank, n := range g.ranks {
					for r, carried := range n.carried {
						if want := g.steps() * total(lanes[r]); carried != want {
							t.Fatalf("weights %v, blocks of %d: rail %d of rank %d carried %d bytes of %d",
								weights, block, r, rank, carried, want)
						}
					}
				}
			}
		}
	}
}

// TestARingFollowsARailThatSlowsDown: the frames of one operation show the new rate, and shares that
// are wrong from now on cost little.
func TestARingFollowsARailThatSlowsDown(t *testing.T) {
	const block, spans, operations = 256 << 10, 2, 4
	var took, bound time.Duration
	for seed := range uint64(20) {
		g := newRing(t, seed, 4, 250*mbit, 250*mbit)
		lanes := cut(block, spans, 1, 1)
		for range 20 {
			g.allreduce(lanes)
		}
		g.rates[1] /= 4
		for range operations {
			took += g.allreduce(lanes)
		}
		bound += time.Duration(float64(operations*g.steps()*block) / (g.rates[0] + g.rates[1]) * 1e9)
	}
	if ratio := took.Seconds() / bound.Seconds(); ratio > 1.16 {
		t.Errorf("the first %d operations took %.3f × the bound", operations, ratio)
	}
}
