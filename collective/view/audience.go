package view

import (
	"cmp"
	"slices"
)

// This file is about whom an ask is announced to. It is for the lowest asking node to propose.
// Among few living nodes everybody tells everybody, and each can say who is missing. Among many
// that would be n² messages each time. There a node tells the lowest living nodes, which answer
// if they ask too, and more of them each time, until it knows askers below itself. From then on
// it tells the lowest of these alone. So who proposes hears of all, and in the end tells all.
// Nodes that don't know the same nodes yet refer each other to the lowest asker that they know.
const (
	announceAll    = 32 // other living nodes up to which all are told
	announceFew    = 8  // of the lowest that are told at first
	audienceGrowth = 8  // times as many with each announcement, while no lower one is known to ask
	announceKeep   = 3  // of the lowest askers that are told: the next ones take over
)

// crowded reports whether so many nodes live that a call is not told to all of them.
func (c *Core) crowded() bool { return len(c.living) > announceAll }

// audience are the nodes that an announcement goes to now.
func (c *Core) audience(n *naming) []string {
	if !c.crowded() {
		return c.concerned(n.call, c.living)
	}
	if lower := c.lower(n, announceKeep); len(lower) > 0 {
		return lower
	}
	all := c.concerned(n.call, c.living)
	return all[:min(len(all), max(n.call.reach, announceFew))]
}

// addresses reports whether an announcement goes to a node now.
func (c *Core) addresses(n *naming, node string) bool {
	return slices.Contains(c.audience(n), node)
}

// awaits reports whether a node is to hear of a call as soon as it is known to live: it has asked,
// or another one says that it is the lowest to ask.
func (c *Core) awaits(n *naming, node string) bool {
	return (n.asks[node] != nil || n.call.referred == node) && c.concerns(n.call, node)
}

// told are the living nodes that may know of a call.
func (c *Core) told(call *call) []string {
	if !c.crowded() {
		return c.concerned(call, c.living)
	}
	var nodes []string
	for _, node := range c.living {
		if call.heard[node] {
			nodes = append(nodes, node)
		}
	}
	return nodes
}

// concerned are those of some living nodes that are to hear of a call.
func (c *Core) concerned(call *call, living []string) []string {
	if call.shrink == nil {
		return living
	}
	var nodes []string
	for _, node := range living {
		if c.concerns(call, node) {
			nodes = append(nodes, node)
		}
	}
	return nodes
}

// lower are the lowest living nodes below this one that are known to ask for the same.
func (c *Core) lower(n *naming, most int) (nodes []string) {
	for _, node := range n.askers {
		if len(nodes) == most || node > c.self.Node {
			break
		}
		if a := n.asks[node]; a.size == n.call.size && c.members[node] == a.incarnation {
			nodes = append(nodes, node)
		}
	}
	return nodes
}

// lowest is the lowest node that is known to ask, this one included.
func (c *Core) lowest(n *naming) string {
	if lower := c.lower(n, 1); len(lower) > 0 {
		return lower[0]
	}
	return c.self.Node
}

// knowsLower reports whether this node knows a lower asker than who has announced itself.
func (c *Core) knowsLower(n *naming, from string, m *Announce) bool {
	return c.crowded() && c.lowest(n) < cmp.Or(m.Lowest, from)
}

// refer has a node told that another one says is the lowest to ask, once it is known to live.
func (c *Core) refer(n *naming, lowest string) {
	if !c.crowded() || lowest >= c.lowest(n) || !validText(lowest, MaxNode) {
		return
	}
	n.call.referred = lowest
	if _, lives := c.members[lowest]; lives && !n.call.heard[lowest] && c.concerns(n.call, lowest) {
		c.announceTo(n, lowest)
	}
}
