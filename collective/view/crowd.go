package view

import "slices"

// crowd counts the asks that are remembered of other nodes, by node: nobody's asks take the room of
// others'.
type crowd map[string]int

// total is the number of all of them.
func (c crowd) total() (asks int) {
	for _, n := range c {
		asks += n
	}
	return asks
}

// makeRoom reports whether one more ask of a node can be remembered. Where there is no room, the
// node that takes the most gives some, unless it is this one.
func (c *Core) makeRoom(from string) bool {
	if _, lives := c.members[from]; !lives {
		strangers := 0
		for node, asks := range c.known {
			if _, lives := c.members[node]; !lives {
				strangers += asks
			}
		}
		return strangers < MaxStrangers
	}
	if c.known.total() < MaxKnownAsks {
		return true
	}
	most := from
	for node, asks := range c.known {
		if asks > c.known[most] || asks == c.known[most] && node < most {
			most = node
		}
	}
	if c.known[most] <= c.known[from]+1 {
		return false
	}
	for _, n := range c.sortedNames() {
		if n.asks[most] != nil {
			c.forget(n, most)
			c.tidy(n)
			return true
		}
	}
	return false
}

// forget drops what a node asks under a name.
func (c *Core) forget(n *naming, node string) {
	if n.asks[node] == nil {
		return
	}
	delete(n.asks, node)
	if i, ok := slices.BinarySearch(n.askers, node); ok {
		n.askers = slices.Delete(n.askers, i, i+1)
	}
	if c.known[node]--; c.known[node] == 0 {
		delete(c.known, node)
	}
}
