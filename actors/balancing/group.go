package balancing

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/polyrail/polyrail/actors/engine"
	"github.com/polyrail/polyrail/actors/tuning"
	"github.com/polyrail/polyrail/collective/balance"
	"github.com/polyrail/polyrail/collective/op"
	"github.com/polyrail/polyrail/messages"
	"github.com/polyrail/polyrail/railactors"
)

// Config is how a node's rails are measured. The root package validates and fills it.
type Config struct {
	Probe      bool            // measure each rail when a communicator forms
	Tuning     string          // file of what was measured before; "": none
	SplitBytes int64           // smaller operations use one rail
	Algorithms []balance.Range // the user's choice of algorithms
}

// Node is what the communicators of a node share of its balancing: what was measured before.
type Node struct {
	config Config
	engine *engine.Engine
	system *actor.ActorSystem
	fabric *railactors.Fabric
	log    *slog.Logger
	probes probes
	tuning *tuning.Store // nil: nothing is kept
}

// NewNode begins with what the tuning file says. The engine knows its rails.
func NewNode(cfg Config, e *engine.Engine, system *actor.ActorSystem, fabric *railactors.Fabric,
	log *slog.Logger) *Node {
	n := &Node{config: cfg, engine: e, system: system, fabric: fabric, log: log}
	n.openTuning()
	return n
}

// tell sends a message from outside any actor.
func (n *Node) tell(pid *actor.PID, message any) { n.system.Root.Send(pid, message) }

// Group is what balancing knows of one communicator.
type Group struct {
	*engine.Group
	// How long calls have waited for a table to be agreed on, in ns; the coordinator's.
	Held atomic.Int64

	node    *Node
	control func(to op.Rank, m *messages.Control)
	gone    <-chan struct{} // closed when the communicator's actors have stopped
	tuner   tuner
}

// NewGroup makes the balancing of a communicator; control sends a message to one of its ranks.
func (n *Node) NewGroup(g *engine.Group, gone <-chan struct{},
	control func(to op.Rank, m *messages.Control)) *Group {
	return &Group{Group: g, node: n, control: control, gone: gone}
}

// Spawn starts the balancer as a child of the communicator's actor, which it asks for tables. The
// communicator has its first table.
func (g *Group) Spawn(ctx actor.Context, d actor.Dispatcher) *actor.PID {
	pid := ctx.SpawnPrefix(actor.PropsFromProducer(func() actor.Actor { return newBalancer(g) },
		actor.WithDispatcher(d)), "balancer")
	g.tuner.balancer.Store(pid)
	return pid
}

// Agreed waits for the answer to a proposal. One that came as the context or the communicator ended
// counts.
func (g *Group) Agreed(ctx context.Context, done <-chan error) error {
	select {
	case err := <-done:
		return err
	case <-g.Closing:
	case <-g.Ended:
	case <-ctx.Done():
	}
	select {
	case err := <-done:
		return err
	default:
	}
	if err := g.Usable(); err != nil {
		return err
	}
	return fmt.Errorf("communicator %q: while the ranks agree on a table: %w", g.Name, context.Cause(ctx))
}

// Report is what rank 0 knows of its rails and has decided for each size.
func (g *Group) Report(ctx context.Context) (balance.Report, error) {
	if g.Rank != 0 {
		return balance.Report{}, fmt.Errorf(
			"communicator %q: rank 0 (node %q) balances, this is rank %d", g.Name, g.Nodes[0], g.Rank)
	}
	if err := g.ShutError(); err != nil {
		return balance.Report{}, err
	}
	if err := g.Over(ctx); err != nil {
		return balance.Report{}, err
	}
	m := &explainBalance{make(chan balance.Report, 1)}
	g.node.tell(g.tuner.balancer.Load(), m)
	select {
	case r := <-m.done:
		return r, nil
	case <-g.gone:
		return balance.Report{}, cmp.Or(g.ShutError(), g.ClosedError())
	case <-ctx.Done():
		return balance.Report{}, fmt.Errorf("communicator %q: balance: %w", g.Name, context.Cause(ctx))
	}
}
