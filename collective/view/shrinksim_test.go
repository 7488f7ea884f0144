package view

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"
)

// TestShrinkingUnderChaos lets groups shrink, again and again, on the network of the other
// simulation, with false alarms of losses, failed barriers, callers that give up, close or try
// again. No two rests of one communicator may both be complete.
func TestShrinkingUnderChaos(t *testing.T) {
	var complete atomic.Int64
	simulate(t, func(seed int64, logf func(string, ...any)) error {
		w := newShrinkWorld(seed, logf)
		w.root()
		w.shrinkChaos(time.Duration(5+w.rng.Intn(40)) * time.Second)
		w.checkLineage()
		complete.Add(int64(len(w.formedBy) - 1))
		return w.err
	})
	t.Logf("%d views of those who were left", complete.Load())
}

// TestSurvivorsAlwaysGoOn: where processes die but nobody is wrong about that, a majority whose
// members all shrink has its communicator, the same on all.
func TestSurvivorsAlwaysGoOn(t *testing.T) {
	simulate(t, func(seed int64, logf func(string, ...any)) error {
		w := newShrinkWorld(seed, logf)
		w.root()
		for range 4 {
			w.death()
		}
		w.checkLineage()
		return w.err
	})
}

// shrinkWorld is a world whose nodes hold a communicator each, at most, and shrink it.
type shrinkWorld struct {
	*world
	now      map[string]*View           // by node: the latest that it formed and hasn't closed
	formedBy map[uint64]map[string]bool // views by id → nodes that formed them
	children map[uint64][]*View         // formed by somebody, by the id that they shrink
}

func newShrinkWorld(seed int64, logf func(string, ...any)) *shrinkWorld {
	return newShrinkWorldIn(newWorld(seed, logf))
}

func newShrinkWorldIn(world *world) *shrinkWorld {
	w := &shrinkWorld{world: world, now: map[string]*View{},
		formedBy: map[uint64]map[string]bool{}, children: map[uint64][]*View{}}
	w.onFormed = w.record
	return w
}

func (w *shrinkWorld) record(n *simNode, v *View) {
	w.now[n.name] = v
	if w.formedBy[v.ID] == nil {
		w.formedBy[v.ID] = map[string]bool{}
		if old, ok := ShrinkOf(v.Name); ok {
			w.children[old] = append(w.children[old], v)
		}
	}
	w.formedBy[v.ID][n.name] = true
	if old, ok := ShrinkOf(v.Name); ok {
		inc := n.incarnation
		w.after(w.delay(), func() { // its caller closes the old one
			if n.incarnation == inc {
				delete(n.holds, old)
			}
		})
	}
}

// root forms the communicator of all nodes.
func (w *shrinkWorld) root() {
	w.rough = false
	for _, n := range w.nodes {
		w.ask(n, "x", len(w.nodes))
	}
	w.run(w.world.now.Add(10 * time.Second))
	for _, n := range w.nodes {
		if w.now[n.name] == nil {
			w.failf("%s did not form the first communicator", n.name)
		}
	}
}

// shrink is a caller's call.
func (w *shrinkWorld) shrink(n *simNode) {
	v := w.now[n.name]
	if n.core == nil || v == nil || n.holds[v.ID] == nil || n.calls[ShrinkName(v.ID)] != 0 {
		return
	}
	token := uint64(w.rng.Int63()) + 1
	n.calls[ShrinkName(v.ID)] = token
	own := SeqRange{First: 5 + uint64(w.rng.Intn(3)), Last: 4 + uint64(w.rng.Intn(3))}
	w.step(n, Shrink{Call: token, Nonce: w.rng.Uint64(),
		Old: Old{ID: v.ID, Title: "x", Members: v.Members, Uneven: own, Attempts: n.attempts[v.ID]}})
	w.tellLosses(n)
}

func (w *shrinkWorld) tellLosses(n *simNode) {
	for _, o := range w.nodes {
		if inc, ok := n.gone[o.name]; ok {
			w.step(n, Lost{o.name, inc, "unheard"})
		}
	}
}

// alarm makes n's pairs call o lost, rightly or not.
func (w *shrinkWorld) alarm(n, o *simNode, incarnation uint64) {
	n.gone[o.name] = incarnation
	w.tellLosses(n)
}

func (w *shrinkWorld) kill(n *simNode) {
	dead := n.incarnation
	w.crash(n)
	delete(w.now, n.name)
	for _, o := range w.nodes {
		if o != n {
			w.after(w.delay(), func() { w.alarm(o, n, dead) })
		}
	}
}

func (w *shrinkWorld) shrinkChaos(d time.Duration) {
	w.rough = true
	for end := w.world.now.Add(d); w.world.now.Before(end) && w.err == nil; {
		w.run(w.world.now.Add(time.Duration(w.rng.Intn(200)) * time.Millisecond))
		n := w.nodes[w.rng.Intn(len(w.nodes))]
		o := w.nodes[w.rng.Intn(len(w.nodes))]
		v := w.now[n.name]
		switch w.rng.Intn(24) {
		case 0:
			if n.core != nil {
				w.kill(n)
			}
		case 1:
			if n.core == nil {
				w.start(n)
			}
		case 2, 3:
			if n != o && o.core != nil {
				w.alarm(n, o, o.incarnation)
			}
		case 4, 5:
			if v != nil {
				w.cancel(n, ShrinkName(v.ID))
			}
		case 6:
			if v != nil && n.calls[ShrinkName(v.ID)] == 0 {
				delete(n.holds, v.ID)
				delete(w.now, n.name)
			}
		case 7:
			if n != o {
				w.cut[pairKey(n.name, o.name)] = true
			}
		case 8, 9:
			clear(w.cut)
		case 10, 11, 12:
			w.shrink(n)
		default:
			for _, n := range w.nodes {
				w.after(w.delay(), func() { w.shrink(n) })
			}
		}
	}
}

// death kills a random minority, or none, between two barriers; everybody else shrinks.
func (w *shrinkWorld) death() {
	var members []*simNode
	for _, n := range w.nodes {
		if w.now[n.name] != nil {
			members = append(members, n)
		}
	}
	doomed := w.rng.Intn((len(members)+1)/2 + 1)
	if 2*doomed >= len(members) {
		doomed = (len(members) - 1) / 2
	}
	old := w.now[members[0].name]
	for _, i := range w.rng.Perm(len(members))[:doomed] {
		w.after(w.delay(), func() { w.kill(members[i]) })
	}
	w.run(w.world.now.Add(time.Duration(w.rng.Intn(3)) * time.Second))
	for _, n := range members {
		w.after(time.Duration(w.rng.Intn(1000))*time.Millisecond, func() { w.shrink(n) })
	}
	w.run(w.world.now.Add(20 * time.Second))
	var first *View
	for _, n := range members {
		if n.core == nil || w.err != nil {
			continue
		}
		v := w.now[n.name]
		if first == nil {
			first = v
		}
		if v == old || v != nil && v.Digest() != first.Digest() || v == nil || len(v.Members) != len(members)-doomed {
			w.failf("of %d nodes %d died; %s has %+v, another %+v", len(members), doomed, n.name, v, first)
		}
	}
}

// checkLineage: of the views that shrink one communicator, at most one is complete: formed
// by all its members, or itself shrunk.
func (w *shrinkWorld) checkLineage() {
	for old, views := range w.children {
		var complete []string
		for _, v := range views {
			if len(w.formedBy[v.ID]) == len(v.Members) || len(w.children[v.ID]) > 0 {
				complete = append(complete, fmt.Sprintf("%+v", v))
			}
		}
		if len(complete) > 1 {
			w.failf("two rests of %x go on: %v", old, complete)
		}
	}
}
