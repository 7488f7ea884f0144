package balance

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/polyrail/polyrail/collective/op"
	"github.com/polyrail/polyrail/collective/plan"
	"github.com/polyrail/polyrail/collective/schedule"
	"github.com/polyrail/polyrail/collective/table"
)

// fabric is a group of ranks that runs operations of one kind and size by their programs and plans.
// Each rank times what comes to it by its own clock, as a node does: of kinds with a root only some
// ranks measure anything. The times go through timers and a collector to the balancer.
type fabric struct {
	rng       *rand.Rand
	kind      op.Kind
	size      int
	rate      [][]float64 // by rank and rail, bytes/s in each direction
	noise     float64     // part of a rail's time, at most
	algorithm op.Algorithm
	programs  []*schedule.Program // by rank
	timers    []*Timer            // by rank
	collector *Collector
	b         *Balancer
	table     *table.Table
	trips     map[string]trip // by shares
}

const (
	fabricDelay = 50e-6 // seconds, of a frame on its way
	fabricSplit = 8 << 10
	fabricEager = 256 << 10
)

// newFabric has 3 to 6 ranks and two or three rails, up to 8 : 1 apart. In one of three a rank has
// a rail of half the rate.
func newFabric(kind op.Kind) func(seed uint64) simulation {
	return func(seed uint64) simulation {
		rng := rand.New(rand.NewPCG(seed, 52))
		ranks, fastest := 3+rng.IntN(4), 5e6*math.Pow(100, rng.Float64())
		var rails []float64
		for range 2 + rng.IntN(2) {
			rails = append(rails, fastest/math.Pow(8, rng.Float64()))
		}
		rate := make([][]float64, ranks)
		for rank := range rate {
			rate[rank] = slices.Clone(rails)
		}
		if rng.IntN(3) == 0 {
			rate[rng.IntN(ranks)][rng.IntN(len(rails))] /= 2
		}
		size := ranks * ((32 << 10) << rng.IntN(7))
		return startFabric(rng, kind, size, rate)
	}
}

func startFabric(rng *rand.Rand, kind op.Kind, size int, rate [][]float64) *fabric {
	ranks, rails := len(rate), len(rate[0])
	f := &fabric{rng: rng, kind: kind, size: size, rate: rate, noise: 0.05,
		algorithm: schedule.Choose(kind, int64(size), ranks, nil)}
	for rank := range ranks {
		p, err := schedule.Build(schedule.Spec{Kind: kind, Algorithm: f.algorithm, Rank: op.Rank(rank), N: ranks})
		if err != nil {
			panic(err)
		}
		f.programs = append(f.programs, p)
		f.timers = append(f.timers, NewTimer(fabricSplit))
	}
	start, err := Static(Equal(rails), fabricSplit, nil)
	if err != nil {
		panic(err)
	}
	f.table = start
	f.collector = NewCollector(ranks, rails, SplitsOf(start, table.AllReduces), fabricEager).Some()
	f.b = NewBalancer(Setup{Rails: rails, SplitBytes: fabricSplit, Start: start,
		Algorithm: func(bytes int64) op.Algorithm { return schedule.Choose(kind, bytes, ranks, nil) },
		Owners:    func(a op.Algorithm) int { return max(1, schedule.Parts(kind, a, ranks)) }})
	return f
}

func (f *fabric) cost() schedule.Cost {
	return schedule.CostOf(schedule.Spec{Kind: f.kind, Algorithm: f.algorithm, N: len(f.rate)})
}

func (f *fabric) layout(rank int) plan.Layout {
	p := f.programs[rank]
	return plan.NewLayout(f.size, 1, plan.Even(f.size, p.Parts), p.Blocks, f.cost())
}

func (f *fabric) shares() []int {
	return plan.Rounds(f.rounds(), f.table.Lookup(int64(f.size)).Weights)
}

func (f *fabric) rounds() int {
	return plan.RoundsOf(plan.Even(f.size, f.programs[0].Parts)[0], f.cost())
}

// next runs operations until the balancer has taken a set.
func (f *fabric) next() int {
	class := ClassOf(int64(f.size))
	for {
		t, observed := f.trip(f.shares()), false
		version, split := f.table.Version, SplitOf(f.table, table.AllReduces, class)
		for rank, timer := range f.timers {
			times := slices.Clone(t.times[rank])
			for i := range times {
				times[i].Elapsed = seconds(times[i].Elapsed.Seconds() * (1 + f.noise*(2*f.rng.Float64()-1)))
			}
			set, full := timer.Add(version, split, class, times)
			if !full {
				continue
			}
			merged, complete, err := f.collector.Observe(rank, set)
			if err != nil {
				panic(err)
			}
			if complete {
				observed = true
				f.observe(merged)
			}
		}
		if observed {
			return f.size
		}
	}
}

func (f *fabric) observe(merged []Window) {
	if f.b.Observe(merged) {
		f.table = &table.Table{Version: f.table.Version + 1, Entries: f.b.Table()}
		f.collector.Switch(SplitsOf(f.table, table.AllReduces))
	}
}

func (f *fabric) tables() int { return int(f.table.Version) - 1 }

func (f *fabric) over(int) float64 {
	takes := func(shares []int) float64 { return f.trip(shares).end }
	return takes(f.shares()) / least(f.likeRates(), 1, takes)
}

// likeRates are shares in proportion to the sums of the ranks' rates.
func (f *fabric) likeRates() []int {
	weights := make([]uint32, len(f.rate[0]))
	for _, rails := range f.rate {
		for i, r := range rails {
			weights[i] += uint32(r / 1e3)
		}
	}
	return plan.Rounds(f.rounds(), weights)
}

func (f *fabric) change(faster bool) bool {
	rail := most(f.shares())
	for _, rails := range f.rate {
		quarter(rails, rail, faster)
	}
	f.trips = nil
	return true
}

// trip is what an operation takes without noise.
type trip struct {
	times [][]RailTime // by rank
	end   float64      // seconds, when the last rank has all
}

func (f *fabric) trip(shares []int) trip {
	key := fmt.Sprint(shares)
	t, ok := f.trips[key]
	if !ok {
		t = newJourney(f, shares).run()
		if f.trips == nil {
			f.trips = make(map[string]trip)
		}
		f.trips[key] = t
	}
	return t
}

// journey is one operation on its way over a fabric.
type journey struct {
	*fabric
	plans []*plan.Plan // by rank
	need  map[place][]int
	links []link      // connections that have frames
	air   []parcel    // that have left, by their arrival
	now   float64     // seconds
	begun []float64   // by rank: when its clock began
	last  [][]float64 // by rank and rail: the latest arrival
}

// place is where an instruction runs.
type place struct{ rank, lane, span int }

// link is a connection of two ranks on a rail, with the frames that wait there.
type link struct {
	from, to, rail int
	frames         []parcel
	rate           float64 // now
}

// parcel is a frame.
type parcel struct {
	left float64 // bytes
	to   place
	recv schedule.Value // that it is for
	at   float64        // arrival
}

func newJourney(f *fabric, shares []int) *journey {
	j := &journey{fabric: f, need: make(map[place][]int)}
	for rank, p := range f.programs {
		j.plans = append(j.plans, plan.New(f.layout(rank), shares, f.cost()))
		begun := math.Inf(1) // when its first frame comes
		if f.size <= fabricEager || len(p.To) > 0 {
			begun = 0 // or with the grant of who it sends to
		}
		j.begun = append(j.begun, begun)
		j.last = append(j.last, make([]float64, len(shares)))
	}
	return j
}

// run plays the operation from beginning to end.
func (j *journey) run() (t trip) {
	for rank, p := range j.programs {
		for lane := range j.plans[rank].Lanes {
			for span := range j.plans[rank].Lanes[lane].Spans {
				j.start(p, place{rank, lane, span})
			}
		}
	}
	for j.advance() {
	}
	for rank, lasts := range j.last {
		var times []RailTime
		p := j.plans[rank]
		for rail, last := range lasts {
			t.end = max(t.end, last)
			if begun := j.begun[rank]; last > begun {
				times = append(times, RailTime{Rail: rail, Elapsed: seconds(last - begun),
					Bytes: int64(p.Bytes) * int64(p.Lanes[rail].Rounds) / int64(p.Rounds)})
			}
		}
		t.times = append(t.times, times)
	}
	return t
}

// start begins what depends on nothing.
func (j *journey) start(p *schedule.Program, at place) {
	need := make([]int, len(p.Code))
	for _, in := range p.Code {
		for _, u := range in.Uses {
			need[u]++
		}
	}
	j.need[at] = need
	for v, n := range slices.Clone(need) {
		if n == 0 && p.Code[v].Kind != schedule.Recv {
			j.begin(p, at, schedule.Value(v))
		}
	}
}

// begin runs an instruction. Kernels take no time.
func (j *journey) begin(p *schedule.Program, at place, v schedule.Value) {
	if in := &p.Code[v]; in.Kind == schedule.Send {
		j.send(at, in)
		return
	}
	j.done(p, at, v)
}

func (j *journey) done(p *schedule.Program, at place, v schedule.Value) {
	for _, u := range p.Code[v].Uses {
		if j.need[at][u]--; j.need[at][u] == 0 {
			j.begin(p, at, u)
		}
	}
}

func (j *journey) send(at place, in *schedule.Instr) {
	own := j.plans[at.rank]
	span, bytes := own.Lanes[at.lane].Spans[at.span], 0
	for _, block := range in.Blocks {
		_, length := own.Range(span.First, span.Count, block)
		bytes += length
	}
	to := int(in.Peer)
	recv, ok := j.programs[to].FindRecv(in.Mark, in.Step)
	if !ok {
		panic(fmt.Sprintf("nobody receives mark %d, step %d", in.Mark, in.Step))
	}
	frame := parcel{left: float64(bytes), to: place{to, at.lane, at.span}, recv: recv}
	i := slices.IndexFunc(j.links, func(l link) bool {
		return l.from == at.rank && l.to == to && l.rail == at.lane
	})
	if i < 0 {
		i = len(j.links)
		j.links = append(j.links, link{from: at.rank, to: to, rail: at.lane})
	}
	j.links[i].frames = append(j.links[i].frames, frame)
	j.begun[to] = min(j.begun[to], j.now+fabricDelay)
}

// advance goes on to the next frame that leaves or arrives; false: there is none.
func (j *journey) advance() bool {
	j.share()
	next, leaves := math.Inf(1), -1
	for i := range j.links {
		if l := &j.links[i]; len(l.frames) > 0 {
			if at := j.now + l.frames[0].left/l.rate; at < next {
				next, leaves = at, i
			}
		}
	}
	arrives := len(j.air) > 0 && j.air[0].at <= next
	switch {
	case arrives:
		next = j.air[0].at
	case leaves < 0:
		return false
	}
	for i := range j.links {
		if l := &j.links[i]; len(l.frames) > 0 {
			l.frames[0].left -= l.rate * (next - j.now)
		}
	}
	j.now = next
	if arrives {
		frame := j.air[0]
		j.air = j.air[1:]
		j.arrive(frame)
		return true
	}
	l := &j.links[leaves]
	frame := l.frames[0]
	l.frames = l.frames[1:]
	frame.at = j.now + fabricDelay
	j.air = append(j.air, frame)
	return true
}

// share gives the connections that meet at a rank's rail the same part of it.
func (j *journey) share() {
	rails := len(j.rate[0])
	sends, receives := make([]float64, len(j.rate)*rails), make([]float64, len(j.rate)*rails)
	for i := range j.links {
		if l := &j.links[i]; len(l.frames) > 0 {
			sends[l.from*rails+l.rail]++
			receives[l.to*rails+l.rail]++
		}
	}
	for i := range j.links {
		if l := &j.links[i]; len(l.frames) > 0 {
			l.rate = min(j.rate[l.from][l.rail]/sends[l.from*rails+l.rail],
				j.rate[l.to][l.rail]/receives[l.to*rails+l.rail])
		}
	}
}

func (j *journey) arrive(frame parcel) {
	at := frame.to
	j.last[at.rank][at.lane] = j.now
	j.done(j.programs[at.rank], at, frame.recv)
}
