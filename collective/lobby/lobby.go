// Package lobby bounds what strangers may keep open at a node, such as connections that have not said
// who they are. There is room for one more always: who comes late is not kept out by who sits there.
package lobby

import "strings"

// Lobby holds what is open, in the order in which it came. Its users lock it.
type Lobby[T comparable] struct {
	open []guest[T]
}

type guest[T comparable] struct {
	value T
	host  string
}

// Enter takes one in, where there may be so many, and so many of one host. It returns the one whose
// place it takes, if any: the oldest of its host, where that has too many, else the oldest of the host
// that has the most.
func (l *Lobby[T]) Enter(v T, host string, most, perHost int) (out T, full bool) {
	from := ""
	switch count := l.counts(); {
	case count[host] >= perHost:
		from, full = host, true
	case len(l.open) >= most:
		from, full = host, true
		for _, g := range l.open {
			if count[g.host] > count[from] {
				from = g.host
			}
		}
	}
	for i, g := range l.open {
		if full && g.host == from {
			out = g.value
			l.remove(i)
			break
		}
	}
	l.open = append(l.open, guest[T]{v, host})
	return out, full
}

// Leave lets one go. False: it was not there, since another has its place.
func (l *Lobby[T]) Leave(v T) bool {
	for i, g := range l.open {
		if g.value == v {
			l.remove(i)
			return true
		}
	}
	return false
}

// Len is how many are there.
func (l *Lobby[T]) Len() int { return len(l.open) }

func (l *Lobby[T]) counts() map[string]int {
	count := make(map[string]int)
	for _, g := range l.open {
		count[g.host]++
	}
	return count
}

func (l *Lobby[T]) remove(i int) {
	copy(l.open[i:], l.open[i+1:])
	l.open[len(l.open)-1] = guest[T]{} // holds nothing alive
	l.open = l.open[:len(l.open)-1]
}

// HostOf is an address without what tells apart the sockets of one host.
func HostOf(address string) string {
	if i := strings.LastIndexAny(address, ":#"); i > 0 {
		return address[:i]
	}
	return address
}
