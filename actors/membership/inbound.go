package membership

import (
	"fmt"
	"slices"

	"github.com/polyrail/polyrail/actors/balancing"
	"github.com/polyrail/polyrail/actors/communicator"
	"github.com/polyrail/polyrail/actors/engine"
	"github.com/polyrail/polyrail/collective/op"
	"github.com/polyrail/polyrail/messages"
	"github.com/polyrail/polyrail/messages/wire"
	"github.com/polyrail/polyrail/railactors"
)

// This file is about what the fabric tells the node. It implements railactors.Inbound.

// Land implements railactors.Inbound.
func (n *node) Land(from *railactors.Peer, rail int, h *wire.Header) (railactors.Landing, error) {
	if n.serves.Takes(h) {
		return n.serves.Land(from, rail, h)
	}
	if m := (*n.groups.Load())[h.Comm]; m != nil {
		return m.group.Land(from, rail, h)
	}
	if m := (*n.groups.Load())[engine.TransferID(h.Comm)]; m != nil {
		return m.group.Transfers.Land(from, h)
	}
	return railactors.Landing{}, nil
}

// Granted implements railactors.Inbound.
func (n *node) Granted(from *railactors.Peer, h *wire.Header) error {
	if n.serves.Takes(h) {
		return n.serves.Granted(from, h)
	}
	if m := (*n.groups.Load())[h.Comm]; m != nil {
		return m.group.Granted(from, h)
	}
	if m := (*n.groups.Load())[engine.TransferID(h.Comm)]; m != nil {
		return m.group.Transfers.Answered(from, h)
	}
	return nil
}

// Wanted implements railactors.Inbound.
func (n *node) Wanted(from *railactors.Peer, h *wire.Header) error {
	if m := (*n.groups.Load())[h.Comm]; m != nil {
		return m.group.Wanted(from, h)
	}
	from.GrantEager(h.Comm, h.Seq)
	return nil
}

// disturb: frames to and from a node went over other rails than planned, or do so no longer. What
// is being measured in its communicators does not count.
func (n *node) disturb(node string) {
	for _, m := range *n.groups.Load() {
		if !m.group.Announced() || !slices.Contains(m.group.Nodes, node) {
			continue
		}
		m.group.Failovers.Add(1)
		m.group.Examine()
		if pid := m.pid.Load(); pid != nil && m.group.Measured() {
			n.tell(pid, balancing.RailChanged{})
		}
	}
}

// Control implements railactors.Inbound. What ends a communicator is followed here and now; the
// rest is the communicator actor's.
func (n *node) Control(from *railactors.Peer, body *messages.Control) {
	m := (*n.groups.Load())[body.GetComm()]
	switch b := body.GetBody().(type) {
	case *messages.Control_Leave:
		n.farewell(from, m, body, b.Leave)
		return
	case *messages.Control_Abort:
		n.aborted(from, body.GetComm(), b.Abort)
		return
	case *messages.Control_Hail:
		n.hailed(from, m, body.GetComm())
		return
	case *messages.Control_TreeRevoked:
		n.treeRevoked(from, m, b.TreeRevoked)
		return
	}
	if m == nil {
		n.log.Debug("control message for no communicator of this node", "from", from.Node(),
			"type", fmt.Sprintf("%T", body.GetBody()))
		return
	}
	rank, ok := m.group.RankOf(from)
	if !ok {
		n.log.Warn("control message from a node that is no member", "communicator", m.group.Name,
			"from", from.Node())
		return
	}
	n.post(m, rank, body)
}

// post gives a rank's message to the communicator's actor, also before there is one.
func (n *node) post(m *member, rank op.Rank, body *messages.Control) {
	pid := m.pid.Load()
	if pid == nil {
		n.mu.Lock()
		if pid = m.pid.Load(); pid == nil && len(m.early) < maxEarlyControl {
			m.early = append(m.early, communicator.Control{From: rank, Body: body})
		}
		n.mu.Unlock()
	}
	if pid != nil {
		m.group.Post(pid, &communicator.Control{From: rank, Body: body})
	}
}

// aborted: another rank has broken a communicator, and tells all ranks.
func (n *node) aborted(from *railactors.Peer, comm uint64, abort *messages.Abort) {
	n.mu.Lock() // with register
	m := (*n.groups.Load())[comm]
	if m == nil {
		text := communicator.WireText
		n.doomed.keep(doomed{comm, from.Node()}, doom{from.Incarnation(), &messages.Abort{
			Seq: abort.GetSeq(), Rank: abort.GetRank(), Node: text(abort.GetNode()), Code: abort.GetCode(),
			Reason: text(abort.GetReason()), LostRank: abort.GetLostRank(), LostNode: text(abort.GetLostNode())}})
	}
	n.mu.Unlock()
	if m == nil {
		return
	}
	rank, ok := m.group.RankOf(from)
	if !ok {
		n.log.Warn("abort from a node that is no member", "communicator", m.group.Name, "from", from.Node())
		return
	}
	m.group.End(m.group.AbortCause(rank, abort), abort.GetSeq(), !m.group.Meshed)
}

// hailed: a rank that was not connected to this one waits for it from now on.
func (n *node) hailed(from *railactors.Peer, m *member, comm uint64) {
	var answer *messages.Control
	if m == nil {
		n.mu.Lock()
		answer = n.parted.of(comm)
		n.mu.Unlock()
	} else if rank, ok := m.group.RankOf(from); ok {
		answer = m.group.Parting(rank)
	}
	if answer == nil {
		return
	}
	if err := from.SendControl(answer); err != nil {
		n.log.Debug("hail not answered", "to", from.Node(), "error", err)
	}
}

// farewell answers a rank that closes a communicator: at once and without the communicator's
// actor, which may be gone by now, as the whole communicator may.
func (n *node) farewell(from *railactors.Peer, m *member, body *messages.Control, leave *messages.Leave) {
	comm := body.GetComm()
	ack := &messages.Control{Comm: comm, Body: &messages.Control_LeaveAck{LeaveAck: &messages.LeaveAck{}}}
	if err := from.SendControl(ack); err != nil {
		n.log.Debug("farewell not answered", "to", from.Node(), "error", err)
	}
	if leave.GetCause() != nil {
		n.aborted(from, comm, leave.GetCause())
	}
	if m == nil {
		return
	}
	if rank, ok := m.group.RankOf(from); ok {
		if err := m.group.Depart(rank, leave.GetLast()); err != nil {
			m.group.End(err, leave.GetLast()+1, false)
		}
		m.group.Transfers.Depart(rank, leave.GetSent())
		n.post(m, rank, body) // its trees take it as evidence
	}
}

// PeerLost implements railactors.Inbound.
func (n *node) PeerLost(p *railactors.Peer, err error) {
	for _, m := range *n.groups.Load() {
		if rank, ok := m.group.RankOf(p); ok {
			n.rankLost(m, rank, p, err)
		}
	}
	n.peerGone(p, err)
	n.tell(n.pid, peerLost{p.Node(), err})
}

// PeerLeft implements railactors.Inbound. A rank that has closed a communicator is missed by none
// of the operations that were left to it. Any other will not be heard of again. Neither answers
// a farewell.
func (n *node) PeerLeft(p *railactors.Peer, err error) {
	missed := false
	for _, m := range *n.groups.Load() {
		rank, ok := m.group.RankOf(p)
		switch {
		case !ok:
		case m.group.HasDeparted(rank) || m.group.Err() != nil:
			n.tellGone(m, rank)
		default:
			n.rankLost(m, rank, p, err)
			missed = true
		}
	}
	n.peerGone(p, err)
	if missed {
		n.tell(n.pid, peerLost{p.Node(), err})
	}
}

func (n *node) rankLost(m *member, rank op.Rank, p *railactors.Peer, err error) {
	cause := m.group.Named(err)
	m.group.Fail(cause, 0)
	n.happened(Event{Kind: RankLost, Communicator: m.group.Name, Rank: int(rank), Node: p.Node(),
		Err: cause})
	n.tellGone(m, rank)
}

// tellGone ends the communicator's waiting for a rank's LeaveAck.
func (n *node) tellGone(m *member, rank op.Rank) {
	if pid := m.pid.Load(); pid != nil {
		n.tell(pid, communicator.MemberGone(rank))
	}
}
