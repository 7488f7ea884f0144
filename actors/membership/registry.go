package membership

import (
	"errors"
	"sync/atomic"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/polyrail/polyrail/actors/communicator"
	"github.com/polyrail/polyrail/collective/fault"
	"github.com/polyrail/polyrail/collective/lobby"
	"github.com/polyrail/polyrail/collective/op"
	"github.com/polyrail/polyrail/messages"
)

// This file is about what a node knows of its communicators by their wire ids. It implements
// communicator.Registry.

// member is a registered group and the actor above it.
type member struct {
	group *communicator.Group
	pid   atomic.Pointer[actor.PID] // nil until the communicator actor runs
	early []communicator.Control    // control messages before that; under node.mu
}

// maxEarlyControl bounds the control messages kept for a communicator that is being formed.
const maxEarlyControl = 1024

// Register implements communicator.Registry.
func (n *node) Register(g *communicator.Group) {
	m := &member{group: g}
	n.mu.Lock()
	rank, abort := n.doomed.take(g)
	closed := n.closed
	if !closed {
		g.OpenPage()
		n.replaceLocked(func(groups map[uint64]*member) { groups[g.ID] = m })
	}
	n.mu.Unlock()
	if closed {
		g.Fail(n.closedError(), 0)
	} else if abort != nil {
		g.End(g.AbortCause(rank, abort), abort.GetSeq(), !g.Meshed)
	}
}

// Unregister implements communicator.Registry.
func (n *node) Unregister(g *communicator.Group) {
	known := false
	n.replace(func(groups map[uint64]*member) {
		if m := groups[g.ID]; m != nil && m.group == g {
			known = true
			delete(groups, g.ID)
			if !g.Meshed {
				n.parted.keep(g.ID, g.Parting(-1))
			}
		}
	})
	if !known {
		return
	}
	g.ClosePage()
	g.Transfers.Break(fault.ErrClosed) // what waits for receives that will not be made
	for _, p := range g.Peers {
		if p != nil {
			n.fabric.Disconnect(p)
		}
	}
}

func (n *node) replace(change func(map[uint64]*member)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.replaceLocked(change)
}

func (n *node) replaceLocked(change func(map[uint64]*member)) {
	old := *n.groups.Load()
	groups := make(map[uint64]*member, len(old)+1)
	for id, m := range old {
		groups[id] = m
	}
	change(groups)
	n.groups.Store(&groups)
}

// Open implements communicator.Registry.
func (n *node) Open(g *communicator.Group) *communicator.Communicator {
	c := g.Open()
	for more := true; more; { // who sends directly is not to overtake what waits
		var early []communicator.Control
		n.mu.Lock()
		m := (*n.groups.Load())[g.ID]
		if m != nil {
			early, m.early = m.early, nil
		}
		if more = len(early) > 0; !more && m != nil {
			m.pid.Store(c.PID)
		}
		n.mu.Unlock()
		if m == nil { // the node has closed meanwhile, and stops only what it knew
			n.system.Root.Stop(c.PID)
		}
		for i := range early {
			g.Post(c.PID, &early[i])
		}
	}
	for _, p := range g.Peers { // one that was lost, or left, before there was an actor to hear of it
		if p != nil && p.Lost() != nil {
			n.PeerLeft(p, p.Lost())
		}
	}
	return c
}

// doom is an Abort of a communicator that isn't known here. A Dup has failed on another rank and
// was not called here yet, but may be, and succeed.
type doom struct {
	incarnation uint64 // of the process that sent it
	abort       *messages.Abort
}

// doomed is a communicator and a node that has sent an Abort of it, which may be no member.
type doomed struct {
	comm uint64
	node string
}

// maxDooms bounds the Aborts that are kept; most are of communicators that were closed here.
const maxDooms = 256

// dooms keeps the last ones. Those of a node that sends many take no other node's place.
type dooms struct {
	all   map[doomed]doom
	order lobby.Lobby[doomed]
}

func (d *dooms) keep(key doomed, v doom) {
	if d.all == nil {
		d.all = make(map[doomed]doom)
	}
	if _, known := d.all[key]; !known {
		if out, full := d.order.Enter(key, key.node, maxDooms, maxDooms); full {
			delete(d.all, out)
		}
	}
	d.all[key] = v
}

// take is the Abort of a group that becomes known, and the rank that has sent it; nil: none has.
func (d *dooms) take(g *communicator.Group) (rank op.Rank, abort *messages.Abort) {
	for r, node := range g.Nodes {
		key := doomed{g.ID, node}
		v, known := d.all[key]
		if !known {
			continue
		}
		delete(d.all, key)
		d.order.Leave(key)
		if r < len(g.Procs) && g.Procs[r] == v.incarnation {
			rank, abort = op.Rank(r), v.abort
		}
	}
	return rank, abort
}

// maxPartings bounds the closed communicators of which it is remembered how they ended here.
const maxPartings = 256

// partings keeps, by wire id, what a late hail of a communicator that was closed here is answered.
type partings struct {
	all   map[uint64]*messages.Control
	order [maxPartings]uint64 // a ring
	next  int
}

func (p *partings) keep(id uint64, answer *messages.Control) {
	if answer == nil {
		return
	}
	if p.all == nil {
		p.all = make(map[uint64]*messages.Control)
	}
	if p.all[id] == nil {
		delete(p.all, p.order[p.next])
		p.order[p.next] = id
		p.next = (p.next + 1) % maxPartings
	}
	p.all[id] = answer
}

// of is the answer. What is forgotten was closed long ago.
func (p *partings) of(id uint64) *messages.Control {
	if m := p.all[id]; m != nil {
		return m
	}
	return &messages.Control{Comm: id, Body: &messages.Control_Leave{Leave: &messages.Leave{}}}
}

// Formed implements communicator.Registry.
func (n *node) Formed(g *communicator.Group) {
	if g.Meter != nil {
		g.Meter.Formed.Add(1)
	}
	n.happened(Event{Kind: CommunicatorFormed, Communicator: g.Name, Rank: int(g.Rank)})
}

// Broken implements communicator.Registry.
func (n *node) Broken(g *communicator.Group, cause error) {
	if g.Meter != nil {
		g.Meter.Broken.Add(1)
	}
	n.happened(Event{Kind: CommunicatorBroken, Communicator: g.Name, Rank: int(g.Rank), Err: cause})
}

// TreeUp implements communicator.Registry.
func (n *node) TreeUp(g *communicator.Group, rail int, node string) {
	n.happened(Event{Kind: TreeUp, Communicator: g.Name, Rank: int(g.Rank), Node: node,
		Rail: n.fabric.RailName(rail)})
}

// TreeDown implements communicator.Registry.
func (n *node) TreeDown(g *communicator.Group, rail int, node, reason string, repaired int) {
	n.happened(Event{Kind: TreeDown, Communicator: g.Name, Rank: int(g.Rank), Node: node,
		Rail: n.fabric.RailName(rail), Err: errors.New(reason), Repaired: repaired})
}

// TableChanged implements communicator.Registry.
func (n *node) TableChanged(g *communicator.Group, version uint32) {
	if g.Meter != nil {
		g.Meter.Tables.Add(1)
	}
	n.happened(Event{Kind: TableChanged, Communicator: g.Name, Rank: int(g.Rank), Version: version})
}
