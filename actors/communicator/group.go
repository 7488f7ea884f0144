package communicator

import (
	"errors"
	"fmt"
	"iter"
	"sync/atomic"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/polyrail/polyrail/actors/balancing"
	"github.com/polyrail/polyrail/actors/engine"
	"github.com/polyrail/polyrail/collective/fault"
	"github.com/polyrail/polyrail/collective/op"
	"github.com/polyrail/polyrail/collective/table"
	"github.com/polyrail/polyrail/collective/view"
	"github.com/polyrail/polyrail/messages"
)

// Group is what the node and the actors of one communicator share: its data path, and what became
// of it.
type Group struct {
	*engine.Group
	Balance  *balancing.Group
	Procs    []uint64     // incarnations by rank; set before the group is registered
	Attempts []*view.View // to shrink it: barriers entered in vain; the node actor's

	node *Node
	ending
	announced atomic.Bool   // its members agreed on it: what happens to it is told
	left      atomic.Bool   // its caller has closed it, and who is connected is told
	mail      atomic.Int64  // control messages in its actor's mailbox
	heard     []atomic.Bool // by rank: has acknowledged the farewell, or is not waited for
}

// maxMail bounds the control messages of all ranks that wait for a communicator's actor.
const maxMail = 16384

// Post gives a rank's control message to the communicator's actor. A rank that sends more than the
// actor takes breaks the communicator: without one of the messages another rank would wait for
// ever.
func (g *Group) Post(actor *actor.PID, m *Control) {
	if waiting := g.mail.Add(1); waiting > maxMail {
		g.mail.Add(-1)
		g.Fail(fmt.Errorf("rank %d (node %q): %d control messages wait: %w", m.From, g.Nodes[m.From],
			waiting-1, fault.ErrLimit), g.Seq())
		return
	}
	g.node.tell(actor, m)
}

// NewGroup makes a group of nodes by rank, which begins with a table. Its peers are attached, and
// Procs are set, before it is registered.
func (n *Node) NewGroup(id uint64, name string, rank op.Rank, nodes []string, hosts []view.Host,
	first *table.Table) *Group {
	g := &Group{Group: n.Engine.NewGroup(id, name, rank, nodes, hosts, first), node: n, ending: newEnding(),
		heard: make([]atomic.Bool, len(nodes))}
	g.heard[rank].Store(true)
	g.Fail = func(cause error, seq uint64) { g.End(cause, seq, true) }
	g.Hail = func(rank op.Rank) {
		g.control(rank, &messages.Control{Body: &messages.Control_Hail{Hail: &messages.Hail{}}})
	}
	g.Balance = n.Balancing.NewGroup(g.Group, g.gone, g.control)
	return g
}

// Announce tells of a communicator that is its caller's from now on.
func (g *Group) Announce() {
	g.announced.Store(true)
	g.Examine()
	g.node.Registry.Formed(g)
}

// Announced reports whether the communicator was announced.
func (g *Group) Announced() bool { return g.announced.Load() }

// Open starts the communicator actor of a registered group.
func (g *Group) Open() *Communicator {
	started := make(chan *Communicator, 1)
	g.node.System.Root.SpawnPrefix(actor.PropsFromProducer(func() actor.Actor {
		return &communicator{group: g, started: started}
	}, actor.WithDispatcher(g.node.Warm), g.node.Strategy(g).Props()), "communicator")
	return <-started
}

// control sends a message about this communicator to one rank; a lost peer is no error here: its
// loss is reported on its own. One that can't be sent to a living peer would be waited for in vain,
// so the communicator breaks. Timings alone may be left out.
func (g *Group) control(to op.Rank, m *messages.Control) { _ = g.send(to, m) }

// send is control for who waits for an answer, which does not come where there is an error.
func (g *Group) send(to op.Rank, m *messages.Control) error {
	m.Comm = g.ID
	err := g.Peers[to].SendControl(m)
	switch {
	case err == nil:
	case g.Peers[to].Lost() != nil:
		g.node.Log.Debug("control message not sent", "communicator", g.Name, "to", g.Nodes[to], "error", err)
	case m.GetWindows() != nil:
		g.node.Log.Warn("timings not sent", "communicator", g.Name, "to", g.Nodes[to], "error", err)
	default:
		err = fmt.Errorf("control message to rank %d: %w", to, err)
		g.Fail(err, 0)
	}
	return err
}

// farewell tells a rank that this one has closed the communicator after operation last.
func (g *Group) farewell(to op.Rank, last uint64) *messages.Control {
	leave := &messages.Leave{Last: last}
	if to >= 0 {
		leave.Sent = g.Transfers.Leave(to)
	}
	return &messages.Control{Comm: g.ID, Body: &messages.Control_Leave{Leave: leave}}
}

// Parting is what a rank is told that connects to this one because it waits for it: nil, unless the
// communicator has ended here. With rank -1 it is the answer to those who come when it is
// forgotten, and were never connected.
func (g *Group) Parting(to op.Rank) *messages.Control {
	seq, cause := g.Cause()
	switch {
	case cause != nil && !errors.Is(cause, fault.ErrClosed):
		return g.abortMessage(seq, cause)
	case to < 0 || g.left.Load():
		return g.farewell(to, g.Seq())
	case cause != nil:
		return g.abortMessage(seq, cause)
	}
	return nil
}

// unheard are the ranks whose acknowledgement of the farewell is awaited.
func (g *Group) unheard() iter.Seq[op.Rank] {
	return func(yield func(op.Rank) bool) {
		for rank := range g.heard {
			if !g.heard[rank].Load() && !yield(op.Rank(rank)) {
				return
			}
		}
	}
}

// tellConnected sends it to the ranks that this one is connected to.
func (g *Group) tellConnected(m *messages.Control) {
	for rank, p := range g.Peers {
		if p != nil && p.Awake() {
			g.control(op.Rank(rank), m)
		}
	}
}

// controlAll sends it to every other rank.
func (g *Group) controlAll(m *messages.Control) {
	for rank, p := range g.Peers {
		if p != nil {
			g.control(op.Rank(rank), m)
		}
	}
}
