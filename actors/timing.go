package actors

import (
	"time"

	"github.com/polyrail/polyrail/collective/op"
	"github.com/polyrail/polyrail/collective/task"
)

// startClocks readies the rails' clocks (Nezha's Timer, §III-E) of an operation that teaches the balancer something:
// one that is divided among ranks and could be among rails, and whose algorithm its caller left open. Others cost no
// look at the clock. Under mu.
func (o *operation) startClocks() {
	o.begun, o.finish = time.Time{}, o.finish[:0]
	if !o.group.timed() || o.request.Kind != op.KindAllReduce || o.request.Algorithm != op.Auto || o.request.rail != 0 || len(o.request.Src) == 0 {
		return
	}
	for range o.shape.config.Plan.PerRail {
		o.finish = append(o.finish, time.Time{})
	}
	if o.shape.eager {
		o.begun = time.Now()
	}
}

// clock notes an event on a rail. A rail's time ends with its last arrival; sends and acknowledgements
// of ours are in some other rank's arrivals. It begins, for all rails alike, when this rank takes part: at the launch
// of an eager operation, which sends at once, else with the first grant or frame of another rank,
// before which this rank only waits for one that is late. What is left of such waiting, for
// ranks further round the ring, rank 0 takes out (balance.Collector). Under mu.
func (o *operation) clock(kind task.EventKind, rail int) {
	if kind != task.Arrived && kind != task.Granted {
		return
	}
	now := time.Now()
	if o.begun.IsZero() {
		o.begun = now
	}
	if kind == task.Arrived {
		o.finish[rail] = now
	}
}

// timing is what a rail took for its part of an operation that has ended well.
func (o *operation) timing(rail int) (*railFinished, bool) {
	last := o.finish[rail]
	if last.IsZero() || o.cause != nil || !last.After(o.begun) {
		return nil, false
	}
	p := o.shape.config.Plan
	carried, share := p.Bytes, p.PerRail[rail]
	if share.Rounds < p.Rounds {
		carried = 0
		for owner := range p.Owners {
			_, length := p.Range(share.First, share.Rounds, owner)
			carried += length
		}
	}
	f := finishes.Get().(*railFinished)
	*f = railFinished{table: o.shape.table, bytes: p.Bytes, carried: carried, elapsed: last.Sub(o.begun)}
	return f, true
}

// timed reports whether there is anything to learn from the group's timings.
func (g *group) timed() bool { return g.node.rails > 1 && g.size > 1 }

// measured reports whether the group's rails are balanced by measurement.
func (g *group) measured() bool {
	return g.node.config.Measured && g.timed()
}
