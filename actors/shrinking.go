package actors

import (
	"context"
	"fmt"

	"github.com/polyrail/polyrail/collective/fault"
	"github.com/polyrail/polyrail/collective/view"
)

// This file is about the communicator of those who are left (DESIGN §4.5, §4.6): the caller's part, and what the
// node actor tells the view core for it.

// Shrink breaks the communicator, ends all its operations, and forms another one with those
// members that live and call Shrink too. uneven are the operations of the old communicator that some
// of them finished and others did not. The old communicator is closed by success only.
func (c *Communicator) Shrink(ctx context.Context) (comm *Communicator, uneven view.SeqRange, err error) {
	n, g := c.group.node, c.group
	if err := g.shutError(); err != nil {
		return nil, view.SeqRange{}, err
	}
	if err := g.over(ctx); err != nil {
		return nil, view.SeqRange{}, err
	}
	n.breakGroup(g, fmt.Errorf("rank %d (node %q) shrinks it: %w", g.rank, n.config.Node, fault.ErrClosed), c.Seq(), true)
	select {
	case <-g.quiet():
	case <-ctx.Done():
		return nil, view.SeqRange{}, fmt.Errorf("communicator %q: operations still hold memory: %w", g.name, context.Cause(ctx))
	}
	f := n.await(ctx, &communicatorCall{name: view.ShrinkName(g.id), size: g.size, old: g, done: make(chan formed, 1)})
	if f.communicator == nil {
		return nil, view.SeqRange{}, f.err
	}
	if g.shut() { // Close may have come first, and does the same
		g.keepTuning()
		c.forget()
		close(c.closed)
	}
	return f.communicator, f.uneven, nil
}

// Seq is the number of the last operation that was called here.
func (c *Communicator) Seq() uint64 {
	c.group.mu.Lock()
	defer c.group.mu.Unlock()
	return c.group.numbered
}

// shrink gives the core a call, and the losses that are known already.
func (a *nodeActor) shrink(m *communicatorCall, nonce uint64) {
	g := m.old
	if a.shrinks[m.name] == nil { // the core turns a second one away
		a.shrinks[m.name] = m
	}
	g.mu.Lock()
	old := view.Old{ID: g.id, Title: g.name, Uneven: g.finished.uneven(), Attempts: g.attempts}
	g.mu.Unlock()
	for rank, node := range g.nodes {
		old.Members = append(old.Members, view.Member{Node: node, Incarnation: g.procs[rank]})
	}
	a.step(view.Shrink{Call: m.id, Nonce: nonce, Old: old})
	a.tellLosses()
}

// tellLosses tells the core of every lost member of what is being shrunk. The core knows what it was told
// before. It is also asked for when time has passed: a peer that parted quietly is
// lost without a word.
func (a *nodeActor) tellLosses() {
	for _, call := range a.shrinks {
		g := call.old
		for rank, p := range g.peers {
			if p == nil {
				continue
			}
			if err := p.Lost(); err != nil {
				a.step(view.Lost{Node: g.nodes[rank], Incarnation: g.procs[rank], Reason: err.Error()})
			}
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
	if c := a.calls[m.Call]; c != nil && c.old != nil {
		c.old.mu.Lock()
		c.old.attempts = m.Attempts
		c.old.mu.Unlock()
	}
	a.answer(m.Call, formed{err: a.lonely(m.Err)})
}
