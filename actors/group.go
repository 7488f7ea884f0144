package actors

import (
	"fmt"
	"sync/atomic"

	"github.com/polyrail/polyrail/actors/balancing"
	"github.com/polyrail/polyrail/actors/engine"
	"github.com/polyrail/polyrail/collective/op"
	"github.com/polyrail/polyrail/collective/table"
	"github.com/polyrail/polyrail/collective/view"
	"github.com/polyrail/polyrail/messages"
)

// group is what the node and the actors of one communicator share: its data path, and what became of it.
type group struct {
	*engine.Group
	balance *balancing.Group
	node    *node
	procs   []uint64 // incarnations by rank; set before the group is registered
	ending

	attempts []*view.View // to shrink it: barriers entered in vain; the node actor's

	formed atomic.Bool // its members agreed on it: what happens to it is told
}

func newGroup(n *node, id uint64, name string, rank op.Rank, nodes []string, first *table.Table) *group {
	g := &group{Group: n.engine.NewGroup(id, name, rank, nodes, first), node: n, ending: newEnding()}
	g.Fail = func(cause error, seq uint64) { n.breakGroup(g, cause, seq, true) }
	g.balance = n.balancing.NewGroup(g.Group, g.gone, g.control)
	return g
}

// isFormed tells the node's subscribers of a communicator that is its caller's from now on.
func (g *group) isFormed() {
	g.formed.Store(true)
	g.Examine()
	g.node.events.emit(Event{Kind: CommunicatorFormed, Communicator: g.Name, Rank: int(g.Rank)})
}

// control sends a message about this communicator to one rank; a lost peer is no error here: its loss is
// reported on its own. One that can't be sent to a living peer would be waited for in vain, so the
// communicator breaks. Timings alone may be left out.
func (g *group) control(to op.Rank, m *messages.Control) {
	m.Comm = g.ID
	err := g.Peers[to].SendControl(m)
	switch {
	case err == nil:
	case g.Peers[to].Lost() != nil:
		g.node.log.Debug("control message not sent", "communicator", g.Name, "to", g.Nodes[to], "error", err)
	case m.GetWindows() != nil:
		g.node.log.Warn("timings not sent", "communicator", g.Name, "to", g.Nodes[to], "error", err)
	default:
		g.node.breakGroup(g, fmt.Errorf("control message to rank %d: %w", to, err), 0, true)
	}
}

// controlAll sends it to every other rank.
func (g *group) controlAll(m *messages.Control) {
	for rank, p := range g.Peers {
		if p != nil {
			g.control(op.Rank(rank), m)
		}
	}
}
