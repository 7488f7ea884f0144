package balancing

import (
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/polyrail/polyrail/actors/engine"
	"github.com/polyrail/polyrail/collective/balance"
	"github.com/polyrail/polyrail/collective/op"
	"github.com/polyrail/polyrail/collective/schedule"
	"github.com/polyrail/polyrail/messages"
	"github.com/polyrail/polyrail/railactors/supervise"
)

// balancer collects completion times per rail and size class; full windows go to rank 0,
// whose balancer merges those of all ranks and feeds them to the core. The tables that this
// decides on are published by the coordinator.
type balancer struct {
	group *Group
	timer *balance.Timer

	// Rank 0 only, and nil where the table is the user's alone.
	collector *balance.Collector
	core      *balance.Balancer
	proposed  bool   // a table is being agreed on: what comes in until then is of the one before
	pinned    bool   // a caller has set the table
	fresh     bool   // something was measured that the tuning file doesn't have
	timed     uint64 // operations
	control   balance.Control
}

// sampled: of so many timed operations one has the time measured that timing it takes.
const sampled = 64

func newBalancer(g *Group) *balancer {
	b := &balancer{group: g, timer: balance.NewTimer(g.node.config.SplitBytes)}
	n, start := g.node, g.Table.Load()
	if g.Rank != 0 || !g.Measured() {
		return b
	}
	b.collector = balance.NewCollector(g.Size, n.engine.Rails, start.Version, int64(n.engine.Config.EagerBytes))
	setup := balance.Setup{
		Rails: n.engine.Rails, SplitBytes: n.config.SplitBytes, Ranges: n.config.Algorithms, Start: start,
		Algorithm: func(bytes int64) op.Algorithm {
			return g.Algorithm(start, bytes)
		},
		Owners: func(a op.Algorithm) int { return schedule.Parts(op.KindAllReduce, a, g.Size) },
	}
	if n.engine.Config.Free {
		setup.Free = g.Rivals
		setup.Cost = func(a op.Algorithm) schedule.Cost {
			return schedule.CostOf(op.KindAllReduce, a, g.Size, n.engine.Config.BcubeBase)
		}
	}
	b.core = balance.NewBalancer(setup)
	if saved, ok := g.tuned(); ok {
		b.core.Learn(saved.Samples)
	} else {
		b.learn(n.probes.of(g)) // of an earlier communicator of these nodes
	}
	return b
}

func (b *balancer) Receive(ctx actor.Context) {
	switch m := ctx.Message().(type) {
	case *RailFinished:
		b.finished(ctx, m)
	case RailChanged:
		b.disturbed()
	case *Timings:
		b.windows(ctx, m)
	case TableSwitched:
		b.switched(uint32(m))
	case TablePinned:
		b.pinned = true
	case *probed:
		b.probed(ctx, m)
	case *explainBalance:
		b.explain(m)
	case *saveBalance:
		b.save(m)
	case *actor.Started, *actor.Stopping, *actor.Stopped, *actor.Restarting:
	default:
		supervise.Unknown(ctx, b.group.node.log)
	}
}

// finished counts the rails of an operation until all were reported: their times are compared with each other.
func (b *balancer) finished(ctx actor.Context, m *RailFinished) {
	t := m.operation
	*m = RailFinished{}
	finishes.Put(m)
	if t.Finished++; t.Finished == len(t.Rails) {
		b.time(ctx, t)
	}
}

func (b *balancer) time(ctx actor.Context, m *engine.Timed) {
	var began time.Time
	b.timed++
	b.control.Operations += uint64(m.StandsFor)
	if b.timed%sampled == 0 {
		began = time.Now()
	}
	var busy time.Duration
	for _, r := range m.Rails {
		busy = max(busy, r.Elapsed)
	}
	b.control.Busy += busy * time.Duration(m.StandsFor)
	set, full := b.timer.Add(m.Table, balance.ClassOf(int64(m.Bytes)), m.Rails)
	m.Recycle()
	if !began.IsZero() {
		b.control.Spent += sampled * time.Since(began)
	}
	if !full {
		return
	}
	if b.collector != nil {
		b.observe(ctx, int(b.group.Rank), set)
		return
	}
	b.group.control(0, windowsMessage(set))
}

// disturbed: what this rank has measured since its last windows doesn't count, nor what the others have.
func (b *balancer) disturbed() {
	b.timer.Drop()
	if b.collector != nil {
		b.collector.Disturbed()
		return
	}
	b.group.control(0, &messages.Control{Body: &messages.Control_Windows{Windows: &messages.Windows{Disturbed: true}}})
}

// switched: windows of another table count from now on.
func (b *balancer) switched(version uint32) {
	b.proposed = false
	if b.collector != nil {
		b.collector.Switch(version)
	}
}

// windows takes another rank's timings.
func (b *balancer) windows(ctx actor.Context, m *Timings) {
	if b.collector == nil {
		b.group.node.log.Warn("timings came to a rank that does not balance", "communicator", b.group.Name, "from", m.From, "rank", b.group.Rank)
		return
	}
	if w := m.Windows; w.GetDisturbed() {
		b.timer.Drop()
		b.collector.Disturbed()
	} else {
		b.observe(ctx, int(m.From), windowsOf(w))
	}
}

func (b *balancer) observe(ctx actor.Context, rank int, set []balance.Window) {
	if b.proposed {
		return
	}
	began := time.Now()
	defer func() { b.control.Spent += time.Since(began) }()
	merged, complete, err := b.collector.Observe(rank, set)
	if err != nil {
		b.group.node.log.Warn("timings refused", "communicator", b.group.Name, "from", rank, "error", err)
		return
	}
	if !complete {
		return
	}
	for _, w := range merged {
		b.group.node.log.Debug("timings", "communicator", b.group.Name, "rail", w.Rail,
			"class", w.Class.String(), "bytes", w.Bytes, "mean", w.Elapsed)
	}
	if b.core == nil {
		return
	}
	b.fresh = true
	b.group.keepLater()
	if b.core.Observe(merged) && !b.pinned {
		b.propose(ctx, &Propose{Entries: b.core.Table(), Balanced: true, Done: make(chan error, 1)})
	}
}

// propose has the coordinator, our sister, publish a table.
func (b *balancer) propose(ctx actor.Context, m *Propose) {
	b.proposed = true
	b.group.node.tell(ctx.Parent(), m)
}

func (b *balancer) learn(timings []probeTiming) {
	for _, t := range timings {
		b.core.Probed(t.rail, int64(t.bytes), t.elapsed...)
	}
}

// probed makes the first table of what the probe has measured.
func (b *balancer) probed(ctx actor.Context, m *probed) {
	b.learn(m.timings)
	entries := b.core.Decide()
	if m.saved != nil {
		entries = b.core.Restore(m.saved.Classes)
	}
	b.propose(ctx, &Propose{Entries: entries, Balanced: true, Done: m.done})
}

// save answers with what was learned. A caller's table keeps the core from having its way: what it
// then believes to be in force isn't.
func (b *balancer) save(m *saveBalance) {
	if b.core == nil || b.pinned || !b.fresh {
		m.done <- learned{}
		return
	}
	saved, ok := b.core.Save()
	b.fresh = false
	m.done <- learned{saved, ok}
}

func (b *balancer) explain(m *explainBalance) {
	if b.core == nil {
		m.done <- balance.Report{Static: true}
		return
	}
	r := b.core.Report()
	r.Static, r.Control = b.pinned, b.control
	r.Control.Held = time.Duration(b.group.Held.Load())
	m.done <- r
}
