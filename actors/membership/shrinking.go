package membership

import (
	"context"
	"slices"

	"github.com/polyrail/polyrail/actors/communicator"
	"github.com/polyrail/polyrail/collective/view"
)

// This file is about the communicator of those who are left: the caller's part, and what the
// node actor tells the view core for it.

// Shrink breaks a communicator, ends all its operations, and forms another one with those
// members that live and call Shrink too. uneven are the operations of the old communicator that some
// of them finished and others did not. The old communicator is closed by success only.
func (n *Node) Shrink(ctx context.Context,
	c *communicator.Communicator) (comm *communicator.Communicator, uneven view.SeqRange,
	err error) {
	if err := c.Abandon(ctx); err != nil {
		return nil, view.SeqRange{}, err
	}
	g := c.Group
	f := n.await(ctx, &communicatorCall{name: view.ShrinkName(g.ID), size: g.Size, old: g,
		done: make(chan formed, 1)})
	if f.communicator == nil {
		return nil, view.SeqRange{}, f.err
	}
	c.Discard()
	return f.communicator, f.uneven, nil
}

// shrink gives the core a call, and the losses that are known already.
func (a *nodeActor) shrink(m *communicatorCall, nonce uint64) {
	g := m.old
	if a.shrinks[m.name] == nil { // the core turns a second one away
		a.shrinks[m.name] = m
	}
	old := view.Old{ID: g.ID, Title: g.Name, Uneven: g.Uneven(), Attempts: g.Attempts}
	for rank, node := range g.Nodes {
		old.Members = append(old.Members, view.Member{Node: node, Incarnation: g.Procs[rank]})
	}
	a.step(view.Shrink{Call: m.id, Nonce: nonce, Old: old})
	a.tellLosses()
}

// tellLosses tells the core of every lost member of what is being shrunk. The core knows what it
// was told before. It is also asked for when time has passed: a peer that parted quietly is lost
// without a word.
func (a *nodeActor) tellLosses() {
	for _, call := range a.shrinks {
		g := call.old
		for rank, p := range g.Peers {
			if p == nil {
				continue
			}
			if err := p.Lost(); err != nil {
				a.step(view.Lost{Node: g.Nodes[rank], Incarnation: g.Procs[rank], Reason: err.Error()})
			}
		}
		a.wakeAwaited(call)
	}
}

// wakeAwaited connects to the members that the view core misses.
func (a *nodeActor) wakeAwaited(call *communicatorCall) {
	if call.old.Meshed {
		return
	}
	for _, node := range a.core.Awaited(call.name) {
		if rank := slices.Index(call.old.Nodes, node); rank >= 0 && call.old.Peers[rank] != nil {
			call.old.Peers[rank].Wake()
		}
	}
}

// strange reports whether somebody shrinks a communicator that this node doesn't have. What it forms, or
// has formed, it has registered before anybody can shrink it.
func (a *nodeActor) strange(m *view.Announce) bool {
	id, ok := view.ShrinkOf(m.Name)
	return ok && (*a.node.groups.Load())[id] == nil
}

// callFailed ends a call, and keeps what the next one to shrink the same communicator must know.
func (a *nodeActor) callFailed(m view.Failed) {
	c := a.calls[m.Call]
	if c != nil && c.old != nil {
		c.old.Attempts = m.Attempts
	}
	a.answer(m.Call, formed{err: a.explained(c, m.Err)})
}
