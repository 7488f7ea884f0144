package sim

import (
	"slices"
	"time"

	"github.com/polyrail/polyrail/collective/balance"
	"github.com/polyrail/polyrail/collective/op"
	"github.com/polyrail/polyrail/collective/schedule"
	"github.com/polyrail/polyrail/collective/table"
)

// This file is about the runs in which nobody invents tables: the ranks time their rails, each by a
// clock of its own, rank 0's balancer decides, and what it decides is agreed on like any table. The
// Timer, Collector and Balancer are the real ones; how they are fed is as in actors/engine and
// actors/balancing.

// network is what a measured run plays on.
type network struct {
	perKiB [3]uint64 // ticks that a rail takes for that much, one frame after the other
	free   bool      // the balancer may choose algorithms
	sizes  [2]int    // of the operations
}

// tick is the length of a tick where time has a unit.
const tick = time.Microsecond

// helm is rank 0's balancer and its surroundings.
type helm struct {
	collector *balance.Collector
	balancer  *balance.Balancer
	wanted    *table.Table // the last one that the balancer has proposed
	proposed  bool         // a table is being agreed on: what comes in until then is of the one before
	effective []uint64     // of each committed table
}

// clock is a rank's own: its time runs at its own pace, from its own beginning.
type clock struct {
	pace  float64
	start time.Duration
}

func (s *Sim) time(r *rank) time.Duration {
	return r.clock.start + time.Duration(float64(time.Duration(s.now)*tick)*r.clock.pace)
}

// elapsed is the time as the peers' cores are told it.
func (s *Sim) elapsed() time.Duration { return time.Duration(s.now) * tick }

// timing is what an operation's rank knows of its rails.
type timing struct {
	begun     time.Duration
	began     bool
	last      []time.Duration // arrival, by rail that carried it; 0: nothing came
	bytes     []int64         // by rail
	before    []int64         // by rail: bytes of all operations, when the times began …
	then      []int64         // … and at the last arrival
	strayed   bool            // a frame came over another rail than planned
	disturbed int
}

// drawMeasured invents a run that is measured.
func (s *Sim) drawMeasured() setup {
	p := s.draw()
	p.ranks, p.rails = s.between(2, 4), s.between(1, 3)
	p.calls = s.between(260, 380)
	p.miniature, p.proposals, p.cuts = false, 0, pick(s, 0, 0, 2, 6)
	p.eagerBytes = pick(s, 0, 2<<10, 64<<10)
	p.creditBytes, p.inFlightBytes, p.poolBytes, p.copyBytes = 1<<20, 2<<20, 1<<20, 64<<10
	p.ackBytes, p.ackDelay = 256<<10, 1000
	p.delay, p.jitter, p.spike = pick[uint64](s, 5, 20, 100), pick[uint64](s, 0, 3, 10), pick[uint64](s, 0, 0, 500)
	p.thinkTime, p.kernelTime, p.readTime, p.writeTime = pick[uint64](s, 0, 10, 200), pick[uint64](s, 0, 3), pick[uint64](s, 0, 3), pick[uint64](s, 0, 3)
	n := network{free: s.chance(50)}
	fastest := pick[uint64](s, 2, 10, 50)
	for rail := range n.perKiB {
		n.perKiB[rail] = fastest * uint64(s.between(1, 8))
	}
	for i := range n.sizes {
		n.sizes[i] = pick(s, 64, 2<<10, 5<<10, 8<<10)
	}
	p.measured, p.network = true, n
	// Cuts and the like fall into the first half, so that the rest can show what settles.
	p.span = uint64(p.calls) * (p.thinkTime + 2*p.delay + fastest*4) / 2
	return p
}

// fixedRule is a rule by size, as actors has one.
func fixedRule(bytes int64) op.Algorithm {
	if bytes <= 2<<10 {
		return op.RecursiveDoubling
	}
	return op.Ring
}

// splitBytes is where operations of a measured run begin to be divided.
const splitBytes = 1 << 10

// startControl makes the clocks, and rank 0's balancer.
func (s *Sim) startControl(first *table.Table) {
	s.helm = helm{}
	if !s.setup.measured {
		return
	}
	for _, r := range s.ranks {
		r.timer, r.landed = balance.NewTimer(splitBytes), make([]int64, s.setup.rails)
		r.clock = clock{1 + 0.01*(2*s.rng.Float64()-1), time.Duration(s.rng.Int64N(int64(time.Hour)))}
	}
	setup := balance.Setup{
		Rails: s.setup.rails, SplitBytes: splitBytes, Start: first, Algorithm: fixedRule,
		Owners: func(a op.Algorithm) int { return schedule.Parts(op.KindAllReduce, a, s.setup.ranks) },
		Cost: func(a op.Algorithm) schedule.Cost {
			return s.cost(&call{kind: op.KindAllReduce, algorithm: a})
		},
	}
	if s.setup.free {
		setup.Free = func(int64) []op.Algorithm { return []op.Algorithm{op.Ring, op.RecursiveDoubling, op.Tree, op.Bcube} }
	}
	s.helm.collector = balance.NewCollector(s.setup.ranks, s.setup.rails, balance.SplitsOf(first, table.AllReduces), int64(s.setup.eagerBytes))
	s.helm.balancer = balance.NewBalancer(setup)
}

// startClocks begins an operation's timing.
func (s *Sim) startClocks(o *operation) {
	if !s.setup.measured || o.call.bytes == 0 {
		return
	}
	o.timing = timing{last: make([]time.Duration, s.setup.rails),
		bytes: make([]int64, s.setup.rails), then: make([]int64, s.setup.rails), disturbed: o.rank.disturbed}
	if o.call.eager {
		s.startTimes(o)
	}
}

// startTimes begins the times of all rails.
func (s *Sim) startTimes(o *operation) {
	t := &o.timing
	t.begun, t.began, t.before = s.time(o.rank), true, slices.Clone(o.rank.landed)
}

// tick notes a grant for a lane, or the arrival of a frame.
func (s *Sim) tick(o *operation, lane int, f *frame) {
	t, r := &o.timing, o.rank
	if t.last != nil && !t.began {
		s.startTimes(o)
	}
	if f != nil && r.landed != nil {
		r.landed[f.rail] += int64(f.length)
	}
	if t.last != nil && f != nil {
		t.last[f.rail], t.then[f.rail] = s.time(r), r.landed[f.rail]
		t.bytes[f.rail] += int64(f.length)
		t.strayed = t.strayed || f.rail != lane
	}
}

// timed gives what an operation took to the rank's timer, and full windows to rank 0.
func (s *Sim) timed(o *operation) {
	t, r := &o.timing, o.rank
	if t.last == nil || t.disturbed != r.disturbed {
		return
	}
	var total int64
	for _, bytes := range t.bytes {
		total += bytes
	}
	var times []balance.RailTime
	for rail, last := range t.last {
		if last <= t.begun {
			continue
		}
		bytes := int64(o.plan.Lanes[rail].Bytes)
		if t.strayed {
			bytes = int64(float64(o.plan.Bytes) * float64(t.bytes[rail]) / float64(total))
		}
		times = append(times, balance.RailTime{Rail: rail, Bytes: bytes,
			Elapsed: balance.Own(last-t.begun, t.bytes[rail], t.then[rail]-t.before[rail])})
	}
	class := balance.ClassOf(int64(o.call.bytes))
	set, full := r.timer.Add(o.call.table.Version, balance.SplitOf(o.call.table, table.AllReduces, class), class, times)
	if full {
		f := s.newFrame(windowsFrame, r, s.ranks[0])
		f.windows = set
		s.send(f)
	}
}

// disturb: a connection of a rank's was lost or has come back.
func (s *Sim) disturb(r *rank) {
	if r.timer == nil { // not yet: the first connections
		return
	}
	r.disturbed++
	r.timer.Drop()
	s.send(s.newFrame(windowsFrame, r, s.ranks[0])) // without windows
}

// windows takes a rank's measurements on rank 0, which may want another table then.
func (s *Sim) windows(f *frame) {
	c := &s.helm
	if f.windows == nil {
		c.collector.Disturbed()
		return
	}
	if c.proposed {
		return
	}
	merged, complete, err := c.collector.Observe(f.from.id, f.windows)
	s.failIf(err, "rank 0: windows")
	if !complete {
		return
	}
	s.stats.Sets++
	if c.balancer.Observe(merged) {
		c.proposed = true
		c.wanted = &table.Table{Entries: c.balancer.Table()}
		_, actions, err := s.ranks[0].leader.Propose(c.wanted)
		s.lead(actions, err)
	}
}

// committed: rank 0's windows are of another table from now on.
func (s *Sim) committed(commit *table.Commit) {
	if !s.setup.measured {
		return
	}
	s.helm.proposed = false
	s.helm.collector.Switch(balance.SplitsOf(s.helm.wanted, table.AllReduces))
	s.helm.effective = append(s.helm.effective, commit.Effective)
}

// settled counts the tables of the last third of a measured run.
func (s *Sim) settled() {
	if !s.setup.measured {
		return
	}
	late := 0
	for _, after := range s.helm.effective {
		if after > uint64(s.setup.calls)*2/3 {
			late++
		}
	}
	s.stats.Measured++
	s.stats.LateTables += late
	if late > mostLate {
		s.stats.Restless++
	}
	s.logf("tables after %v of %d operations", s.helm.effective, s.setup.calls)
}

// mostLate tables in the last third are trials: of shares and of two other algorithms, each begun
// and ended.
const mostLate = 6
