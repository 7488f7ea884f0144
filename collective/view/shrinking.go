package view

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/polyrail/polyrail/collective/fault"
)

// This file is about what is left of a communicator that broke (docs/decisions/013): its members
// that live agree on a view of their own, by the same ballot and barrier as any other.
//
// It differs from an Ask in who is counted: nobody new, and everybody old: a view is proposed when
// each old member has asked, is lost, or said that it will not come. The view needs more than
// half of the old members, or half of them with the lowest.
//
// That alone would let two rests go on beside each other: some members complete a barrier, whose other
// members see it fail and go back to the old communicator. So a member that entered a barrier in vain
// takes part only in views that hold a majority of that one, too: it may have been
// formed. (This is the rule for ambiguous attempts of dynamic voting: Lotem, Keidar and
// Dolev, "Dynamic voting for consistent primary components", PODC 1997.)

// maxAttempts bounds the barriers that one call may enter in vain.
const maxAttempts = 16

// shrinkPrefix marks the names under which communicators shrink. Callers' names don't begin with it.
const shrinkPrefix = "\x00shrink/"

// ShrinkName is the name under which the members of the communicator with this wire id shrink it.
func ShrinkName(id uint64) string { return fmt.Sprintf("%s%016x", shrinkPrefix, id) }

// ShrinkOf is the wire id that a ShrinkName was made of.
func ShrinkOf(name string) (id uint64, ok bool) {
	hex, found := strings.CutPrefix(name, shrinkPrefix)
	id, err := strconv.ParseUint(hex, 16, 64)
	return id, found && err == nil
}

// SeqRange is a run of operations by seq, both ends included. As a rank's own report it is its first
// unfinished and its last finished operation.
type SeqRange struct{ First, Last uint64 }

// Empty reports whether no operation is in the range.
func (r SeqRange) Empty() bool { return r.First > r.Last }

// Contains reports whether the operation is in the range.
func (r SeqRange) Contains(seq uint64) bool { return r.First <= seq && seq <= r.Last }

// cover widens the range to what another rank reports.
func (r SeqRange) cover(o SeqRange) SeqRange {
	return SeqRange{min(r.First, o.First), max(r.Last, o.Last)}
}

// Old is a communicator that its members shrink.
type Old struct {
	ID       uint64
	Title    string   // its name, for errors
	Members  []Member // by rank there; asks and rails don't matter
	Uneven   SeqRange // this rank's own report
	Attempts []*View  // of earlier calls, as their Failed told
}

// shrink is what a call knows of the communicator that it shrinks.
type shrink struct {
	old      Old
	members  []Member          // of old, ascending by node, as those of a view are
	lost     map[string]string // old members that are gone for good, and why
	absent   map[string]uint64 // those that will not come, by the number of their last ask that doesn't count
	attempts []*View           // whose barriers this node entered in vain
}

func newShrink(old Old) *shrink {
	members := slices.SortedFunc(slices.Values(old.Members),
		func(a, b Member) int { return cmp.Compare(a.Node, b.Node) })
	return &shrink{old: old, members: members, lost: map[string]string{}, absent: map[string]uint64{},
		attempts: old.Attempts}
}

func (c *Core) shrink(e Shrink) {
	name, shrink := ShrinkName(e.Old.ID), newShrink(e.Old)
	reason := c.noCall(name)
	if !shrink.has(c.self.Node, c.self.Incarnation) {
		reason = "this process is no member of it"
	}
	if reason != "" {
		c.do(Failed{Call: e.Call, Name: name, Attempts: e.Old.Attempts,
			Err: &fault.ViewError{Name: e.Old.Title, Node: c.self.Node, Reason: reason}})
		return
	}
	c.begin(name, &call{token: e.Call, size: len(e.Old.Members), nonce: e.Nonce, shrink: shrink})
}

// concerns reports whether a living node is to hear of the call.
func (c *Core) concerns(call *call, node string) bool {
	return call.shrink == nil || call.shrink.has(node, c.members[node])
}

// has reports whether the process is an old member.
func (s *shrink) has(node string, incarnation uint64) bool {
	m := (&View{Members: s.members}).member(node)
	return m != nil && m.Incarnation == incarnation
}

// lost: an old member is gone for good.
func (c *Core) lost(e Lost) {
	for _, n := range c.sortedNames() {
		if n.call == nil || n.call.shrink == nil || !n.call.shrink.has(e.Node, e.Incarnation) || n.call.shrink.lost[e.Node] != "" {
			continue
		}
		n.call.shrink.lost[e.Node] = e.Reason
		if n.member(e.Node) != nil {
			c.leaveUnentered(n, fmt.Sprintf("node %q is lost", e.Node))
		}
		c.consider(n)
		c.tidy(n)
	}
}

// stranger: somebody shrinks what this node doesn't have, or no longer: it will never ask for that.
func (c *Core) stranger(e Stranger) {
	if n := c.names[e.Name]; n == nil || n.call == nil {
		c.send(e.From, &Withdraw{Name: e.Name, Ask: c.asked, Absent: true})
	}
}

// awayFrom notes that a node will not come, unless it asks again later.
func (n *naming) awayFrom(node string, number uint64) {
	if n.call != nil && n.call.shrink != nil {
		n.call.shrink.absent[node] = number
	}
}

// back takes that back.
func (n *naming) back(node string, number uint64) {
	if n.call != nil && n.call.shrink != nil && number > n.call.shrink.absent[node] {
		delete(n.call.shrink.absent, node)
	}
}

// roll calls the old members: who has asked, who may still, and who will not.
func (c *Core) roll(n *naming) (present, awaited, missing []string) {
	s := n.call.shrink
	for _, m := range s.members {
		a := n.asks[m.Node]
		living, lives := c.members[m.Node]
		_, away := s.absent[m.Node]
		switch {
		case m.Node == c.self.Node:
			present = append(present, m.Node)
		case s.lost[m.Node] != "" || lives && living > m.Incarnation:
			missing = append(missing, m.Node)
		case a != nil && a.incarnation == m.Incarnation && lives && living == m.Incarnation:
			present = append(present, m.Node)
		case away:
			missing = append(missing, m.Node)
		default:
			awaited = append(awaited, m.Node)
		}
	}
	return present, awaited, missing
}

// rest is the view's members if it is time for one and for this node to propose it. The call
// fails once it can't succeed any more.
func (c *Core) rest(n *naming) []string {
	s := n.call.shrink
	present, awaited, missing := c.roll(n)
	if of, ok := s.minority(append(slices.Clone(present), awaited...)); ok {
		c.failWith(n, &fault.MinorityError{Name: s.old.Title, Left: append(present, awaited...), Missing: missing, Of: of}, true)
		return nil
	}
	if len(awaited) > 0 || present[0] != c.self.Node {
		return nil
	}
	return present
}

// minority reports whether nodes are too few to go on, and of how many.
func (s *shrink) minority(nodes []string) (of int, ok bool) {
	if !quorum(nodes, s.old.Members) {
		return len(s.old.Members), true
	}
	for _, v := range s.attempts {
		if !quorum(nodes, v.Members) {
			return len(v.Members), true
		}
	}
	return 0, false
}

// quorum: more than half of the members, or exactly half with the first of them. Two quorums share
// a node.
func quorum(nodes []string, of []Member) bool {
	in := make(map[string]bool, len(nodes))
	for _, node := range nodes {
		in[node] = true
	}
	count := 0
	for _, m := range of {
		if in[m.Node] {
			count++
		}
	}
	return 2*count > len(of) || 2*count == len(of) && in[of[0].Node]
}

// objection says what keeps this node from a proposed view, or "".
func (s *shrink) objection(v *View) string {
	nodes := make([]string, len(v.Members))
	for i, m := range v.Members {
		nodes[i] = m.Node
		if !s.has(m.Node, m.Incarnation) {
			return fmt.Sprintf("node %q (incarnation %d) was no member", m.Node, m.Incarnation)
		}
	}
	if of, ok := s.minority(nodes); ok {
		return fmt.Sprintf("no majority of the %d nodes of the communicator, or of a view that may have been formed", of)
	}
	if v.Uneven.cover(s.old.Uneven) != v.Uneven {
		return fmt.Sprintf("its range of operations %v leaves out this rank's %v", v.Uneven, s.old.Uneven)
	}
	if len(s.attempts) >= maxAttempts {
		return fmt.Sprintf("%d barriers failed", len(s.attempts))
	}
	return ""
}

// attempted notes a barrier that this node entered in vain.
func (n *naming) attempted(v *View) {
	if n.call != nil && n.call.shrink != nil {
		n.call.shrink.attempts = append(n.call.shrink.attempts, v)
	}
}

// Awaited are the old members that a call to shrink has missed for so long that this node should
// connect to them: in a large communicator it notices only the loss of those that it is connected to.
// Where it is for this node to propose the view it misses all that have not called, alive or lost.
// Any other node waits for longer, and then misses the lowest only, whose place it may have to take:
// where many nodes share a processor each would else connect to all.
func (c *Core) Awaited(name string) []string {
	n := c.names[name]
	if n == nil || n.call == nil || n.call.shrink == nil || n.part != nil || len(c.lower(n, 1)) > 0 {
		return nil
	}
	_, awaited, _ := c.roll(n)
	at, later := c.missed(n.call)
	if below, _ := slices.BinarySearch(awaited, c.self.Node); below > 0 {
		at, awaited = later, awaited[:min(below, announceFew)]
	}
	if c.now.Before(at) {
		return nil
	}
	return awaited
}

// missed is when members that have not called to shrink are missed: by the lowest, and by others.
func (c *Core) missed(call *call) (lowest, others time.Time) {
	lowest = call.began.Add(c.timing.Missed)
	return lowest, lowest.Add(c.timing.announceOf(call.size))
}

// progressOfShrink says how far the call has come, for people, and names whom it waits for.
func (c *Core) progressOfShrink(n *naming) (culprit, text string) {
	if text = c.deferred(n, "shrink"); text != "" {
		return "", text + n.standing()
	}
	present, awaited, missing := c.roll(n)
	text = fmt.Sprintf("%d of %d nodes want to go on (%s)", len(present), n.call.size,
		fault.List(present, fault.MaxListed))
	if len(missing) > 0 {
		text += "; gone: " + fault.List(missing, fault.MaxListed)
	}
	if len(awaited) > 0 {
		culprit = awaited[0]
		text += "; neither lost nor shrinking: " + fault.List(awaited, fault.MaxListed)
	}
	return culprit, text + n.standing()
}

// uneven is the range over the members of a view.
func (c *Core) uneven(n *naming, members []Member) SeqRange {
	if n.call.shrink == nil {
		return SeqRange{}
	}
	r := n.call.shrink.old.Uneven
	for _, m := range members {
		if a := n.asks[m.Node]; a != nil {
			r = r.cover(a.uneven)
		}
	}
	return r
}
