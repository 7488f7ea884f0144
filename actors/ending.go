package actors

import (
	"errors"
	"fmt"

	"github.com/polyrail/polyrail/actors/communicator"
	"github.com/polyrail/polyrail/collective/fault"
	"github.com/polyrail/polyrail/collective/op"
	"github.com/polyrail/polyrail/messages"
	"github.com/polyrail/polyrail/railactors"
)

// This file is about what a node knows of its communicators by their wire ids, and what the fabric and the
// communicators tell it. It implements communicator.Registry and railactors.Inbound.

// Register implements communicator.Registry.
func (n *node) Register(g *communicator.Group) {
	m := &member{group: g}
	n.mu.Lock()
	doom := n.doomed.take(g.ID)
	closed := n.closed
	if !closed {
		n.replaceLocked(func(groups map[uint64]*member) { groups[g.ID] = m })
	}
	n.mu.Unlock()
	if closed {
		g.Fail(n.closedError(), 0)
	} else if rank, ok := doom.rankIn(g); ok {
		g.End(g.AbortCause(rank, doom.abort), doom.abort.GetSeq(), false)
	}
}

// doom is an Abort of a communicator that isn't known here: a Dup has failed on another rank and was not
// called here yet, but may be, and succeed.
type doom struct {
	node        string // who sent it
	incarnation uint64
	abort       *messages.Abort
}

func (d *doom) rankIn(g *communicator.Group) (rank op.Rank, ok bool) {
	if d == nil {
		return 0, false
	}
	for r, node := range g.Nodes {
		if node == d.node && r < len(g.Procs) && g.Procs[r] == d.incarnation {
			return op.Rank(r), true
		}
	}
	return 0, false
}

// maxDooms bounds the Aborts that are kept; most are of communicators that were closed here.
const maxDooms = 256

// dooms keeps the last ones by wire id.
type dooms struct {
	all   map[uint64]*doom
	order [maxDooms]uint64 // a ring
	next  int
}

func (d *dooms) keep(id uint64, v *doom) {
	if d.all == nil {
		d.all = make(map[uint64]*doom)
	}
	if d.all[id] != nil {
		return
	}
	delete(d.all, d.order[d.next])
	d.all[id], d.order[d.next] = v, id
	d.next = (d.next + 1) % maxDooms
}

func (d *dooms) take(id uint64) *doom {
	v := d.all[id]
	delete(d.all, id)
	return v
}

// Control implements railactors.Inbound. What ends a communicator is followed here and now; the rest is the
// communicator actor's.
func (n *node) Control(from *railactors.Peer, body *messages.Control) {
	m := (*n.groups.Load())[body.GetComm()]
	switch b := body.GetBody().(type) {
	case *messages.Control_Leave:
		n.farewell(from, m, body.GetComm(), b.Leave)
		return
	case *messages.Control_Abort:
		n.aborted(from, body.GetComm(), b.Abort)
		return
	}
	if m == nil {
		n.log.Debug("control message for no communicator of this node", "from", from.Node(), "type", fmt.Sprintf("%T", body.GetBody()))
		return
	}
	rank, ok := m.group.RankOf(from)
	if !ok {
		n.log.Warn("control message from a node that is no member", "communicator", m.group.Name, "from", from.Node())
		return
	}
	pid := m.pid.Load()
	if pid == nil {
		n.mu.Lock()
		if pid = m.pid.Load(); pid == nil && len(m.early) < maxEarlyControl {
			m.early = append(m.early, communicator.Control{From: rank, Body: body})
		}
		n.mu.Unlock()
	}
	if pid != nil {
		n.tell(pid, &communicator.Control{From: rank, Body: body})
	}
}

// aborted: another rank has broken a communicator, and tells all ranks.
func (n *node) aborted(from *railactors.Peer, comm uint64, abort *messages.Abort) {
	n.mu.Lock() // with register
	m := (*n.groups.Load())[comm]
	if m == nil {
		n.doomed.keep(comm, &doom{from.Node(), from.Incarnation(), &messages.Abort{
			Seq: abort.GetSeq(), Code: abort.GetCode(), Reason: communicator.WireText(abort.GetReason()), LostRank: abort.GetLostRank()}})
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
	m.group.End(m.group.AbortCause(rank, abort), abort.GetSeq(), false)
}

// farewell answers a rank that closes a communicator: at once and without the communicator's
// actor, which may be gone by now, as the whole communicator may.
func (n *node) farewell(from *railactors.Peer, m *member, comm uint64, leave *messages.Leave) {
	ack := &messages.Control{Comm: comm, Body: &messages.Control_LeaveAck{LeaveAck: &messages.LeaveAck{}}}
	if err := from.SendControl(ack); err != nil {
		n.log.Debug("farewell not answered", "to", from.Node(), "error", err)
	}
	if m == nil {
		return
	}
	if rank, ok := m.group.RankOf(from); ok {
		if err := m.group.Depart(rank, leave.GetLast()); err != nil {
			m.group.End(err, leave.GetLast()+1, false)
		}
		m.group.Transfers.Depart(rank, leave.GetSent())
	}
}

// PeerLost implements railactors.Inbound.
func (n *node) PeerLost(p *railactors.Peer, err error) {
	for _, m := range *n.groups.Load() {
		if rank, ok := m.group.RankOf(p); ok {
			n.rankLost(m, rank, p, err)
		}
	}
	n.tell(n.pid, peerLost{p.Node(), err})
}

// PeerLeft implements railactors.Inbound. A rank that has closed a communicator is missed by none of the
// operations that were left to it; any other will not be heard of again.
func (n *node) PeerLeft(p *railactors.Peer, err error) {
	missed := false
	for _, m := range *n.groups.Load() {
		if rank, ok := m.group.RankOf(p); ok && !m.group.HasDeparted(rank) && m.group.Err() == nil {
			n.rankLost(m, rank, p, err)
			missed = true
		}
	}
	if missed {
		n.tell(n.pid, peerLost{p.Node(), err})
	}
}

func (n *node) rankLost(m *member, rank op.Rank, p *railactors.Peer, err error) {
	cause := err
	if lost := (*fault.RankLostError)(nil); errors.As(err, &lost) {
		cause = &fault.RankLostError{Rank: rank, Node: lost.Node, Reason: lost.Reason}
	}
	m.group.Fail(cause, 0)
	n.events.emit(Event{Kind: RankLost, Communicator: m.group.Name, Rank: int(rank), Node: p.Node(), Err: cause})
	if pid := m.pid.Load(); pid != nil {
		n.tell(pid, communicator.MemberLost(rank))
	}
}

// Formed implements communicator.Registry.
func (n *node) Formed(g *communicator.Group) {
	n.events.emit(Event{Kind: CommunicatorFormed, Communicator: g.Name, Rank: int(g.Rank)})
}

// Broken implements communicator.Registry.
func (n *node) Broken(g *communicator.Group, cause error) {
	n.events.emit(Event{Kind: CommunicatorBroken, Communicator: g.Name, Rank: int(g.Rank), Err: cause})
}

// TableChanged implements communicator.Registry.
func (n *node) TableChanged(g *communicator.Group, version uint32) {
	n.events.emit(Event{Kind: TableChanged, Communicator: g.Name, Rank: int(g.Rank), Version: version})
}
