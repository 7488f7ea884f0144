package view

import (
	"fmt"
	"slices"
	"time"
)

// This file is the member's side of a ballot; the proposer is a member too.

// part is a node's part in one ballot.
type part struct {
	view     *View
	reached  map[string]bool
	accepted bool          // all members are reached
	entered  bool          // the barrier has begun here: only its end, or the proposer's, ends this part
	patience time.Duration // for the next member to be reached (proposer: to accept)
	deadline time.Time     // of that, then for Commit
}

func (c *Core) proposed(from string, m *Propose) {
	v := m.View
	if v == nil || !ValidName(v.Name) || len(v.Members) == 0 || v.Members[0].Node != from {
		return
	}
	c.saw(v.Ballot)
	if c.hasEntered(v.ID) {
		return // repeated, and overtaken by its Commit: the proposer may be in the barrier still
	}
	n := c.names[v.Name]
	if n != nil && n.part != nil && n.part.view.ID == v.ID {
		if n.part.accepted && !n.part.entered {
			c.send(from, &Accept{Name: v.Name, ID: v.ID})
		}
		return
	}
	if n.hasRefused(v.ID) {
		c.send(from, n.refusal)
		return
	}
	if cause, reason := c.objection(n, v); cause != 0 {
		c.send(from, &Refuse{Name: v.Name, ID: v.ID, Cause: cause, Ballot: c.clock, Reason: reason})
		return
	}
	c.refuse(n, Outbid, "", fmt.Sprintf("node %q has proposed a higher ballot", from))
	c.leave(n, "a higher ballot came")
	c.join(n, v, c.timing.ConnectOf(len(v.Members)))
}

// objection says why this node cannot take part in the proposal, or 0.
func (c *Core) objection(n *naming, v *View) (Cause, string) {
	if err := v.Validate(); err != nil {
		return BadProposal, err.Error()
	}
	me := v.member(c.self.Node)
	switch {
	case me == nil || me.Incarnation != c.self.Incarnation:
		return NotAsking, "meant another process"
	case n == nil || n.call == nil || n.call.ask != me.Ask || n.call.shrink == nil && n.call.size != len(v.Members):
		return NotAsking, "not asking, or for something else"
	case !slices.Equal(me.Rails, c.self.Rails):
		return BadProposal, "rails are not those that were announced"
	case me.Host != c.self.Host:
		return BadProposal, "the host is not the one that was announced"
	case n.part != nil && n.part.entered:
		return Busy, "in the barrier of another ballot"
	case !(bid{v.Ballot, v.Members[0].Node}).beats(n.promised):
		return Outbid, "a higher ballot is known"
	case n.call.shrink != nil:
		if reason := n.call.shrink.objection(v); reason != "" {
			return BadProposal, reason
		}
	}
	return 0, ""
}

// join takes part in a ballot. Members that this node need not connect with count as reached.
func (c *Core) join(n *naming, v *View, patience time.Duration) {
	n.promised = bid{v.Ballot, v.Members[0].Node}
	links := Links(len(v.Members), v.Rank(c.self.Node))
	reached := make(map[string]bool, len(v.Members))
	for i, m := range v.Members {
		if _, ok := slices.BinarySearch(links, i); !ok {
			reached[m.Node] = true
		}
	}
	n.part = &part{view: v, reached: reached, patience: patience, deadline: c.now.Add(patience)}
	c.do(Register{View: v})
	c.do(Connect{View: v, Ranks: links})
	c.tryAccept(n)
}

// partOf finds the ballot with this wire id, before its barrier.
func (c *Core) partOf(id uint64) *naming {
	for _, n := range c.names {
		if n.part != nil && n.part.view.ID == id {
			return n
		}
	}
	return nil
}

func (c *Core) reached(e Reached) {
	n := c.partOf(e.ID)
	if n == nil || n.member(e.Node) == nil {
		return
	}
	if !n.part.reached[e.Node] {
		n.part.reached[e.Node] = true
		c.progressed(n.part)
	}
	c.tryAccept(n)
}

// progressed extends the wait for the next one.
func (c *Core) progressed(p *part) {
	if !p.accepted || p.view.Members[0].Node == c.self.Node {
		p.deadline = c.now.Add(p.patience)
	}
}

func (c *Core) tryAccept(n *naming) {
	p := n.part
	if p.accepted || len(p.reached) < len(p.view.Members) {
		return
	}
	p.accepted = true
	if n.lead != nil {
		c.ready(n, c.self.Node)
		return
	}
	p.deadline = c.now.Add(c.timing.Accepted + 2*time.Duration(len(p.view.Members))*c.timing.PerMember)
	c.send(p.view.Members[0].Node, &Accept{Name: n.name, ID: p.view.ID})
}

func (c *Core) unreachable(e Unreachable) {
	n := c.partOf(e.ID)
	if n == nil || n.part.entered || n.member(e.Node) == nil || e.Node == c.self.Node {
		return // once entered, the barrier finds out
	}
	c.cannotReach(n, e.Node, e.Reason)
	c.consider(n)
}

func (c *Core) cannotReach(n *naming, node, reason string) {
	if n.lead != nil {
		c.breached(n, c.self.Node, node, reason)
		return
	}
	c.blame(n, node, "cannot be reached: "+reason)
	c.refuse(n, CannotReach, node, reason)
	c.leave(n, fmt.Sprintf("node %q cannot be reached", node))
}

// refuse tells the proposer of the ballot in hand, if it is another node.
func (c *Core) refuse(n *naming, cause Cause, node, reason string) {
	if n.part == nil || n.lead != nil {
		return
	}
	if len(reason) > MaxReason {
		reason = reason[:MaxReason]
	}
	v := n.part.view
	n.refusal = &Refuse{Name: n.name, ID: v.ID, Cause: cause, Ballot: c.clock, Node: node, Reason: reason}
	c.send(v.Members[0].Node, n.refusal)
}

// hasRefused reports whether the last ballot that this call refused, having joined it, is this one.
// A repeated Propose or Commit must get the same answer: the first may be lost, or come later.
func (n *naming) hasRefused(id uint64) bool {
	return n != nil && n.refusal != nil && n.refusal.ID == id
}

func (c *Core) committed(from string, m *Commit) {
	n := c.names[m.Name]
	switch {
	case n != nil && n.part != nil && n.part.view.ID == m.ID:
		if from == n.part.view.Members[0].Node && n.part.accepted && !n.part.entered {
			c.enter(n)
		}
	case n.hasRefused(m.ID):
		c.send(from, n.refusal)
	case !c.hasEntered(m.ID):
		// The proposer waits in a barrier that this node will never enter.
		c.send(from, &Refuse{Name: m.Name, ID: m.ID, Cause: Gone, Ballot: c.clock, Reason: "left the ballot"})
	}
}

// hasEntered reports whether this node was in the barrier of a ballot lately.
func (c *Core) hasEntered(id uint64) bool { return slices.Contains(c.entered[:], id) }

func (c *Core) enter(n *naming) {
	n.part.entered = true
	c.entered[c.entries%len(c.entered)] = n.part.view.ID
	c.entries++
	c.do(Barrier{View: n.part.view})
}

func (c *Core) abandoned(from string, m *Abandon) {
	n := c.names[m.Name]
	if n == nil || n.part == nil || n.part.view.ID != m.ID || n.part.view.Members[0].Node != from {
		return
	}
	n.noteEnd(from, "gave the ballot up")
	if m.Reason != "" {
		n.call.culprit, n.call.obstacle = m.Node, m.Reason
	}
	c.leave(n, fmt.Sprintf("node %q gave the ballot up", from))
	c.consider(n)
}

func (c *Core) barrierDone(e BarrierDone) {
	n := c.partOf(e.ID)
	if n == nil || !n.part.entered {
		return
	}
	v := n.part.view
	if e.Err == nil {
		c.formed(n, v)
		return
	}
	n.call.failures++
	n.call.culprit, n.call.obstacle = "", "the committing barrier failed: "+e.Err.Error()
	if n.call.failures >= c.timing.BarrierFailures {
		c.fail(n, "", n.call.obstacle)
		return
	}
	c.leave(n, n.call.obstacle)
	c.backOff(n)
}

func (c *Core) formed(n *naming, v *View) {
	call := n.call
	n.part, n.lead = nil, nil
	c.end(n)
	for _, m := range v.Members {
		if a := n.asks[m.Node]; a != nil && a.incarnation == m.Incarnation && a.number <= m.Ask {
			c.forget(n, m.Node)
		}
	}
	for _, to := range c.told(call) {
		if v.Rank(to) < 0 {
			c.send(to, &Withdraw{Name: n.name, Ask: call.ask, Absent: call.shrink != nil})
		}
	}
	c.do(Formed{Call: call.token, View: v})
	c.tidy(n)
}

// leave ends this node's part in its ballot, if it has one. What the proposer blames must be noted
// before: it tells the members.
func (c *Core) leave(n *naming, reason string) {
	if n.part == nil {
		return
	}
	p := n.part
	if n.lead != nil {
		for _, m := range p.view.Members[1:] {
			c.send(m.Node, &Abandon{Name: n.name, ID: p.view.ID, Node: n.call.culprit,
				Reason: n.call.obstacle})
		}
	}
	if p.entered {
		n.attempted(p.view)
	}
	n.part, n.lead = nil, nil
	c.do(Unregister{View: p.view, Entered: p.entered, Reason: reason})
}

// leaveUnentered leaves unless the barrier has begun: others may complete it.
func (c *Core) leaveUnentered(n *naming, reason string) {
	if n.part != nil && !n.part.entered {
		c.refuse(n, Gone, "", reason)
		c.leave(n, reason)
	}
}

func (c *Core) tickPart(n *naming) {
	switch p := n.part; {
	case p == nil:
	case n.lead != nil:
		c.tickLead(n)
	case p.entered || p.deadline.After(c.now):
	case p.accepted:
		c.blame(n, p.view.Members[0].Node, "proposed a view and then fell silent")
		c.leaveUnentered(n, "no commit came")
	default:
		for _, m := range p.view.Members {
			if !p.reached[m.Node] {
				c.cannotReach(n, m.Node, fmt.Sprintf("no pairs within %v", p.patience))
				return
			}
		}
	}
}
