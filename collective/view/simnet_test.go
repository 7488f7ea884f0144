package view

import (
	"errors"
	"reflect"
	"slices"
	"time"
)

// This file is the simulation's pairs and barriers, and what they check.

func (w *world) connect(n *simNode, v *View, ranks []int) {
	inc := n.incarnation
	for _, rank := range ranks {
		m := v.Members[rank]
		w.after(w.delay(), func() {
			if n.incarnation != inc {
				return
			}
			peer := w.byName[m.Node]
			if w.cut[pairKey(n.name, m.Node)] || peer.core == nil || peer.incarnation != m.Incarnation {
				w.step(n, Unreachable{v.ID, m.Node, "connection refused"})
				return
			}
			n.joined[v.ID][m.Node] = true
			w.step(n, Reached{v.ID, m.Node})
		})
	}
}

func pairKey(a, b string) [2]string { return [2]string{min(a, b), max(a, b)} }

func (w *world) enter(n *simNode, v *View) {
	b := w.barriers[v.ID]
	if b == nil {
		b = &simBarrier{view: v, entered: map[string]bool{}, open: map[string]bool{}}
		w.barriers[v.ID] = b
		for _, m := range v.Members {
			if p := w.byName[m.Node]; p.core == nil || p.incarnation != m.Incarnation {
				b.doomed = true
			}
		}
		w.after(2*time.Second, func() { b.doomed = true; w.sweepBarriers() }) // the operation's timeout
	}
	if b.entered[n.name] {
		w.failf("%s entered the barrier of %x twice", n.name, v.ID)
	}
	if len(n.joined[v.ID]) != len(Links(len(v.Members), v.Rank(n.name)))+1 {
		w.failf("%s entered the barrier of %x having reached %v only", n.name, v.ID, n.joined[v.ID])
	}
	b.entered[n.name], b.open[n.name] = true, true
	w.sweepBarriers()
}

// sweepBarriers ends barriers: well for those who are in when all have entered, badly for
// the ones that a member has left. Where both hold, each may go either way.
func (w *world) sweepBarriers() {
	ids := make([]uint64, 0, len(w.barriers))
	for id := range w.barriers {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	for _, id := range ids {
		b := w.barriers[id]
		full := len(b.entered) == len(b.view.Members)
		if !full && !b.doomed {
			continue
		}
		for _, m := range b.view.Members {
			if !b.open[m.Node] {
				continue
			}
			delete(b.open, m.Node)
			var err error
			if b.doomed && !(full && w.rng.Intn(2) == 0) || w.rough && w.rng.Intn(50) == 0 {
				err = errors.New("a member left the barrier")
			}
			n, inc := w.byName[m.Node], m.Incarnation
			w.after(w.delay(), func() {
				if n.incarnation == inc {
					w.step(n, BarrierDone{id, err})
				}
			})
		}
	}
}

func (w *world) checkFormed(n *simNode, a Formed) {
	w.formed++
	token, waits := n.calls[a.View.Name]
	switch b := w.barriers[a.View.ID]; {
	case !waits || token != a.Call:
		w.failf("%s formed %x for a call that doesn't wait", n.name, a.View.ID)
	case !reflect.DeepEqual(w.views[a.View.ID], a.View):
		w.failf("%s formed another view under %x", n.name, a.View.ID)
	case b == nil || len(b.entered) != len(a.View.Members):
		w.failf("%s formed %x before all had entered", n.name, a.View.ID)
	case a.View.member(n.name) == nil || a.View.member(n.name).Incarnation != n.incarnation:
		w.failf("%s formed a view without itself", n.name)
	}
	delete(n.calls, a.View.Name)
	n.last[a.View.Name] = a.View
	if w.onFormed != nil {
		w.onFormed(n, a.View)
	}
}

// received is what a node makes of a message: who announces that it shrinks what is not here is a
// stranger.
func received(n *simNode, from string, incarnation uint64, m Message) Event {
	if a, ok := m.(*Announce); ok {
		if id, shrinks := ShrinkOf(a.Name); shrinks && n.holds[id] == nil {
			return Stranger{From: from, Name: a.Name}
		}
	}
	return Received{From: from, Incarnation: incarnation, Message: m}
}

func (w *world) ask(n *simNode, name string, size int) {
	if n.core == nil || n.calls[name] != 0 {
		return
	}
	token := uint64(w.rng.Int63()) + 1
	n.calls[name] = token
	w.step(n, Ask{Call: token, Name: name, Size: size, Nonce: w.rng.Uint64()})
}

func (w *world) cancel(n *simNode, name string) {
	if token := n.calls[name]; token != 0 && n.core != nil {
		w.step(n, Cancel{token, name, "canceled"})
	}
}
