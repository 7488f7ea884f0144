package sim

import (
	"fmt"
	"slices"

	"github.com/polyrail/polyrail/collective/op"
	"github.com/polyrail/polyrail/collective/schedule"
	"github.com/polyrail/polyrail/test/order"
)

// Chosen is a run whose operations and cuts are given: all but the times comes from here.
type Chosen struct {
	Kind      op.Kind
	Algorithm op.Algorithm
	Ranks     int
	Base      int   // Bcube's
	Hosts     []int // by rank; nil: each has its own
	Root      int   // where the kind has one
	Cuts      []Cut
}

// Cut breaks the connection that carries a frame of the second of three operations, when it is sent
// or received.
type Cut struct {
	Point
	When Moment
}

// Point is a step of a schedule, of whatever block: what one rank sends to another in it.
type Point struct{ From, To, Step int }

// Moment is one of a frame's.
type Moment uint8

// The moments of a frame.
const (
	Sent     Moment = iota // it is on its way: it may arrive, or not
	Received               // it has arrived whole, which its sender doesn't know
)

func (c Cut) String() string {
	return fmt.Sprintf("%d→%d step %d %s", c.From, c.To, c.Step, [...]string{"sent", "received"}[c.When])
}

const (
	chosenCalls = 3
	chosenBytes = 12 * 64 // of a part: twelve rounds
	chosenSpan  = 3       // rounds
	chosenSeq   = 2       // the operation that is hit: one goes before, one after
)

// Points are all of a schedule.
func (c *Chosen) Points() (points []Point, err error) {
	places := schedule.NewHosts(c.Hosts)
	for r := range c.Ranks {
		p, err := schedule.Build(schedule.Spec{Kind: c.Kind, Algorithm: c.Algorithm,
			Rank: op.Rank(r), N: c.Ranks,
			Root: op.Rank(c.Root), Base: c.Base, Hosts: places})
		if err != nil {
			return nil, err
		}
		for i := range p.Code {
			if in := &p.Code[i]; in.Kind == schedule.Send {
				points = append(points, Point{r, int(in.Peer), in.Step})
			}
		}
	}
	slices.SortFunc(points, func(a, b Point) int {
		return (a.From-b.From)<<20 + (a.To-b.To)<<10 + a.Step - b.Step
	})
	return slices.Compact(points), nil
}

// drawChosen leaves to the seed what isn't chosen: times, limits and chances.
func (s *Sim) drawChosen() {
	p := &s.setup
	p.ranks, p.base, p.rails, p.calls = s.Chosen.Ranks, s.Chosen.Base, 2, chosenCalls
	p.hosts = s.Chosen.Hosts
	p.miniature, p.fine, p.perSpan, p.proposals, p.cuts = true, true, chosenSpan, 0, 0
	s.wereMade = make([]bool, len(s.Chosen.Cuts))
}

// fix makes a call one of the chosen run's: every part has two spans on each rail.
func (c *Chosen) fix(call *call) {
	call.kind, call.algorithm, call.root = c.Kind, c.Algorithm, c.Root
	if !c.Kind.Empty() {
		o := order.Operation{Kind: c.Kind, Algorithm: c.Algorithm, N: c.Ranks}
		call.bytes = chosenBytes * o.Parts()
	}
}

// meet makes the cuts that were chosen for a frame's moment.
func (s *Sim) meet(e *end, f *frame, when Moment) {
	if s.Chosen == nil || f == nil || f.kind != dataFrame || f.seq != chosenSeq {
		return
	}
	for i, c := range s.Chosen.Cuts {
		if !s.wereMade[i] && c.When == when && c.Point == (Point{f.from.id, f.to.id, f.step}) {
			s.wereMade[i] = true
			s.schedule(event{kind: chosenCut, at: s.now, end: e})
		}
	}
}

// allMet: a cut that was never made shows nothing.
func (s *Sim) allMet() {
	if s.Chosen == nil {
		return
	}
	if i := slices.Index(s.wereMade, false); i >= 0 {
		s.fail("the frame of cut %v never came", s.Chosen.Cuts[i])
	}
}
