package view

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/polyrail/polyrail/collective/fault"
)

// This file is about who asks: calls of this node, announcements of the others.

func (c *Core) ask(e Ask) {
	reason := c.noCall(e.Name)
	switch {
	case !ValidName(e.Name) || strings.HasPrefix(e.Name, shrinkPrefix):
		reason = fmt.Sprintf("its name must be 1 to %d bytes of text, not begun by %q", MaxName, shrinkPrefix)
	case e.Size < 1 || e.Size > MaxMembers:
		reason = fmt.Sprintf("its size of %d nodes is not in 1 to %d", e.Size, MaxMembers)
	}
	if reason != "" {
		c.do(Failed{Call: e.Call, Name: e.Name,
			Err: &fault.ViewError{Name: e.Name, Node: c.self.Node, Reason: reason}})
		return
	}
	c.begin(e.Name, &call{token: e.Call, size: e.Size, nonce: e.Nonce, settings: e.Settings})
}

// noCall says why no call can begin under this name now, or "".
func (c *Core) noCall(name string) string {
	switch n := c.names[name]; {
	case c.calls >= MaxCalls:
		return fmt.Sprintf("%d calls wait already", c.calls)
	case n != nil && n.call != nil:
		return "another call of this node waits for this name already"
	}
	return ""
}

// begin numbers a call and makes it known.
func (c *Core) begin(name string, call *call) {
	n := c.naming(name)
	// Numbers ascend, and nobody can guess one who has not heard it: a Reject names it.
	c.asked += 1 + call.nonce>>40
	c.calls++
	call.ask, call.began, call.pause = c.asked, c.now, c.timing.announceOf(call.size)
	n.call = call
	c.announce(n)
	c.consider(n)
}

func (c *Core) cancel(e Cancel) {
	n := c.names[e.Name]
	if n == nil || n.call == nil || n.call.token != e.Call {
		return // it ended already
	}
	culprit, progress := n.call.culprit, ""
	if n.call.shrink != nil {
		if awaited, text := c.progressOfShrink(n); awaited != "" {
			culprit, progress = awaited, text
		} else {
			progress = text
		}
	} else {
		progress = c.progress(n)
	}
	c.fail(n, culprit, e.Reason+": "+progress)
}

// Progress says what a call of this node under a name waits for, for people; "" if none waits.
func (c *Core) Progress(name string) string {
	n := c.names[name]
	if n == nil || n.call == nil {
		return ""
	}
	if n.call.shrink != nil {
		_, text := c.progressOfShrink(n)
		return text
	}
	return c.progress(n)
}

// progress says how far the call has come, for people.
func (c *Core) progress(n *naming) string {
	if text := c.deferred(n, "ask"); text != "" {
		return text + n.standing()
	}
	names := c.candidates(n)
	s := fmt.Sprintf("%d of %d nodes have asked (%s)", len(names), n.call.size, fault.List(names, fault.MaxListed))
	if len(names) < n.call.size {
		var others []string
		for _, node := range c.told(n.call) { // of others nobody knows here whether they ask
			if !slices.Contains(names, node) {
				others = append(others, node)
			}
		}
		switch {
		case len(others) > 0:
			s += "; known, and not asking: " + fault.List(others, fault.MaxListed)
		case len(names) > len(c.living):
			s += "; no other node is known"
		}
	}
	return s + n.standing()
}

// deferred names the node that knows who calls, where this one is not told; "" where it is.
func (c *Core) deferred(n *naming, verb string) string {
	lower := c.lower(n, 1)
	if len(lower) == 0 || !c.crowded() {
		return ""
	}
	return fmt.Sprintf("node %q, the lowest known to %s, counts who does", lower[0], verb)
}

// standing says what the ballot in hand waits for, and what stood in the way of those before.
func (n *naming) standing() string {
	var s string
	if n.part != nil {
		s = "; " + n.awaited()
	}
	switch {
	case n.call.obstacle != "":
		s += "; last obstacle: " + n.call.obstacle
	case n.call.ended != "":
		s += "; last attempt: " + n.call.ended
	}
	return s
}

// blame notes what stands in the way.
func (c *Core) blame(n *naming, node, reason string) {
	if n.call != nil {
		n.call.culprit, n.call.obstacle = node, fmt.Sprintf("node %q %s", node, reason)
	}
}

// noteEnd notes who ends the ballot in hand by leaving it. It says less than an obstacle does.
func (n *naming) noteEnd(node, reason string) {
	n.call.ended = fmt.Sprintf("node %q %s, while %s", node, reason, n.awaited())
	if n.call.obstacle == "" {
		n.call.culprit = node
	}
}

// awaited says what the ballot in hand waits for, for people.
func (n *naming) awaited() string {
	switch p := n.part; {
	case p.entered:
		return "in the barrier that commits the view"
	case !p.accepted:
		return "waiting for pairs to " + lacking(p.view, p.reached)
	case n.lead != nil:
		return "waiting for the answers of " + lacking(p.view, n.lead.accepted)
	default:
		return "waiting for the commit of " + p.view.Members[0].Node
	}
}

// lacking lists the members that are not in a set.
func lacking(v *View, in map[string]bool) string {
	var names []string
	for _, m := range v.Members {
		if !in[m.Node] {
			names = append(names, m.Node)
		}
	}
	return fault.List(names, fault.MaxListed)
}

// announce tells those who may propose, and sets the time for the next announcement.
func (c *Core) announce(n *naming) {
	call := n.call
	call.announced = c.now
	call.announceAt = c.now.Add(call.pause)
	for _, to := range c.audience(n) {
		c.announceTo(n, to)
	}
	call.reach = min(audienceGrowth*max(call.reach, announceFew), MaxMembers)
	call.pause = min(2*call.pause, c.timing.AnnounceMax)
}

func (c *Core) announceTo(n *naming, to string) {
	m := &Announce{
		Name: n.name, Ask: n.call.ask, Size: n.call.size, Rails: c.self.Rails, Host: c.self.Host,
		TTL:    3*n.call.pause + time.Second, // two announcements may get lost
		Lowest: c.lowest(n), Settings: n.call.settings,
	}
	if a := n.asks[to]; a != nil {
		m.Believed = a.number
	}
	if n.call.shrink != nil {
		m.Uneven = n.call.shrink.old.Uneven
	}
	if n.call.heard == nil {
		n.call.heard = map[string]bool{}
	}
	n.call.heard[to] = true
	c.send(to, m)
}

func (c *Core) announced(from string, incarnation uint64, m *Announce) {
	if !ValidName(m.Name) || m.Size < 1 || m.Size > MaxMembers || m.Ask == 0 || m.TTL <= 0 ||
		validateRails(m.Rails) != nil || m.Host.validate() != nil || !validSettings(m.Settings) ||
		!validText(from, MaxNode) {
		return
	}
	n := c.naming(m.Name)
	defer c.tidy(n)
	_, banned := c.bannedAsk(n, from, incarnation, m.Ask)
	if banned || !c.remember(n, from, incarnation, m) {
		return
	}
	n.back(from, m.Ask)
	if n.call == nil {
		if m.Believed != 0 {
			c.send(from, &Withdraw{Name: m.Name, Ask: m.Believed})
		}
		return
	}
	// Does the sender know what is asked here? If it knows nothing and our announcement left for it a
	// moment ago, the two have crossed. A stranger is answered once gossip knows it (memberUp).
	_, lives := c.members[from]
	crossed := m.Believed == 0 && n.call.heard[from] && c.now.Sub(n.call.announced) < c.timing.AnnounceMin/2
	if lives && (m.Believed != n.call.ask && !crossed || c.knowsLower(n, from, m)) {
		c.announceTo(n, from)
	}
	c.refer(n, m.Lowest)
	if m.Size != n.call.size {
		c.blame(n, from, fmt.Sprintf("asks for %d nodes, this one for %d", m.Size, n.call.size))
		c.send(from, &Reject{Name: n.name, Ask: m.Ask, Mine: n.call.ask, Node: c.self.Node,
			Reason: fmt.Sprintf("node %q asked for %d nodes, node %q for %d", c.self.Node, n.call.size, from, m.Size)})
		return
	}
	c.consider(n)
}

// remember notes what another node asks. It returns false for old news and at the limit.
func (c *Core) remember(n *naming, from string, incarnation uint64, m *Announce) bool {
	old := n.asks[from]
	switch {
	case old == nil && !c.makeRoom(from):
		return false // it announces again
	case old == nil:
		c.known[from]++
		i, _ := slices.BinarySearch(n.askers, from)
		n.askers = slices.Insert(n.askers, i, from)
	case incarnation < old.incarnation || incarnation == old.incarnation && m.Ask < old.number:
		return false
	}
	n.asks[from] = &ask{incarnation: incarnation, number: m.Ask, size: m.Size, rails: m.Rails, host: m.Host,
		settings: m.Settings, uneven: m.Uneven,
		expires: c.now.Add(min(m.TTL, time.Minute))}
	if expires := n.asks[from].expires; n.expires.IsZero() || expires.Before(n.expires) {
		n.expires = expires
	}
	return true
}

func (c *Core) withdrawn(from string, incarnation uint64, m *Withdraw) {
	n := c.names[m.Name]
	if n == nil {
		return
	}
	if a := n.asks[from]; a != nil && a.incarnation == incarnation && a.number <= m.Ask {
		c.forget(n, from)
	}
	if m.Absent && c.members[from] == incarnation && n.asks[from] == nil {
		n.awayFrom(from, m.Ask)
	}
	if in := n.member(from); in != nil && in.Incarnation == incarnation && in.Ask <= m.Ask {
		n.noteEnd(from, "withdrew")
		c.leaveUnentered(n, fmt.Sprintf("node %q withdrew", from))
	}
	c.consider(n)
	c.tidy(n)
}

// rejected: another node says that the call cannot succeed. Only a node that was asking
// when it spoke says so, hence a late announcement alone fails nobody.
func (c *Core) rejected(from string, m *Reject) {
	n := c.names[m.Name]
	if n == nil || n.call == nil || n.call.ask != m.Ask {
		return
	}
	if m.Mine != 0 {
		c.send(from, &Reject{Name: m.Name, Ask: m.Mine, Node: c.self.Node, Reason: m.Reason})
	}
	c.fail(n, m.Node, m.Reason)
}

// candidates lists the living nodes, this one included, that ask for the same size, ascending.
func (c *Core) candidates(n *naming) []string {
	nodes := make([]string, 0, 1+len(n.asks))
	self := false
	for _, node := range n.askers {
		a := n.asks[node]
		if !self && node > c.self.Node {
			nodes, self = append(nodes, c.self.Node), true
		}
		if a.size == n.call.size && c.members[node] == a.incarnation {
			nodes = append(nodes, node)
		}
	}
	if !self {
		nodes = append(nodes, c.self.Node)
	}
	return nodes
}
