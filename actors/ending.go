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

// ending is what a group's callers wait on beside the answer to their request: an actor that
// is gone gives none. The channels are closed in this order, and each may be left out.
type ending struct {
	closing chan struct{} // Close or Shrink of this communicator ends it: it takes no more calls
	ended   chan struct{} // it broke: the first cause is known
	gone    chan struct{} // its actors have stopped

	closingOnce, goneOnce sync.Once

	told atomic.Bool // the other ranks know from here why it broke
}

func newEnding() ending {
	return ending{closing: make(chan struct{}), ended: make(chan struct{}), gone: make(chan struct{})}
}

// shut makes the group take no more calls. It reports whether this is the first time.
func (g *group) shut() (first bool) {
	g.mu.Lock() // with number: what was numbered before is waited for
	defer g.mu.Unlock()
	g.closingOnce.Do(func() { first = true; close(g.closing) })
	return first
}

// stopped: the communicator actor has stopped, and all below it.
func (g *group) stopped() { g.goneOnce.Do(func() { close(g.gone) }) }

// shutError is why the group takes no more calls though it isn't broken, or nil.
func (g *group) shutError() error {
	select {
	case <-g.closing:
		return g.closedError()
	default:
	}
	if err := g.node.ended(); err != nil {
		return fmt.Errorf("communicator %q: %w", g.name, err)
	}
	return nil
}

func (g *group) closedError() error {
	return fmt.Errorf("communicator %q: %w", g.name, fault.ErrClosed)
}

// usable is why the group takes no more calls, or nil.
func (g *group) usable() error {
	if err := g.shutError(); err != nil {
		return err
	}
	return g.err()
}

// breakGroup ends all operations of a communicator with the first cause, and tells the other ranks. It may
// be called on any goroutine that holds no lock of this package or of a peer, and doesn't
// depend on any actor's health. tell is false where the others know already.
func (n *node) breakGroup(g *group, cause error, seq uint64, tell bool) {
	open, first := g.fail(seq, cause)
	if !first {
		return
	}
	if tell {
		g.tellCause()
	}
	if !errors.Is(cause, fault.ErrClosed) {
		n.log.Warn("communicator broken", "communicator", g.name, "seq", seq, "cause", cause)
	}
	if g.formed.Load() {
		n.events.emit(Event{Kind: CommunicatorBroken, Communicator: g.name, Rank: int(g.rank), Err: cause})
	}
	for _, p := range open {
		p.operation.abort(g, p.seq, cause)
	}
	g.transfers.fail(cause)
}

// tellCause tells the other ranks why the communicator broke, once.
func (g *group) tellCause() {
	g.mu.Lock()
	cause, seq := g.cause, g.since
	g.mu.Unlock()
	if cause != nil && !g.told.Swap(true) {
		g.controlAll(g.abortMessage(seq, cause))
	}
}

// register makes a group known to readers: frames of its id are kept from now on. A group that
// another rank has given up already, or whose node closes, is broken at once.
func (n *node) register(g *group) *member {
	m := &member{group: g}
	n.mu.Lock()
	doom := n.doomed.take(g.id)
	closed := n.closed
	if !closed {
		n.replaceLocked(func(groups map[uint64]*member) { groups[g.id] = m })
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
	for r, node := range g.nodes {
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
	rank, ok := m.group.ranks[from]
	if !ok {
		n.log.Warn("control message from a node that is no member", "communicator", m.group.name, "from", from.Node())
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
	rank, ok := m.group.ranks[from]
	if !ok {
		n.log.Warn("abort from a node that is no member", "communicator", m.group.name, "from", from.Node())
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
	if rank, ok := m.group.ranks[from]; ok {
		m.group.depart(rank, leave.GetLast())
		m.group.transfers.depart(rank, leave.GetSent())
	}
}

// depart: a rank closes the communicator after seq last. An operation above that can't finish.
func (g *group) depart(rank op.Rank, last uint64) {
	g.mu.Lock()
	if g.departed == nil {
		g.departed = make(map[op.Rank]uint64)
	}
	g.departed[rank] = last
	beyond := g.numbered > last
	g.mu.Unlock()
	if beyond {
		g.node.breakGroup(g, g.departure(rank, last), last+1, false)
	}
}

func (g *group) departure(rank op.Rank, last uint64) error {
	return &fault.AbortError{Rank: rank, Node: g.nodes[rank], Code: fault.CodeClosed,
		Reason: fmt.Sprintf("it closed the communicator after seq %d", last)}
}

func (g *group) hasDeparted(rank op.Rank) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	_, ok := g.departed[rank]
	return ok
}

// PeerLost implements railactors.Inbound.
func (n *node) PeerLost(p *railactors.Peer, err error) {
	for _, m := range *n.groups.Load() {
		if rank, ok := m.group.ranks[p]; ok {
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
		if rank, ok := m.group.ranks[p]; ok && !m.group.hasDeparted(rank) && m.group.err() == nil {
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
	n.events.emit(Event{Kind: RankLost, Communicator: m.group.name, Rank: int(rank), Node: p.Node(), Err: cause})
	if pid := m.pid.Load(); pid != nil {
		n.tell(pid, memberLost(rank))
	}
}

// asLost finds the lost rank in a cause.
func asLost(err error) (lost *fault.RankLostError, ok bool) {
	ok = errors.As(err, &lost)
	return lost, ok
}
