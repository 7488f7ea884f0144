package membership

import (
	"maps"
	"slices"
)

// This file keeps the last events, for those who look at a node now and then.

// happened tells subscribers of an event, and the traces of communicators that it is about.
func (n *node) happened(v Event) {
	n.events.emit(v)
	for _, m := range *n.groups.Load() {
		g := m.group
		if !g.Traced() || v.Communicator != "" && v.Communicator != g.Name {
			continue
		}
		rank := slices.Index(g.Nodes, v.Node)
		if v.Communicator == "" && rank < 0 {
			continue // about a node that is no member
		}
		detail := ""
		if v.Err != nil {
			detail = v.Err.Error()
		}
		g.Note(v.Kind.String(), detail, rank, n.fabric.RailIndex(v.Rail), int(v.Waiting+v.Resent))
	}
}

// keptEvents are kept.
const keptEvents = 64

// kept are a node's last events, and how many of each kind there were. Under events.mu.
type kept struct {
	count  uint64
	last   [keptEvents]EventRecord // by number, less one
	counts map[string]uint64       // by kind
}

func (k *kept) add(v *Event) {
	r := EventRecord{ID: k.count + 1, Time: v.Time, Kind: v.Kind.String(), Node: v.Node, Rail: v.Rail,
		Communicator: v.Communicator, Rank: v.Rank, Version: v.Version, Repaired: v.Repaired,
		Unacked: v.Unacknowledged, Waiting: v.Waiting, Resent: v.Resent, To: v.To}
	if v.Err != nil {
		r.Err = v.Err.Error()
	}
	k.last[k.count%keptEvents] = r
	k.count++
	if k.counts == nil {
		k.counts = make(map[string]uint64)
	}
	k.counts[r.Kind]++
}

// last are the last events, the oldest first.
func (e *events) last() (all []EventRecord) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for i := e.kept.count - min(e.kept.count, keptEvents); i < e.kept.count; i++ {
		all = append(all, e.kept.last[i%keptEvents])
	}
	return all
}

// counted are the numbers of events by kind.
func (e *events) counted() map[string]uint64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	return maps.Clone(e.kept.counts)
}
