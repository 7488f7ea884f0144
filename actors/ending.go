package actors

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/polyrail/polyrail/collective/fault"
	"github.com/polyrail/polyrail/collective/op"
	"github.com/polyrail/polyrail/messages"
	"github.com/polyrail/polyrail/railactors"
)

// This file is about how communicators end, on whatever goroutine notices it: no ending
// depends on an actor's mailbox.

// ending is what a group's callers wait on beside the answer to their request, and beside the group's Closing and
// Ended: an actor that is gone gives no answer.
type ending struct {
	gone     chan struct{} // closed when the communicator's actors have stopped, which is last
	goneOnce sync.Once

	told atomic.Bool // the other ranks know from here why it broke
}

func newEnding() ending { return ending{gone: make(chan struct{})} }

// stopped: the communicator actor has stopped, and all below it.
func (g *group) stopped() { g.goneOnce.Do(func() { close(g.gone) }) }

// breakGroup ends all operations of a communicator with the first cause, and tells the other ranks. It may
// be called on any goroutine that holds no lock of this package or of a peer, and doesn't
// depend on any actor's health. tell is false where the others know already.
func (n *node) breakGroup(g *group, cause error, seq uint64, tell bool) {
	g.Break(cause, seq, func() {
		if tell {
			g.tellCause()
		}
		if !errors.Is(cause, fault.ErrClosed) {
			n.log.Warn("communicator broken", "communicator", g.Name, "seq", seq, "cause", cause)
		}
		if g.formed.Load() {
			n.events.emit(Event{Kind: CommunicatorBroken, Communicator: g.Name, Rank: int(g.Rank), Err: cause})
		}
	})
}

// tellCause tells the other ranks why the communicator broke, once.
func (g *group) tellCause() {
	seq, cause := g.Cause()
	if cause != nil && !g.told.Swap(true) {
		g.controlAll(g.abortMessage(seq, cause))
	}
}

// register makes a group known to readers: frames of its id are kept from now on. A group that
// another rank has given up already, or whose node closes, is broken at once.
func (n *node) register(g *group) *member {
	m := &member{group: g}
	n.mu.Lock()
	doom := n.doomed.take(g.ID)
	closed := n.closed
	if !closed {
		n.replaceLocked(func(groups map[uint64]*member) { groups[g.ID] = m })
	}
	n.mu.Unlock()
	if closed {
		n.breakGroup(g, n.closedError(), 0, true)
	} else if rank, ok := doom.rankIn(g); ok {
		n.breakGroup(g, g.abortCause(rank, doom.abort), doom.abort.GetSeq(), false)
	}
	return m
}

// doom is an Abort of a communicator that isn't known here: a Dup has failed on another rank and was not
// called here yet, but may be, and succeed.
type doom struct {
	node        string // who sent it
	incarnation uint64
	abort       *messages.Abort
}

func (d *doom) rankIn(g *group) (rank op.Rank, ok bool) {
	if d == nil {
		return 0, false
	}
	for r, node := range g.Nodes {
		if node == d.node && r < len(g.procs) && g.procs[r] == d.incarnation {
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
			m.early = append(m.early, controlMessage{rank, body})
		}
		n.mu.Unlock()
	}
	if pid != nil {
		n.tell(pid, &controlMessage{rank, body})
	}
}

// aborted: another rank has broken a communicator, and tells all ranks.
func (n *node) aborted(from *railactors.Peer, comm uint64, abort *messages.Abort) {
	n.mu.Lock() // with register
	m := (*n.groups.Load())[comm]
	if m == nil {
		n.doomed.keep(comm, &doom{from.Node(), from.Incarnation(), &messages.Abort{
			Seq: abort.GetSeq(), Code: abort.GetCode(), Reason: wireText(abort.GetReason()), LostRank: abort.GetLostRank()}})
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
	n.breakGroup(m.group, m.group.abortCause(rank, abort), abort.GetSeq(), false)
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
			n.breakGroup(m.group, err, leave.GetLast()+1, false)
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
	if lost, ok := asLost(err); ok {
		cause = &fault.RankLostError{Rank: rank, Node: lost.Node, Reason: lost.Reason}
	}
	n.breakGroup(m.group, cause, 0, true)
	n.events.emit(Event{Kind: RankLost, Communicator: m.group.Name, Rank: int(rank), Node: p.Node(), Err: cause})
	if pid := m.pid.Load(); pid != nil {
		n.tell(pid, memberLost(rank))
	}
}

// asLost finds the lost rank in a cause.
func asLost(err error) (lost *fault.RankLostError, ok bool) {
	ok = errors.As(err, &lost)
	return lost, ok
}
