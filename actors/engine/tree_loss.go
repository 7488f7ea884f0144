package engine

import (
	"fmt"
	"slices"
	"time"
)

// This file is about how a rank finds that a tree's aggregation node doesn't answer, and does
// without it (docs/decisions/035).

// A node whose runtime has not been heard for treeSilence while responses are outstanding is as
// good as dead: its kernel may acknowledge what nobody reads.
const (
	treeSilence = 200 * time.Millisecond
	treeLooks   = 4 // per treeSilence
)

// mind begins to look after the node, if it owes responses. Under mu.
func (t *Tree) mind() {
	if t.watching || t.fenced || t.closed || t.leaf.Sent() == t.leaf.Received() {
		return
	}
	t.watching, t.since = true, time.Now()
	if t.watch == nil {
		t.watch = time.AfterFunc(treeSilence/treeLooks, t.look)
	} else {
		t.watch.Reset(treeSilence / treeLooks)
	}
}

// look has the node show that it is there.
func (t *Tree) look() {
	t.mu.Lock()
	if t.fenced || t.closed || t.leaf.Sent() == t.leaf.Received() {
		t.watching = false
		t.mu.Unlock()
		return
	}
	last := t.since
	t.mu.Unlock()
	if heard := t.Node.LastHeard(); heard.After(last) {
		last = heard
	}
	silent := time.Since(last)
	if silent >= treeSilence {
		t.Down(fmt.Sprintf("node %q has not answered for %v", t.Node.Node(), treeSilence))
		return
	}
	if silent >= treeSilence/treeLooks {
		t.Node.Ping(t.Rail)
	}
	t.mu.Lock()
	t.watch.Reset(treeSilence / treeLooks)
	t.mu.Unlock()
}

// Fence ends this rank's part in the group: nothing is sent, and no response is taken. Once nothing
// holds memory of it quiet is called, with the number of fragments that are settled.
func (t *Tree) Fence(quiet func(settled uint64)) {
	t.mu.Lock()
	t.fenced, t.quiet = true, quiet
	t.leaf.Fence()
	parts := slices.Clone(t.parts)
	t.mu.Unlock()
	for _, p := range parts {
		t.engine.Revoke(p)
	}
	t.advance()
}

// takeQuiet is who waits for the fenced tree to hold no memory, if it does not. Under mu.
func (t *Tree) takeQuiet() (quiet func(uint64), settled uint64) {
	holds := slices.ContainsFunc(t.parts, func(p *treePart) bool { return p.busy > 0 })
	if !t.fenced || holds || t.placing {
		return nil, 0
	}
	quiet, t.quiet = t.quiet, nil
	return quiet, t.leaf.Settled()
}

// Repair begins to do without the group what is not settled, in each operation that has not ended
// and in those to come: fragments from a number on (docs/decisions/035). It returns how many
// operations had to. An error is a claim of rank 0 that can't be true.
func (t *Tree) Repair(from uint64) (operations int, err error) {
	t.mu.Lock()
	if t.repaired {
		t.mu.Unlock()
		return 0, nil
	}
	if err := t.leaf.Repaired(from); err != nil {
		t.mu.Unlock()
		return 0, err
	}
	t.repaired, t.from = true, from
	t.place()
	var parts []*treePart
	for _, p := range t.parts {
		if p.launched {
			parts = append(parts, p)
		}
	}
	t.mu.Unlock()
	for _, p := range parts {
		if p.repair() {
			operations++
		}
	}
	t.advance()
	return operations, nil
}
