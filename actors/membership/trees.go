package membership

import (
	"fmt"
	"slices"

	"github.com/polyrail/polyrail/actors/communicator"
	"github.com/polyrail/polyrail/collective/fault"
	"github.com/polyrail/polyrail/messages"
	"github.com/polyrail/polyrail/railactors"
)

// This file is about aggregation trees: it brings what nodes say of them to those whom it concerns.

// broadcast sends a message by gossip to a node, or to all others if it has no name. Whoever waits
// for an answer asks again.
func (n *node) broadcast(to string, m *messages.Rendezvous) {
	g := n.cast.Load()
	if g == nil {
		return
	}
	nodes := []string{to}
	if to == "" {
		nodes = nil
		for _, member := range g.Members() {
			if member.Node != n.config.Node {
				nodes = append(nodes, member.Node)
			}
		}
	}
	for _, node := range nodes {
		if err := g.Send(node, m); err != nil {
			n.log.Debug("rendezvous message not sent", "to", node, "error", err)
		}
	}
}

// paths are where living nodes stand, as they have said by gossip.
func (n *node) paths() map[string]string {
	all := make(map[string]string)
	if g := n.cast.Load(); g != nil {
		for _, m := range g.Members() {
			all[m.Node] = m.Path
		}
	}
	return all
}

// ofTrees takes a rendezvous message about trees, and reports whether it is one.
func (n *node) ofTrees(from string, m *messages.Rendezvous) bool {
	switch b := m.GetBody().(type) {
	case *messages.Rendezvous_TreeSeek:
		n.serves.Seek(from, b.TreeSeek)
	case *messages.Rendezvous_TreeRequest:
		neighbours := append(slices.Clip(b.TreeRequest.GetMembers()), b.TreeRequest.GetParent())
		if stale := n.staleMember(neighbours); stale != "" {
			n.log.Warn("request for an aggregation tree dropped: a process that it names is no more", "from",
				from, "peer", stale)
			return true
		}
		n.serves.Request(from, b.TreeRequest)
	case *messages.Rendezvous_TreeDestroy:
		n.serves.Destroy(from, b.TreeDestroy)
	case *messages.Rendezvous_TreeQuery:
		n.broadcast(from, &messages.Rendezvous{Body: &messages.Rendezvous_TreeReport{
			TreeReport: n.serves.Report(b.TreeQuery.GetId())}})
	case *messages.Rendezvous_TreeReport:
		n.queries.answered(from, b.TreeReport)
	case *messages.Rendezvous_TreeOffer, *messages.Rendezvous_TreeAnswer:
		for _, c := range *n.groups.Load() {
			if pid := c.pid.Load(); pid != nil && c.group.Rank == 0 {
				n.tell(pid, &communicator.Rendezvous{From: from, Message: m})
			}
		}
	default:
		return false
	}
	return true
}

// staleMember is a node of which gossip knows another process than is meant; "" if there is none.
// To connect to the one that is meant would end what there is with the other.
func (n *node) staleMember(all []*messages.ViewMember) string {
	g := n.cast.Load()
	if g == nil {
		return ""
	}
	living := make(map[string]uint64)
	for _, m := range g.Members() {
		living[m.Node] = m.Incarnation
	}
	for _, m := range all {
		if known, ok := living[m.GetNode()]; ok && known != m.GetIncarnation() {
			return m.GetNode()
		}
	}
	return ""
}

// treesDown tells the communicators whose trees on a rail are aggregated by a node that it can't be
// reached over it.
func (n *node) treesDown(name, rail, reason string) {
	for _, m := range *n.groups.Load() {
		pid := m.pid.Load()
		if pid == nil {
			continue
		}
		for _, t := range m.group.Trees() {
			if t.Node.Node() == name && (rail == "" || n.fabric.RailIndex(rail) == t.Rail) {
				n.tell(pid, &communicator.TreeDown{Group: t.Group, Reason: reason})
			}
		}
	}
}

// peerGone: a node is lost, or has left. It may have aggregated for this one, or this one for it.
func (n *node) peerGone(p *railactors.Peer, err error) {
	n.serves.PeerGone(p, err)
	n.treesDown(p.Node(), "", fmt.Sprintf("node %q: %v", p.Node(), err))
}

// treeRevoked: an aggregation node serves a group no more.
func (n *node) treeRevoked(from *railactors.Peer, m *member, b *messages.TreeRevoked) {
	if n.serves.Revoked(from, b) || m == nil {
		return
	}
	t := m.group.Tree(b.GetGroup())
	pid := m.pid.Load()
	if t == nil || pid == nil || t.Node != from {
		return
	}
	if b.GetMismatch() {
		m.group.Fail(fmt.Errorf("%w: as aggregation node %q found: %s", fault.ErrMismatch, from.Node(),
			communicator.WireText(b.GetReason())), 0)
		return
	}
	n.tell(pid, &communicator.TreeDown{Group: t.Group,
		Reason: fmt.Sprintf("node %q serves it no more: %s", from.Node(), communicator.WireText(b.GetReason()))})
}
