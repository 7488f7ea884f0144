package sim

import (
	"github.com/polyrail/polyrail/collective/balance"
	"github.com/polyrail/polyrail/collective/op"
	"github.com/polyrail/polyrail/collective/plan"
	"github.com/polyrail/polyrail/collective/schedule"
	"github.com/polyrail/polyrail/collective/table"
)

// setup is what one seed plays with. Times are ticks without a unit; chances are in percent.
type setup struct {
	ranks, rails, base int
	hosts              []int   // by rank, the number of its host, for algorithms by host; nil: each has its own
	calls              int     // operations that each rank calls
	only               op.Kind // that is called, with one root, and with nothing of rank 1; 0: any
	inFlight           int     // operations of a rank that may be unresolved
	windows            []int   // by rank

	miniature bool // small spans, so that many of them cost little data
	fine      bool // rounds of a cache line, in miniature; some blocks have none
	perSpan   int  // rounds of a span, in miniature
	maxBytes  int  // of an operation

	eagerBytes    int // operations up to this go without grants
	creditBytes   int // eager bytes that a rank keeps for each other one
	copyBytes     int // frames up to this are copied when they are sent
	poolBytes     int // copies that a rank holds
	inFlightBytes int // unacknowledged in one direction of a pair
	ackBytes      int // received ones that are acknowledged at once
	proposals     int // tables
	cuts          int // connections that break

	span                 uint64 // in which proposals and cuts fall
	delay, jitter, spike uint64 // of a frame on its way; a spike is rare
	ackDelay             uint64
	repairTime           uint64 // of a connection
	kernelTime           uint64
	readTime, writeTime  uint64
	thinkTime            uint64 // between two calls

	slowReads, slowKernels, skewed, narrow int // chances

	measured bool // tables are made of what the ranks measure
	network
}

const maxRanks = 11 // a tree has two levels, and frames of several blocks

// travel is how long something takes from one rank to another.
func (s *Sim) travel() uint64 {
	d := s.setup.delay + s.some(s.setup.jitter)
	if s.setup.spike > 0 && s.rng.IntN(100) == 0 {
		d += s.some(s.setup.spike)
	}
	return d
}

// some is 0 … most.
func (s *Sim) some(most uint64) uint64 {
	if most == 0 {
		return 0
	}
	return s.rng.Uint64N(most + 1)
}

func (s *Sim) between(low, high int) int { return low + s.rng.IntN(high-low+1) }
func (s *Sim) chance(percent int) bool   { return percent > 0 && s.rng.IntN(100) < percent }

// pick is one of the values.
func pick[T any](s *Sim, values ...T) T { return values[s.rng.IntN(len(values))] }

// upTo is 0 … limit, small values as likely as large ones.
func (s *Sim) upTo(limit int) int {
	return s.rng.IntN(limit>>s.rng.IntN(9) + 1)
}

func (s *Sim) draw() setup {
	p := setup{
		ranks:    pick(s, 1, 2, 2, 3, 3, 4, 4, 5, 6, 7, 8, s.between(9, maxRanks)),
		rails:    s.between(1, 3),
		base:     s.between(2, 4),
		calls:    s.between(1, 10),
		inFlight: s.between(1, 4),

		miniature:     !s.chance(4),
		fine:          s.chance(70),
		perSpan:       s.between(1, 4),
		eagerBytes:    pick(s, 0, 64, 512, 2<<10, 64<<10),
		creditBytes:   pick(s, 0, 300, 1<<10, 4<<10, 1<<20),
		copyBytes:     pick(s, 0, 256, 64<<10),
		poolBytes:     pick(s, 0, 1<<10, 1<<20),
		inFlightBytes: pick(s, 1, 200, 2<<10, 2<<20),
		ackBytes:      pick(s, 1, 500, 256<<10),
		proposals:     pick(s, 0, 0, 1, 2, 6),
		cuts:          pick(s, 0, 0, 1, 3, 10),

		delay:      pick[uint64](s, 0, 1, 10),
		jitter:     pick[uint64](s, 0, 3, 30, 300),
		spike:      pick[uint64](s, 0, 0, 1000, 20000),
		ackDelay:   pick[uint64](s, 0, 5, 500),
		kernelTime: pick[uint64](s, 0, 3, 100),
		readTime:   pick[uint64](s, 0, 3, 100),
		writeTime:  pick[uint64](s, 0, 3, 100),
		repairTime: pick[uint64](s, 0, 100, 3000),
		thinkTime:  pick[uint64](s, 0, 10, 1000),

		slowReads:   pick(s, 0, 10, 50),
		slowKernels: pick(s, 0, 10, 50),
		skewed:      pick(s, 0, 10, 50),
		narrow:      pick(s, 0, 30),
	}
	for rail := range p.perKiB { // some carry one frame after the other, and not equally fast
		p.perKiB[rail] = pick[uint64](s, 0, 0, 50, 500)
	}
	p.maxBytes = 64 << 10 / p.ranks // about as much work for any number of ranks
	if p.miniature {
		p.maxBytes = 12 << 10 / p.ranks
	}
	switch s.rng.IntN(100) {
	case 0:
		p.maxBytes = 300 << 10
		p.miniature = false
	case 1, 2: // some ranks are many operations ahead of others, for which they wait in few kinds
		p.calls, p.maxBytes = s.between(50, 150), 1<<10
		p.only = pick(s, op.KindBroadcast, op.KindReduce, op.KindGather, op.KindGather,
			op.KindScatter, op.KindScan)
	}
	p.span = uint64(p.calls) * (p.thinkTime + p.delay + p.jitter + p.ackDelay + 10)
	p.windows = s.drawWindows(maxRanks)
	return p
}

func (s *Sim) drawWindows(ranks int) []int {
	windows := make([]int, ranks)
	for i := range windows {
		windows[i] = s.between(1, 3)
	}
	return windows
}

// drawMany is a run of many ranks: fewer operations, of the fewest bytes that have parts for all.
func (s *Sim) drawMany() {
	p := &s.setup
	p.ranks, p.rails = s.Ranks, s.between(1, 2)
	p.calls, p.only = s.between(1, 3), 0
	p.miniature, p.maxBytes = true, 16*p.ranks
	p.cuts = pick(s, 0, 3, 30)
	p.span = uint64(p.calls) * (p.thinkTime + p.delay + p.jitter + p.ackDelay + 10)
	p.windows = s.drawWindows(p.ranks)
}

// drawHosts says where ranks run: in blocks or dealt in turn, equally many on each host, or most on the
// last one.
func (s *Sim) drawHosts(ranks int) []int {
	numbers := make([]int, ranks)
	hosts, kind := s.between(1, ranks), s.rng.IntN(3)
	for r := range numbers {
		numbers[r] = [...]int{r * hosts / ranks, r % hosts, min(r, hosts-1)}[kind]
	}
	return numbers
}

// drawCall invents an operation, the same for all ranks.
func (s *Sim) drawCall() *call {
	c := &call{kind: op.KindAllReduce, inPlace: s.rng.Uint32(), subtract: s.chance(50)}
	switch {
	case s.setup.measured:
		c.bytes = s.setup.sizes[s.rng.IntN(len(s.setup.sizes))]
	case s.Chosen != nil:
		s.Chosen.fix(c)
		return c
	default:
		switch {
		case s.setup.only != 0:
			c.kind = s.setup.only
		case !s.chance(20):
			c.kind = pick(s, kinds...)
		}
		if c.kind.Rooted() && s.setup.only == 0 {
			c.root = s.rng.IntN(s.setup.ranks)
		}
		c.bytes = s.upTo(s.setup.maxBytes)
		if s.chance(5) || c.kind.Empty() {
			c.bytes = 0
		}
	}
	c.algorithm = pick(s, schedule.Algorithms(c.kind)...)
	if givesCounts(c.kind) && (s.setup.only != 0 || s.chance(50)) {
		s.drawCounts(c)
	} else {
		c.bytes -= c.bytes % c.multiple(s.setup.ranks)
	}
	return c
}

// givesCounts reports whether callers may give the parts of a kind, each another length.
func givesCounts(k op.Kind) bool {
	switch k {
	case op.KindReduceScatter, op.KindAllGather, op.KindGather, op.KindScatter:
		return true
	}
	return false
}

// drawCounts divides an operation unevenly.
func (s *Sim) drawCounts(c *call) {
	for range s.setup.ranks {
		c.counts = append(c.counts, 4*s.upTo(2*c.bytes/s.setup.ranks/4))
	}
	if s.setup.only != 0 && s.setup.ranks > 1 {
		c.counts[1] = 0
	}
	c.bytes = c.counts.Total()
}

// multiple is what divides the bytes of an operation whose parts nobody gives: an element, or one
// for each rank.
func (c *call) multiple(ranks int) int {
	if givesCounts(c.kind) || c.kind == op.KindAllToAll {
		return 4 * ranks
	}
	return 4
}

// equalTable divides everything evenly: where a measured run begins.
func (s *Sim) equalTable() *table.Table {
	return &table.Table{Entries: []table.Entry{{Weights: balance.Equal(s.setup.rails)}}}
}

// drawTable invents a table.
func (s *Sim) drawTable() *table.Table {
	t := &table.Table{}
	end := int64(0)
	for range s.rng.IntN(3) {
		end += 1 + s.rng.Int64N(4<<10)
		t.Entries = append(t.Entries, s.drawEntry(end))
	}
	t.Entries = append(t.Entries, s.drawEntry(0))
	return t
}

func (s *Sim) drawEntry(end int64) table.Entry {
	e := table.Entry{MaxBytes: end, Weights: make([]uint32, s.setup.rails)}
	for rail := range e.Weights {
		e.Weights[rail] = pick[uint32](s, 0, 1, 1, 3, 100)
	}
	e.Weights[s.rng.IntN(s.setup.rails)] = 1
	if s.chance(20) {
		e.Algorithm = pick(s, schedule.Algorithms(op.KindAllReduce)...)
	}
	return e
}

// planOf cuts an operation for one rank, as plan.New does, or, in miniature, in spans of a few
// rounds.
func (s *Sim) planOf(c *call, blocks []schedule.Block) *plan.Plan {
	cost := s.cost(c)
	if s.setup.miniature && s.setup.fine {
		// As if frames were so wide that a block has a line in each.
		cost.Widest = plan.MaxSpanBytes / 64
	}
	l := plan.NewLayout(c.bytes, 4, c.parts, blocks, cost)
	rounds := plan.Rounds(l.Rounds, c.table.Lookup(int64(c.bytes)).Weights)
	if s.setup.miniature {
		return plan.NewSpans(l, rounds, s.setup.perSpan)
	}
	return plan.New(l, rounds, cost)
}
