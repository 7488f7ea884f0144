package simulate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/polyrail/polyrail/collective/op"
	"github.com/polyrail/polyrail/collective/plan"
	"github.com/polyrail/polyrail/collective/schedule"
	"github.com/polyrail/polyrail/collective/task"
)

// eagerBytes is the largest operation whose frames are copied and go without a grant: what
// polyrail.DefaultConfig says.
const eagerBytes = 256 << 10

// What a lane has scratch for at a time, as in actors/engine.
const (
	windowBytes = 1 << 20
	minWindow   = 4
)

// simulation is one operation on a cluster.
type simulation struct {
	cluster *Cluster
	call    Call
	net     *network
	queue   queue
	now     time.Duration

	algorithm op.Algorithm
	eager     bool
	ranks     []rank
	trees     []*tree // by rail; nil: its lane is flat
	dead      []time.Duration
	actions   []task.Action
	open      int // parts that have not ended
	last      time.Duration
	result    Result
	err       error
}

// rank is one rank's parts.
type rank struct {
	parts []*task.Task // by lane; nil: it carries nothing here, or goes over a tree
	plan  *plan.Plan
	// Frames that came before the rank had begun: by lane.
	waiting []early
	begun   bool
}

// early is a frame that has to wait.
type early struct {
	lane int
	f    *frame
}

// Run simulates an operation, and those before it. The error says what is wrong with its input, or
// is the context's.
func Run(ctx context.Context, c *Cluster, call Call) (Result, error) {
	if err := c.Check(); err != nil {
		return Result{}, err
	}
	if err := CheckBytes(c.ranks(), call.Bytes); err != nil {
		return Result{}, err
	}
	if call.Warmup < 0 {
		return Result{}, fmt.Errorf("warm-up of %d operations: can't be negative", call.Warmup)
	}
	if call.Warmup > 0 && len(c.Faults) > 0 {
		return Result{}, errors.New("a warm-up where a rail dies: it would die in one of those operations")
	}
	net := newNetwork(c)
	var at time.Duration
	for range call.Warmup {
		for _, before := range []Call{call, {Kind: op.KindBarrier}} {
			_, end, err := runOne(ctx, c, before, net, at)
			if err != nil {
				return Result{}, err
			}
			at = end
		}
	}
	result, _, err := runOne(ctx, c, call, net, at)
	return result, err
}

// runOne simulates an operation that all ranks call at a time, and says when its last rank ends.
func runOne(ctx context.Context, c *Cluster, call Call, net *network, at time.Duration) (Result, time.Duration, error) {
	s := &simulation{cluster: c, call: call, net: net, trees: make([]*tree, len(c.Rails)), last: at,
		eager: call.Bytes <= eagerBytes, ranks: make([]rank, c.ranks()), dead: make([]time.Duration, len(c.Rails))}
	for i := range s.dead {
		s.dead[i] = math.MaxInt64
	}
	for _, f := range c.Faults {
		s.dead[f.Rail] = min(s.dead[f.Rail], f.At)
	}
	if err := s.prepare(ctx); err != nil {
		return Result{}, 0, err
	}
	for r := range s.ranks {
		s.queue.add(event{at: work(s.net.processor(r), at, c.Ranks.Begin), kind: began, who: int32(r)})
	}
	for n := 0; ; n++ {
		e, ok := s.queue.next()
		if !ok {
			break
		}
		if n%4096 == 0 && ctx.Err() != nil {
			return Result{}, 0, context.Cause(ctx)
		}
		s.now = e.at
		s.result.Events++
		if s.handle(e); s.err != nil {
			return Result{}, 0, s.err
		}
	}
	if s.open > 0 {
		return Result{}, 0, fmt.Errorf("simulate: %d parts have not ended, and nothing happens any more", s.open)
	}
	s.result.Time, s.result.Ranks, s.result.Algorithm = s.last-at, len(s.ranks), s.algorithm
	return s.result, s.last, nil
}

// prepare makes every rank's program, plan and tasks, and the rails' trees.
func (s *simulation) prepare(ctx context.Context) error {
	n, k, places := s.cluster.ranks(), s.call.Kind, s.cluster.Places()
	s.algorithm = s.call.Algorithm
	if k.Empty() {
		s.call.Bytes, s.algorithm = 0, op.Auto
	}
	if s.algorithm == op.Auto {
		s.algorithm = schedule.Choose(k, int64(s.call.Bytes), n, places)
	}
	spec := schedule.Spec{Kind: k, Algorithm: s.algorithm, N: n, Base: 2, Hosts: places}
	if _, err := schedule.Build(spec); err != nil {
		return err
	}
	weights, err := s.weights()
	if err != nil {
		return err
	}
	cost := schedule.CostOf(spec)
	parts := plan.PartsOf(k, s.algorithm, n, s.call.Bytes, nil)
	over, flat := s.overTrees(weights)
	for r := range s.ranks {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		program := &schedule.Program{}
		if flat || r == 0 { // where all lanes go over trees, only their cut needs a program
			spec.Rank = op.Rank(r)
			if program, err = schedule.Build(spec); err != nil {
				return err
			}
		}
		l := plan.NewLayout(s.call.Bytes, 1, parts, program.Blocks, cost)
		p := plan.New(l, plan.Rounds(l.Rounds, weights), cost)
		if r == 0 {
			for _, rail := range over {
				s.trees[rail] = newTree(s, rail, p)
			}
		}
		s.ranks[r] = rank{parts: make([]*task.Task, len(weights)), plan: p}
		s.start(r, program, p)
	}
	return nil
}

// overTrees lists the rails whose lanes go over trees, and reports whether others carry something too.
func (s *simulation) overTrees(weights []uint32) (over []int, flat bool) {
	for i := range s.cluster.Rails {
		switch {
		case weights[i] == 0:
		case s.treed(&s.cluster.Rails[i]):
			over = append(over, i)
		default:
			flat = true
		}
	}
	return over, flat
}

// treed reports whether a rail carries the call over a tree.
func (s *simulation) treed(r *Rail) bool {
	return r.Tree != nil && s.call.Bytes >= r.Tree.From && OverTrees(s.call.Kind)
}

// OverTrees reports whether trees carry operations of a kind here.
func OverTrees(k op.Kind) bool {
	return k == op.KindAllReduce || k == op.KindReduce || k.Empty()
}

// start makes a rank's tasks.
func (s *simulation) start(r int, program *schedule.Program, p *plan.Plan) {
	for lane := range p.Lanes {
		if s.trees[lane] != nil {
			s.open++
			continue
		}
		if p.Lanes[lane].Rounds == 0 {
			continue
		}
		t := new(task.Task)
		t.Reset(task.Config{Program: program, Plan: p, Lane: lane, Eager: s.eager,
			Window: max(minWindow, windowBytes/max(1, p.SpanBytes(lane)))})
		s.ranks[r].parts[lane] = t
		s.open++
	}
}

// weights are the rails' shares of rounds.
func (s *simulation) weights() ([]uint32, error) {
	rails := s.cluster.Rails
	shares := s.call.Shares
	if shares == nil {
		shares = make([]float64, len(rails))
		quickest := 0
		for i := range rails {
			if cmp.Or(cmp.Compare(rails[i].Startup, rails[quickest].Startup), cmp.Compare(rails[quickest].Rate, rails[i].Rate)) < 0 {
				quickest = i
			}
			if s.call.Bytes >= SplitBytes {
				shares[i] = s.effective(&rails[i])
			}
		}
		if s.call.Bytes < SplitBytes {
			shares[quickest] = 1
		}
	}
	if len(shares) != len(rails) {
		return nil, fmt.Errorf("simulate: %d shares for %d rails", len(shares), len(rails))
	}
	var most float64
	for _, share := range shares {
		if share < 0 || math.IsNaN(share) || math.IsInf(share, 0) {
			return nil, errors.New("simulate: a share must not be negative")
		}
		most = max(most, share)
	}
	if most == 0 {
		return nil, errors.New("simulate: no rail has a share")
	}
	weights := make([]uint32, len(shares))
	for i, share := range shares {
		weights[i] = uint32(math.Round(share / most * 1000))
	}
	return weights, nil
}

// effective is the rate at which a rail carries an allreduce: a tree once each way at the same
// time, a ring 2(n-1)/n times.
func (s *simulation) effective(r *Rail) float64 {
	n := float64(s.cluster.ranks())
	if s.treed(r) {
		return r.Rate
	}
	return r.Rate * n / (2 * max(n-1, 1))
}

func (s *simulation) handle(e event) {
	switch {
	case e.lane < 0 || s.trees[e.lane] == nil || e.kind == began:
		s.flat(e)
	default:
		s.trees[e.lane].handle(e)
	}
}

// ended notes that a part is over.
func (s *simulation) ended() {
	s.open--
	s.last = max(s.last, s.now)
}
