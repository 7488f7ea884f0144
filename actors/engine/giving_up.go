package engine

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/polyrail/polyrail/collective/fault"
	"github.com/polyrail/polyrail/collective/op"
)

// This file is about operations whose callers wait no longer.

// giveUp breaks the group because an operation's caller waits for it no longer, unless it has ended:
// either it fails and the group breaks, or neither.
func (g *Group) giveUp(seq uint64, cause error) {
	g.mu.Lock()
	o := g.open[seq] // nil: it is over
	if o != nil {
		cause = o.giveUp(cause)
	}
	g.mu.Unlock()
	if o != nil && cause != nil {
		g.Fail(cause, seq)
	}
}

// Awaiting adds to a cause what the first operation in flight that waits for a rank waits for.
func (g *Group) Awaiting(cause error) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, seq := range slices.Sorted(maps.Keys(g.open)) {
		o := g.open[seq]
		o.mu.Lock()
		late := o.awaits()
		o.mu.Unlock()
		if late != "" {
			return fmt.Errorf("%w, operation %d: %s", cause, seq, late)
		}
	}
	return cause
}

// maxNamed bounds the ranks that an error names.
const maxNamed = 4

// List says something of ranks in an error; "" where there are none.
func (g *Group) List(what string, ranks []op.Rank) string {
	if len(ranks) == 0 {
		return ""
	}
	var names []string
	for _, rank := range ranks {
		names = append(names, fmt.Sprintf("rank %d (node %q)", rank, g.nodeOf(rank)))
	}
	return what + " " + fault.List(names, maxNamed)
}

// giveUp notes why the caller waits no longer, and returns it with what the operation waits for; nil: it
// has ended. Under the group's mu.
func (o *Operation) giveUp(cause error) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.settled {
		return nil
	}
	if late := o.awaits(); late != "" {
		cause = fmt.Errorf("%w, %s", cause, late)
	}
	o.givenUp = cause
	return cause
}

// awaits says which ranks the operation waits for now, as far as that is known. Under mu.
func (o *Operation) awaits() string {
	if o.phase != phaseRunning || o.cause != nil {
		return ""
	}
	if o.shown.active {
		return o.group.List("nothing has come from", slices.Collect(ranksOf(o.shown.missing.Load())))
	}
	uncalled, node := o.awaitsTrees()
	if len(uncalled) > 0 {
		return o.group.List("nothing has come from", uncalled)
	}
	heard := make(map[op.Rank]bool)
	for i := range o.parts {
		if p := &o.parts[i]; p.active {
			p.task.Awaits(heard)
		}
	}
	var silent, begun []op.Rank
	for _, rank := range slices.Sorted(maps.Keys(heard)) {
		if heard[rank] {
			begun = append(begun, rank)
		} else {
			silent = append(silent, rank)
		}
	}
	switch {
	case len(silent) > 0:
		return o.group.List("nothing has come from", silent)
	case len(begun) == 0 && node != "":
		return fmt.Sprintf("waiting for aggregation node %q", node)
	}
	return o.group.List("waiting for more from", begun)
}

// awaitsTrees is the aggregation node that the operation waits for, and who has not called it; none
// if that is not known. A rank hears of the node alone there. But once an operation takes long each
// rank tells those that are connected that it has called it. Under mu.
func (o *Operation) awaitsTrees() (uncalled []op.Rank, node string) {
	i := slices.IndexFunc(o.trees, (*treePart).unfinished)
	if i < 0 {
		return nil, ""
	}
	for rank, p := range o.group.Peers {
		if o.ticks >= askTick && p != nil && p.Awake() && !slices.Contains(o.called, op.Rank(rank)) {
			uncalled = append(uncalled, op.Rank(rank))
		}
	}
	return uncalled, o.trees[i].tree.Node.Node()
}

// ExpireAfter ends the operation in a while, if it has not ended for its caller by then; the error says
// that it has taken so long as timeout. What ends it is no message: the actor may have stopped.
func (o *Operation) ExpireAfter(d, timeout time.Duration) *time.Timer {
	g, seq, desc := o.group, o.Seq, o.shape.desc // o may be another operation then
	return time.AfterFunc(d, func() {
		g.giveUp(seq, &fault.TimeoutError{What: desc.String(), After: timeout})
	})
}
