package balancing

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/polyrail/polyrail/actors/engine"
	"github.com/polyrail/polyrail/collective/balance"
	"github.com/polyrail/polyrail/collective/op"
	"github.com/polyrail/polyrail/collective/peer"
	"github.com/polyrail/polyrail/collective/schedule"
)

// What the probe runs on each rail: operations small enough to show the startup and large enough to
// show the rate, of each algorithm of the fixed rule. It goes two rounds over the rails, and more
// where they are quick or the rounds disagree, since a busy host disturbs one and then the other:
// of all rounds the quickest is the rail's, and how far the others are from it shows the noise.
const (
	probeName    = "polyrail probe"
	probeTimeout = 30 * time.Second      // for all rails, if no rank's caller ends it earlier
	probeBudget  = 50 * time.Millisecond // of one rail for probeLarge, of which there are up to two in a round
	probeSmall   = 32 << 10
	probeLarge   = 256 << 10

	probeRounds  = 6                      // at most
	probeEnough  = 10 * time.Millisecond  // of one rail, to be in no further round but the second, and in those until two agree
	probeTooMuch = 200 * time.Millisecond // and not in these either
	probeAgreed  = 1.2                    // the quickest two of its largest operations, at most so far apart

	maxProbes = 64 // sets of nodes whose results are kept
)

var probeSizes = []int{8, 8, 8, schedule.TreeBytes, schedule.TreeBytes, schedule.ShortBytes,
	schedule.ShortBytes, probeSmall, probeSmall}

// probeTiming is what one rail took alone for operations of a size, on the slowest rank: the
// quickest one of each round, of probeLarge the last.
type probeTiming struct {
	rail    int
	bytes   int
	elapsed []time.Duration
}

// probes are the results by communicator, so that the hundredth one of the same nodes costs nothing.
type probes struct {
	mu      sync.Mutex
	results map[string][]probeTiming
}

func (p *probes) of(g *Group) []probeTiming {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.results[strings.Join(g.Nodes, "\x00")]
}

func (p *probes) keep(g *Group, t []probeTiming) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.results == nil || len(p.results) >= maxProbes {
		p.results = make(map[string][]probeTiming)
	}
	p.results[strings.Join(g.Nodes, "\x00")] = t
}

// Starter starts an operation of the communicator.
type Starter func(context.Context, *engine.Request) (*engine.Work, error)

// Probe measures each rail of a new communicator by itself, and returns when a table made of that
// is in force. All ranks run the same operations. Their number may depend only on what the ranks
// have agreed on. So each operation carries the largest elapsed time of the one before to all of
// them.
func (g *Group) Probe(ctx context.Context, start Starter) error {
	if e := g.node.engine; !g.Measured() || e.Rails == 1 && !e.Config.Free { // trees come later
		return nil
	}
	var saved *balance.Saved
	if s, ok := g.tuned(); ok && g.Rank == 0 {
		saved = &s
		g.node.log.Info("tuning file used", "file", g.node.tuning.File(), "communicator", g.Name,
			"size classes", len(s.Classes))
	}
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	if !g.node.config.Probe {
		return g.begin(ctx, &probed{saved: saved, done: make(chan error, 1)})
	}
	p := &prober{group: g, begin: start, ctx: ctx, buf: make([]int64, probeLarge/8)}
	timings := g.node.probes.of(g)
	// Rank 0 decides the table: what it knows is enough.
	known, down := p.agree(g.Rank == 0 &&
		(len(timings) > 0 || saved != nil && saved.Covers(g.node.engine.Rails)))
	if !known {
		timings, down = p.measure(g.node.engine.Rails, down)
	}
	if p.err != nil {
		return fmt.Errorf("communicator %q: probing the rails: %w", g.Name, p.err)
	}
	if known || down == 0 { // the next one is to measure what is missing here
		g.node.probes.keep(g, timings)
	}
	if g.Rank == 0 && (len(timings) > 0 || saved != nil) {
		m := &probed{timings: timings, saved: saved, done: make(chan error, 1)}
		if known {
			m.timings = nil // the balancer has begun with them
		}
		p.err = g.begin(ctx, m)
	}
	for range 2 { // the table takes over after at most the two operations that rank 0 looks ahead
		p.run(0, 8, 0)
	}
	if p.err != nil {
		return fmt.Errorf("communicator %q: the first table: %w", g.Name, p.err)
	}
	return nil
}

// begin has the first table made, and returns when it is agreed on. Without the probe that takes
// over after the two operations that rank 0 looks ahead.
func (g *Group) begin(ctx context.Context, m *probed) error {
	if m.saved == nil && m.timings == nil {
		return nil
	}
	g.node.tell(g.tuner.balancer.Load(), m)
	return g.Agreed(ctx, m.done)
}

// prober runs the operations of a probe until one fails.
type prober struct {
	group *Group
	begin Starter
	ctx   context.Context
	buf   []int64
	last  time.Duration // of the operation before, here
	err   error
}

// agree tells whether rank 0 knows enough, and which rails are down between any two ranks.
func (p *prober) agree(enough bool) (known bool, down peer.Rails) {
	p.buf[0], p.buf[1] = 0, int64(p.group.Missing())
	if enough {
		p.buf[0] = 1
	}
	p.start(0, 16, op.BitOr)
	return p.buf[0] != 0, peer.Rails(p.buf[1])
}

// run does one operation on one rail (numbered from 1; 0: by the table) and returns the largest
// value of all ranks.
func (p *prober) run(rail, bytes int, value int64) int64 {
	p.buf[0] = value
	p.start(rail, bytes, op.Max)
	return p.buf[0]
}

// start does one operation on one rail, in place in the buffer.
func (p *prober) start(rail, bytes int, o op.Op) {
	if p.err != nil {
		return
	}
	buf := op.Bytes(p.buf[:bytes/8])
	algorithm := op.Auto
	if rail == 0 {
		algorithm = op.RecursiveDoubling // by name, so that it isn't counted among the caller's operations
	}
	start := time.Now()
	w, err := p.begin(p.ctx, &engine.Request{Kind: op.KindAllReduce, DType: op.Int64, Op: o,
		Dst: buf, Src: buf,
		Name: probeName, Algorithm: algorithm, Rail: rail, Internal: true})
	if err == nil {
		err = w.Wait(p.ctx)
	}
	p.last, p.err = time.Since(start), err
}

// measure goes in rounds over the rails but those that are down: what is planned for these goes
// over others, and its time says nothing. So it is with one that goes down meanwhile; it is down
// afterwards.
func (p *prober) measure(rails int, down peer.Rails) (timings []probeTiming, _ peer.Rails) {
	results := make([]map[int][]time.Duration, rails)
	spent := make([]time.Duration, rails)
	for rail := range results {
		results[rail] = make(map[int][]time.Duration)
	}
	for n := range probeRounds {
		for rail := range rails {
			enough := spent[rail] >= probeEnough && n != 1 && agreed(results[rail])
			if down.Has(rail) || n > 0 && (enough || spent[rail] >= probeTooMuch) {
				continue
			}
			best, took := p.round(rail, results[rail][probeSmall])
			spent[rail] += took
			for bytes, elapsed := range best {
				if bytes > 0 && elapsed > 0 { // no time passes on a network in memory
					results[rail][bytes] = append(results[rail][bytes], elapsed)
				}
			}
		}
	}
	_, later := p.agree(false)
	if p.err != nil { // nothing was agreed on: no rail is to blame
		return nil, down
	}
	down |= later
	n := p.group.node
	for rail := range rails {
		if down.Has(rail) {
			n.log.Warn("rail not measured: it doesn't connect all ranks",
				"communicator", p.group.Name, "rail", n.fabric.Rails()[rail].Name)
			continue
		}
		for _, bytes := range []int{8, schedule.TreeBytes, schedule.ShortBytes, probeSmall, probeLarge} {
			if e := results[rail][bytes]; len(e) > 0 {
				timings = append(timings, probeTiming{rail, bytes, e})
			}
		}
	}
	return timings, down
}

// agreed reports whether what a rail took for the largest operations that it was probed with was
// seen twice.
func agreed(results map[int][]time.Duration) bool {
	e := results[probeLarge]
	if len(e) == 0 {
		e = results[probeSmall]
	}
	e = slices.Sorted(slices.Values(e))
	return len(e) > 1 && e[1].Seconds() <= probeAgreed*e[0].Seconds()
}

// round is one rail's quickest operation of each size, of the largest the last, and what all of
// them took together. They follow each other on the same rail: one that was idle may have saved up
// a burst for the first. Small is what probeSmall took in earlier rounds. What it returns is the
// same on all ranks.
func (p *prober) round(rail int, small []time.Duration) (best map[int]time.Duration, took time.Duration) {
	best = make(map[int]time.Duration)
	before := 0 // size of the operation whose time the next one carries
	run := func(bytes int) {
		elapsed := time.Duration(p.run(rail+1, bytes, int64(p.last)))
		if before > 0 {
			took += elapsed
		}
		if old, ok := best[before]; !ok || elapsed < old || before == probeLarge {
			best[before] = elapsed
		}
		before = bytes
	}
	for _, bytes := range probeSizes {
		run(bytes)
	}
	run(8)
	expected := max(slices.Min(append(slices.Clip(small), best[probeSmall])), 1) * (probeLarge / probeSmall)
	for range min(int64(probeBudget/expected), 2) {
		run(probeLarge)
	}
	run(8)
	return best, took
}
