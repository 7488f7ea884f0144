package membership

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"
)

// Whoever waits for a communicator is told by the log what for: after a while, and again and again.
const (
	waitPatience = 4 * time.Second
	waitReminder = 15 * time.Second
)

// remind is the time to look who waits. From a timer.
type remind struct{}

// watchCalls sets the timer that looks at the calls, unless it is set.
func (a *nodeActor) watchCalls(after time.Duration) {
	if a.reminder == nil {
		n := a.node
		a.reminder = time.AfterFunc(after, func() { n.tell(n.pid, remind{}) })
	}
}

// remind logs what every call that waits for long waits for.
func (a *nodeActor) remind() {
	a.reminder = nil
	next := waitReminder
	calls := slices.SortedFunc(maps.Values(a.calls),
		func(x, y *communicatorCall) int { return cmp.Compare(x.id, y.id) })
	for _, c := range calls {
		waited := time.Since(c.began)
		if waited < waitPatience {
			next = min(next, waitPatience-waited)
			continue
		}
		if due := waitReminder - time.Since(c.told); due > 0 {
			next = min(next, due)
			continue
		}
		c.told = time.Now()
		args := []any{"communicator", c.title(), "for", waited.Round(time.Second), "progress",
			a.core.Progress(c.name)}
		if err := a.unheard(c.began); err != nil {
			args = append(args, "cluster", err)
		}
		a.node.log.Warn("still waiting for a communicator", args...)
	}
	if len(calls) > 0 {
		a.watchCalls(next)
	}
}

// unheard says why this node may hear nothing: its certificate has ended, seeds don't answer, while no other
// node is known, another one has its name, or a message was refused since then.
func (a *nodeActor) unheard(since time.Time) error {
	if err := a.node.unbelieved(); err != nil {
		return err
	}
	if a.gossip == nil {
		return nil
	}
	return cmp.Or(a.gossip.Unjoined(), a.gossip.Rival(), a.gossip.Unheard(since))
}

// explained adds to a call's failure what this node does not hear.
func (a *nodeActor) explained(c *communicatorCall, err error) error {
	if c == nil {
		return err
	}
	if unheard := a.unheard(c.began); unheard != nil {
		return fmt.Errorf("%w; %w", err, unheard)
	}
	return err
}
