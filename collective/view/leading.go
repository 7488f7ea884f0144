package view

import (
	"fmt"
	"time"
)

// This file is the proposer's side: the lowest node that asks.

// lead is a proposal of this node's own.
type lead struct {
	accepted  map[string]bool
	committed bool
	pause     time.Duration // between repetitions
	resendAt  time.Time
}

// breach is the story of two nodes that cannot reach each other.
type breach struct{ since, last time.Time }

// ban keeps a rejected ask from being counted again.
type ban struct {
	incarnation, ask uint64
	culprit, reason  string
}

// consider proposes a view if it is for this node to do so, now.
func (c *Core) consider(n *naming) {
	if n.call == nil || n.part != nil || c.now.Before(n.retryAt) {
		return
	}
	chosen := []string{c.self.Node} // a view of one needs nobody else
	switch {
	case n.call.shrink != nil:
		if chosen = c.rest(n); chosen == nil {
			return
		}
	case n.call.size > 1:
		if 1+len(n.asks) < n.call.size || len(c.lower(n, 1)) > 0 {
			return
		}
		all := c.candidates(n)
		if len(all) < n.call.size {
			return
		}
		chosen = all[:n.call.size]
	}
	members := make([]Member, 0, len(chosen))
	for _, node := range chosen {
		m := c.self
		m.Ask = n.call.ask
		if a := n.asks[node]; a != nil {
			m = Member{Node: node, Incarnation: a.incarnation, Ask: a.number, Rails: a.rails, Host: a.host}
		}
		members = append(members, m)
	}
	node, reason := railMismatch(members)
	if node == "" {
		node, reason = c.settingMismatch(n, members)
	}
	if node != "" {
		for _, m := range members[1:] {
			c.send(m.Node, &Reject{Name: n.name, Ask: m.Ask, Node: node, Reason: reason})
		}
		c.fail(n, node, reason)
		return
	}
	c.propose(n, members)
}

// settingMismatch finds a member that has a setting other than this node, and says so; or "".
func (c *Core) settingMismatch(n *naming, members []Member) (node, reason string) {
	for _, m := range members[1:] {
		theirs := n.asks[m.Node].settings
		for i, mine := range n.call.settings {
			if i < len(theirs) && theirs[i] != mine {
				return m.Node, fmt.Sprintf("is configured with %s, node %q with %s", theirs[i], c.self.Node, mine)
			}
		}
	}
	return "", ""
}

func (c *Core) propose(n *naming, members []Member) {
	if c.clock >= MaxBallot {
		c.fail(n, c.self.Node, "ballots are used up")
		return
	}
	c.clock++
	v := &View{Name: n.name, Ballot: c.clock, Nonce: n.call.nonce, Members: members, Uneven: c.uneven(n, members)}
	v.ID = WireID(v.Name, v.Ballot, v.Nonce)
	n.lead = &lead{accepted: map[string]bool{}, pause: c.timing.Resend, resendAt: c.now.Add(c.timing.Resend)}
	for _, m := range members[1:] {
		c.send(m.Node, &Propose{View: v})
	}
	c.join(n, v, c.proposing(v))
}

// proposing is how long the proposer waits for the next member to accept.
func (c *Core) proposing(v *View) time.Duration {
	return c.timing.Propose + time.Duration(len(v.Members))*c.timing.PerMember
}

// accepted: a member stands ready. When all do, the barrier may begin.
func (c *Core) accepted(from string, m *Accept) {
	n := c.names[m.Name]
	if n == nil || n.lead == nil || n.part.view.ID != m.ID || n.part.view.member(from) == nil {
		return
	}
	c.ready(n, from)
}

func (c *Core) ready(n *naming, node string) {
	if !n.lead.accepted[node] {
		n.lead.accepted[node] = true
		c.progressed(n.part)
	}
	if n.lead.committed || len(n.lead.accepted) < len(n.part.view.Members) {
		return
	}
	n.lead.committed = true
	n.lead.resendAt = c.now.Add(c.timing.Resend)
	for _, m := range n.part.view.Members[1:] {
		c.send(m.Node, &Commit{Name: n.name, ID: n.part.view.ID})
	}
	c.enter(n)
}

// refused: a member is out of the ballot. It hasn't entered the barrier, or its caller has left,
// so the barrier cannot serve any more, even where it was begun.
func (c *Core) refused(from string, m *Refuse) {
	c.saw(m.Ballot)
	n := c.names[m.Name]
	if n == nil || n.lead == nil || n.part.view.ID != m.ID {
		return
	}
	in := n.part.view.member(from)
	if in == nil {
		return
	}
	switch m.Cause {
	case CannotReach:
		if n.part.view.member(m.Node) != nil && m.Node != from {
			c.breached(n, from, m.Node, m.Reason)
			c.consider(n)
			c.tidy(n)
			return
		}
	case NotAsking:
		n.noteEnd(from, "withdrew")
	case Gone:
		n.noteEnd(from, "refused: "+m.Reason)
	case Busy, BadProposal:
		c.blame(n, from, "refused: "+m.Reason)
	}
	c.leave(n, fmt.Sprintf("node %q refused", from))
	if m.Cause == NotAsking {
		if a := n.asks[from]; a != nil && a.incarnation == in.Incarnation && a.number <= in.Ask {
			c.forget(n, from)
		}
	} else {
		c.backOff(n) // Outbid: the clock is ahead of it now
	}
	c.consider(n)
	c.tidy(n)
}

// breached gives the ballot in hand up, since a and b cannot reach each other. The next one tries
// again, until it has lasted too long.
func (c *Core) breached(n *naming, a, b, reason string) {
	v, low, high := n.part.view, min(a, b), max(a, b)
	c.blame(n, b, fmt.Sprintf("cannot be reached by node %q: %s", a, reason))
	c.leave(n, fmt.Sprintf("node %q cannot be reached by node %q", b, a))
	key := [2]string{low, high}
	if n.breaches == nil {
		n.breaches = map[[2]string]*breach{}
	}
	rec := n.breaches[key]
	if rec == nil || c.now.Sub(rec.last) > 2*(c.timing.Propose+c.timing.RetryMax) {
		rec = &breach{since: c.now}
		n.breaches[key] = rec
	}
	rec.last = c.now
	if c.now.Sub(rec.since) < c.timing.CannotReach {
		c.backOff(n)
		return
	}
	delete(n.breaches, key)
	m := v.member(high)
	if n.banned == nil {
		n.banned = map[string]ban{}
	}
	n.banned[high] = ban{incarnation: m.Incarnation, ask: m.Ask, culprit: low,
		reason: fmt.Sprintf("nodes %q and %q cannot reach each other: %s", low, high, reason)}
	c.bannedAsk(n, high, m.Incarnation, m.Ask)
	c.forget(n, high)
	n.awayFrom(high, m.Ask)
}

// bannedAsk tells a node whose ask was rejected so, again if need be.
func (c *Core) bannedAsk(n *naming, node string, incarnation, number uint64) (ban, bool) {
	b, ok := n.banned[node]
	if !ok || b.incarnation != incarnation || number > b.ask {
		return ban{}, false
	}
	c.send(node, &Reject{Name: n.name, Ask: number, Node: b.culprit, Reason: b.reason})
	return b, true
}

// backOff puts the next proposal off, longer each time.
func (c *Core) backOff(n *naming) {
	n.pause = min(max(2*n.pause, c.timing.RetryMin), c.timing.RetryMax)
	n.retryAt = c.now.Add(n.pause)
}

// tickLead repeats what was not answered, and gives up on the silent.
func (c *Core) tickLead(n *naming) {
	v := n.part.view
	if !n.lead.committed && !n.part.deadline.After(c.now) {
		for _, m := range v.Members[1:] {
			if !n.lead.accepted[m.Node] {
				c.breached(n, c.self.Node, m.Node,
					fmt.Sprintf("no answer to the proposal within %v", n.part.patience))
				return
			}
		}
	}
	if n.lead.resendAt.After(c.now) {
		return
	}
	if len(v.Members) > MeshMembers { // a proposal to all is large, and late members are busy
		n.lead.pause = min(2*n.lead.pause, c.timing.AnnounceMax)
	}
	n.lead.resendAt = c.now.Add(n.lead.pause)
	for _, m := range v.Members[1:] {
		switch {
		case n.lead.committed:
			c.send(m.Node, &Commit{Name: n.name, ID: v.ID})
		case !n.lead.accepted[m.Node]:
			c.send(m.Node, &Propose{View: v})
		}
	}
}
