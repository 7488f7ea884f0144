package actors

import (
	"github.com/asynkron/protoactor-go/actor"
	"github.com/polyrail/polyrail/collective/balance"
	"github.com/polyrail/polyrail/messages"
)

// balancer collects completion times per rail and size class; full windows go to rank 0,
// whose balancer merges those of all ranks. What is decided from them is published by the coordinator.
type balancer struct {
	group     *group
	timer     *balance.Timer
	collector *balance.Collector // rank 0 only
}

func newBalancer(g *group, table uint32) *balancer {
	b := &balancer{group: g, timer: balance.NewTimer(g.node.rails)}
	if g.rank == 0 {
		b.collector = balance.NewCollector(g.size, g.node.rails, table)
	}
	return b
}

func (b *balancer) Receive(ctx actor.Context) {
	switch m := ctx.Message().(type) {
	case *railTiming:
		b.time(m)
	case *controlMessage:
		b.windows(m)
	case tableSwitched:
		if b.collector != nil {
			b.collector.Switch(uint32(m))
		}
	case *actor.Started, *actor.Stopping, *actor.Stopped, *actor.Restarting:
	default:
		b.group.node.unknown(ctx)
	}
}

func (b *balancer) time(m *railTiming) {
	w, full := b.timer.Add(m.rail, balance.ClassOf(int64(m.bytes)), m.table, int64(m.bytes), m.elapsed)
	if !full {
		return
	}
	if b.collector != nil {
		b.observe(int(b.group.rank), w)
		return
	}
	b.group.control(0, &messages.Control{Body: &messages.Control_Windows{Windows: &messages.Windows{
		Windows: []*messages.Window{windowMessage(w)}}}})
}

// windows takes another rank's timings.
func (b *balancer) windows(m *controlMessage) {
	if b.collector == nil {
		b.group.node.log.Warn("timings for rank 0 came to another rank", "communicator", b.group.name, "from", m.from, "rank", b.group.rank)
		return
	}
	for _, w := range m.body.GetWindows().GetWindows() {
		b.observe(int(m.from), windowOf(w))
	}
}

func (b *balancer) observe(rank int, w balance.Window) {
	merged, complete, err := b.collector.Observe(rank, w)
	switch {
	case err != nil:
		b.group.node.log.Warn("timings refused", "communicator", b.group.name, "from", rank, "error", err)
	case complete:
		b.group.node.log.Debug("timings", "communicator", b.group.name, "rail", merged.Rail,
			"class", merged.Class.String(), "mean", merged.Elapsed)
	}
}
