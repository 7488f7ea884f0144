package balancing

import (
	"slices"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/polyrail/polyrail/actors/engine"
	"github.com/polyrail/polyrail/collective/balance"
	"github.com/polyrail/polyrail/collective/op"
	"github.com/polyrail/polyrail/collective/schedule"
	"github.com/polyrail/polyrail/collective/table"
	"github.com/polyrail/polyrail/messages"
	"github.com/polyrail/polyrail/railactors/supervise"
)

// balancer collects completion times per rail and size class; full windows go to rank 0,
// whose balancer merges those of all ranks and feeds them to the core. The tables that this
// decides on are published by the coordinator.
type balancer struct {
	group    *Group
	timers   [table.Families]*balance.Timer  // nil before a family's first operation
	families [table.Families]*balancedFamily // rank 0 only; nil where the table is the user's alone
	// A table is being agreed on: what comes in until then is of the one before.
	proposed bool
	trees    []uint64 // of the table in force
	pinned   bool     // a caller has set the table
	fresh    bool     // the tuning file lacks something that was measured
	timed    uint64   // operations
	control  balance.Control
}

// balancedFamily is what rank 0 knows of the operations of one family. That of allreduces is there
// from the start; the others begin with its table when something of theirs is measured.
type balancedFamily struct {
	collector *balance.Collector
	core      *balance.Balancer
	entries   []table.Entry // of the last table that core asked for; nil: the family has none
}

// sampled: of so many timed operations one has the time measured that timing it takes.
const sampled = 64

func newBalancer(g *Group) *balancer {
	b := &balancer{group: g}
	if g.Rank != 0 || !g.Measured() {
		return b
	}
	allReduces := b.family(table.AllReduces)
	if saved, ok := g.tuned(); ok {
		allReduces.core.Learn(saved.Samples)
	} else {
		b.learn(g.node.probes.of(g)) // of an earlier communicator of these nodes
	}
	return b
}

// timer is that of a family, from now on if there was none.
func (b *balancer) timer(f table.Family) *balance.Timer {
	if b.timers[f] == nil {
		b.timers[f] = balance.NewTimer(b.group.node.config.SplitBytes)
		b.timers[f].Family = f
	}
	return b.timers[f]
}

// family is what is known of a family, from now on if nothing was. Rank 0 only.
func (b *balancer) family(f table.Family) *balancedFamily {
	if b.families[f] != nil {
		return b.families[f]
	}
	g, n, inForce := b.group, b.group.node, b.group.Table.Load()
	start := &table.Table{Version: inForce.Version, Entries: inForce.Of(table.AllReduces)}
	setup := balance.Setup{
		Rails: n.engine.Rails, SplitBytes: n.config.SplitBytes, Start: start,
		Algorithm: func(bytes int64) op.Algorithm {
			return g.Algorithm(f.Kind(), start, bytes)
		},
		Owners: func(a op.Algorithm) int { return max(1, schedule.Parts(f.Kind(), a, g.Size)) },
	}
	collector := balance.NewCollector(g.Size, n.engine.Rails, b.splits(f),
		int64(n.engine.Config.EagerBytes))
	if f == table.AllReduces {
		setup.Ranges = n.config.Algorithms
		if n.engine.Config.Trees {
			setup.TreeBytes = int64(n.engine.Config.EagerBytes)
		}
		if n.engine.Config.Free {
			setup.Free = g.Rivals
			setup.Cost = func(a op.Algorithm) schedule.Cost {
				return g.CostOf(op.KindAllReduce, a, 0)
			}
		}
	} else {
		collector.Some()
	}
	b.families[f] = &balancedFamily{collector: collector, core: balance.NewBalancer(setup)}
	return b.families[f]
}

// balances reports whether this rank decides tables.
func (b *balancer) balances() bool { return b.families[table.AllReduces] != nil }

func (b *balancer) Receive(ctx actor.Context) {
	switch m := ctx.Message().(type) {
	case *RailFinished:
		b.finished(ctx, m)
	case RailChanged:
		b.disturbed()
	case *Timings:
		b.windows(ctx, m)
	case TableSwitched:
		b.switched(ctx)
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

// finished counts the rails of an operation until all were reported: their times are compared with
// each other.
func (b *balancer) finished(ctx actor.Context, m *RailFinished) {
	t := (*engine.Timed)(m)
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
	set, full := b.timer(m.Family).Add(m.Table, m.Split, balance.ClassOf(int64(m.Bytes)), m.Rails)
	m.Recycle()
	if !began.IsZero() {
		b.control.Spent += sampled * time.Since(began)
	}
	if !full {
		return
	}
	if b.balances() {
		b.observe(ctx, int(b.group.Rank), set)
		return
	}
	b.group.control(0, windowsMessage(set))
}

// disturbed: what this rank has measured since its last windows doesn't count, nor what the others
// have.
func (b *balancer) disturbed() {
	b.drop()
	if b.balances() {
		return
	}
	b.group.control(0, &messages.Control{
		Body: &messages.Control_Windows{Windows: &messages.Windows{Disturbed: true}}})
}

// drop begins all windows anew.
func (b *balancer) drop() {
	for f := range b.timers {
		if b.timers[f] != nil {
			b.timers[f].Drop()
		}
		if b.families[f] != nil {
			b.families[f].collector.Disturbed()
		}
	}
}

// switched: another table is in force.
func (b *balancer) switched(ctx actor.Context) {
	b.proposed = false
	defer b.follow(ctx)
	for f, family := range b.families {
		if family != nil {
			family.collector.Switch(b.splits(table.Family(f)))
		}
	}
}

// follow takes note of trees that have come or gone.
func (b *balancer) follow(ctx actor.Context) {
	f, t := b.families[table.AllReduces], b.group.Table.Load()
	if f == nil || slices.Equal(t.Trees, b.trees) {
		return
	}
	b.trees = t.Trees
	up := make([]bool, b.group.node.engine.Rails)
	for rail := range up {
		up[rail] = t.Tree(rail) != 0
	}
	if f.core.Trees(up) && !b.pinned {
		f.entries = f.core.Table()
		b.propose(ctx, &Propose{Entries: b.entries(), Balanced: true, Done: make(chan error, 1)})
	}
}

// splits are how the table in force divides the classes of a family.
func (b *balancer) splits(f table.Family) func(balance.Class) uint32 {
	return balance.SplitsOf(b.group.Table.Load(), f)
}

// windows takes another rank's timings.
func (b *balancer) windows(ctx actor.Context, m *Timings) {
	if !b.balances() {
		b.group.node.log.Warn("timings came to a rank that does not balance",
			"communicator", b.group.Name, "from", m.From, "rank", b.group.Rank)
		return
	}
	if w := m.Windows; w.GetDisturbed() {
		b.drop()
	} else {
		b.observe(ctx, int(m.From), windowsOf(w))
	}
}

func (b *balancer) observe(ctx actor.Context, rank int, set []balance.Window) {
	if b.proposed || len(set) == 0 || set[0].Family >= table.Families {
		return
	}
	began := time.Now()
	defer func() { b.control.Spent += time.Since(began) }()
	f := b.family(set[0].Family)
	merged, complete, err := f.collector.Observe(rank, set)
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
	if set[0].Family == table.AllReduces {
		b.fresh = true
		b.group.keepLater()
	}
	if f.core.Observe(merged) && !b.pinned {
		f.entries = f.core.Table()
		b.propose(ctx, &Propose{Entries: b.entries(), Balanced: true, Done: make(chan error, 1)})
	}
}

// entries are those of all families, that of allreduces first.
func (b *balancer) entries() (all []table.Entry) {
	for f, family := range b.families {
		if family == nil {
			continue
		}
		entries := family.entries
		if f == int(table.AllReduces) && entries == nil {
			entries = b.group.Table.Load().Of(table.AllReduces)
		}
		for _, e := range entries {
			e.Family = table.Family(f)
			all = append(all, e)
		}
	}
	return all
}

// propose has the coordinator, our sister, publish a table.
func (b *balancer) propose(ctx actor.Context, m *Propose) {
	b.proposed = true
	b.group.node.tell(ctx.Parent(), m)
}

func (b *balancer) learn(timings []probeTiming) {
	for _, t := range timings {
		b.families[table.AllReduces].core.Probed(t.rail, int64(t.bytes), t.elapsed...)
	}
}

// probed makes the first table of what the probe has measured.
func (b *balancer) probed(ctx actor.Context, m *probed) {
	b.learn(m.timings)
	f := b.families[table.AllReduces]
	f.entries = f.core.Decide()
	if m.saved != nil {
		f.entries = f.core.Restore(m.saved.Classes)
	}
	b.propose(ctx, &Propose{Entries: b.entries(), Balanced: true, Done: m.done})
}

// save answers with what was learned. A caller's table keeps the core from having its way: what it
// then believes to be in force isn't.
func (b *balancer) save(m *saveBalance) {
	if !b.balances() || b.pinned || !b.fresh {
		m.done <- learned{}
		return
	}
	saved, ok := b.families[table.AllReduces].core.Save()
	b.fresh = false
	m.done <- learned{saved, ok}
}

func (b *balancer) explain(m *explainBalance) {
	if !b.balances() {
		m.done <- balance.Report{Static: true}
		return
	}
	r := b.families[table.AllReduces].core.Report()
	for f, family := range b.families[1:] {
		if family != nil {
			r.Others = append(r.Others, balance.FamilyReport{Family: table.Family(f + 1),
				Classes: family.core.Report().Classes})
		}
	}
	r.Static, r.Control = b.pinned, b.control
	r.Control.Held = time.Duration(b.group.Held.Load())
	m.done <- r
}
