package communicator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/polyrail/polyrail/actors/engine"
	"github.com/polyrail/polyrail/collective/fault"
	"github.com/polyrail/polyrail/collective/op"
	"github.com/polyrail/polyrail/collective/sharp"
	"github.com/polyrail/polyrail/messages"
	"github.com/polyrail/polyrail/railactors"
)

// This file is about a rank's part in the trees that rank 0 has had made.

// connect begins to connect this rank to a tree's node.
func (t *trees) connect(m *messages.TreeOpen) {
	c, err := t.configOf(m)
	if err == nil && t.open[c.Group] != nil {
		return // it was asked before
	}
	if underway := len(t.open) - len(t.past); err == nil && underway >= t.group.node.Engine.Rails {
		err = fmt.Errorf("%d groups are in use or have yet to be repaired, a rail has one at a time", underway)
	}
	if err == nil {
		c.Node, err = t.group.node.Fabric.Connect(railactors.RemoteOf(m.GetNode()))
	}
	if err != nil {
		t.ready(m.GetGroup(), err)
		return
	}
	t.open[c.Group] = &openTree{config: c}
	n, self := t.group.node, t.self
	go func() { // ends with t.ctx
		ctx, cancel := context.WithTimeoutCause(t.ctx, treeConnect,
			&fault.TimeoutError{What: "connecting to an aggregation node", After: treeConnect})
		defer cancel()
		n.tell(self, &treeConnected{c.Group, c.Node.WaitReady(ctx)})
	}()
}

// configOf reads what rank 0 says of a group, and reports what can't be.
func (t *trees) configOf(m *messages.TreeOpen) (c engine.TreeConfig, err error) {
	n := t.group.node
	c = engine.TreeConfig{Group: m.GetGroup(), Rail: n.Fabric.RailIndex(m.GetRail()), Window: int(m.GetWindow()),
		FragmentBytes: int(m.GetFragmentBytes()), Deep: m.GetDeep(), Results: sharp.Results(min(m.GetResults(), uint32(sharp.Both)))}
	switch {
	case c.Rail < 0:
		return c, fmt.Errorf("node %q has no rail %q", n.Name, m.GetRail())
	case c.Group == 0:
		return c, errors.New("a group needs an id other than 0")
	case m.GetNode().GetNode() == n.Name:
		return c, fmt.Errorf("node %q can't aggregate for a rank of its own", n.Name)
	}
	return c, sharp.CheckShape(c.Window, c.FragmentBytes)
}

// connected: this rank's way to a tree's node is there, or isn't to be had.
func (t *trees) connected(m *treeConnected) {
	o := t.open[m.group]
	if o == nil || o.over {
		return
	}
	if m.err == nil && o.config.Node.Missing().Has(o.config.Rail) {
		m.err = fmt.Errorf("rail %q to node %q is down", t.group.node.Fabric.RailName(o.config.Rail),
			o.config.Node.Node())
	}
	if m.err == nil {
		n, self := t.group.node, t.self
		o.config.Down = func(reason string) { n.tell(self, &TreeDown{m.group, reason}) }
		t.hear(o)
		o.tree, m.err = t.group.OpenTree(o.config)
	}
	t.ready(m.group, m.err)
}

// hear opens this rank's end for results that go to many at once. Where that can't be they come by
// unicast.
func (t *trees) hear(o *openTree) {
	c := &o.config
	if c.Results == sharp.Unicast {
		return
	}
	casts, err := c.Node.ReceiveCasts(c.Rail, c.Group)
	if err != nil {
		n := t.group.node
		n.Log.Warn("results of a tree come by unicast", "communicator", t.group.Name,
			"rail", n.Fabric.RailName(c.Rail), "error", err)
		return
	}
	c.Casts = casts
}

// ready answers rank 0's TreeOpen.
func (t *trees) ready(group uint64, err error) {
	m := &messages.TreeReady{Group: group}
	if err != nil {
		m.Obstacle = t.signed(err.Error())
	}
	t.rank(0, &messages.Control{Body: &messages.Control_TreeReady{TreeReady: m}})
}

// signed is what this rank tells rank 0, which tells all: each must see whose word it is.
func (t *trees) signed(text string) string {
	return WireText(fmt.Sprintf("rank %d (node %q): %s", t.group.Rank, t.group.node.Name, text))
}

// lost tells rank 0 that this rank can't use a group any more, once.
func (t *trees) lost(group uint64, reason string) {
	if o := t.open[group]; o != nil && !o.over && !o.lost {
		o.lost = true
		t.rank(0, &messages.Control{Body: &messages.Control_TreeLost{
			TreeLost: &messages.TreeLost{Group: group, Reason: t.signed(reason)}}})
	}
}

// switched: a table with these groups is in force.
func (t *trees) switched(groups []uint64) {
	for _, group := range groups {
		if o := t.open[group]; o != nil && !o.up && !o.over {
			o.up = true
			t.group.node.Registry.TreeUp(t.group, o.config.Rail, o.config.Node.Node())
		}
	}
}

// fence gives a group up, as rank 0 says; quiet follows.
func (t *trees) fence(group uint64, reason string) {
	o := t.open[group]
	t.abandon(group, o, reason)
	if o == nil || o.tree == nil { // this rank was not ready: no table has named it
		if o != nil {
			t.close(group, o)
		}
		t.quiet(&treeQuiet{group, 0})
		return
	}
	if o.over {
		return
	}
	o.over, o.reason = true, reason
	t.group.Failovers.Add(1) // what is timed now doesn't count
	n, self := t.group.node, t.self
	o.tree.Fence(func(settled uint64) { n.tell(self, &treeQuiet{group, settled}) })
}

// abandon tells a node over rails that its group is over: it may have failed for gossip alone, which
// then brings it no TreeDestroy. Without this it would keep the group's memory.
func (t *trees) abandon(group uint64, o *openTree, reason string) {
	if o == nil || o.over {
		return
	}
	m := &messages.TreeRevoked{Group: group, Reason: WireText(reason)}
	if err := o.config.Node.SendControl(&messages.Control{Comm: t.group.ID,
		Body: &messages.Control_TreeRevoked{TreeRevoked: m}}); err != nil {
		t.group.node.Log.Debug("node of a tree that was given up not told", "communicator", t.group.Name,
			"peer", o.config.Node.Node(), "error", err)
	}
}

// quiet: nothing here holds memory of a fenced group.
func (t *trees) quiet(m *treeQuiet) {
	t.rank(0, &messages.Control{Body: &messages.Control_TreeFenced{
		TreeFenced: &messages.TreeFenced{Group: m.group, Settled: m.settled}}})
}

// repair goes on without a group that all ranks have fenced.
func (t *trees) repair(m *messages.TreeRepair) {
	o := t.open[m.GetGroup()]
	if o == nil || o.tree == nil || !o.over || slices.Contains(t.past, m.GetGroup()) {
		return
	}
	repaired, err := o.tree.Repair(m.GetFrom())
	if err != nil {
		t.group.Fail(fmt.Errorf("%w: tree of rail %d: %w", fault.ErrInternal, o.config.Rail, err), 0)
		return
	}
	if o.up {
		t.group.node.Registry.TreeDown(t.group, o.config.Rail, o.config.Node.Node(), o.reason, repaired)
	}
	// A table that names it may still be on its way: what that gives to the tree is to be repaired,
	// too.
	t.past = append(t.past, m.GetGroup())
	oldest := slices.IndexFunc(t.past, func(group uint64) bool { return !slices.Contains(t.named, group) })
	if oldest >= 0 && len(t.past) > maxPastTrees {
		t.close(t.past[oldest], t.open[t.past[oldest]])
		t.past = slices.Delete(t.past, oldest, oldest+1)
	}
}

// maxPastTrees bounds the repaired trees that are remembered. As many others were made since, so that
// none is in a table on its way. One may be in force for as long as nobody calls anything.
const maxPastTrees = 16

// departed: a rank has closed the communicator. Where no repair has begun, all operations that it
// had are settled. Rank 0 begins repairs, so it knows that of each rank; others know it of rank 0,
// whose messages come in order. Nobody else will tell them: a fence that rank 0 began ends with it.
// Where another rank has left, rank 0's fences go on without that one.
func (t *trees) departed(rank op.Rank, last uint64) {
	if rank != 0 && t.group.Rank != 0 {
		return
	}
	settled := make(map[uint64]uint64)
	for group, o := range t.open {
		if o.tree != nil {
			settled[group] = o.tree.Departed(last)
		}
	}
	for rail, l := range t.leaders {
		group, _ := l.core.Group()
		t.lead(rail, l.core.Left(time.Now(), int(rank), settled[group], nil))
	}
}

func (t *trees) close(group uint64, o *openTree) {
	if o.tree != nil {
		t.group.CloseTree(o.tree)
	}
	delete(t.open, group)
	t.group.node.Fabric.Disconnect(o.config.Node)
}

// end lets go of all trees.
func (t *trees) end() {
	t.cancel()
	if t.alarm != nil {
		t.alarm.Stop()
	}
	for group, o := range t.open {
		if t.group.Rank == 0 {
			t.abandon(group, o, "its communicator has ended")
		}
		t.close(group, o)
	}
	for _, l := range t.leaders {
		group, layout := l.core.Group()
		for _, j := range layout {
			t.group.node.Cast(j.Node, &messages.Rendezvous{Body: &messages.Rendezvous_TreeDestroy{
				TreeDestroy: &messages.TreeDestroy{Group: group}}})
		}
	}
}
