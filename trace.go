package polyrail

import (
	"fmt"
	"io"

	"github.com/polyrail/polyrail/actors/engine"
	"github.com/polyrail/polyrail/actors/observe"
	"github.com/polyrail/polyrail/collective/fault"
)

// maxTrace bounds the events of a trace. Each takes 64 bytes, and 120 more while it is written.
const maxTrace = 1 << 22

// Trace is a recording of what a communicator's operations do on this rank: when each begins and
// ends, its frames by lane and peer, grants, reductions, and what happens to rails meanwhile. It is
// made by Communicator.Trace.
type Trace struct {
	trace    *engine.Trace
	timeline observe.Timeline // without events
}

// Trace records from now on, in a ring of so many events (1 to 4,194,304): the oldest are lost first.
// A later call takes the place of an earlier one. An operation makes an event, and one for each frame,
// grant and reduction: a few for 8 bytes, some hundreds for 16 MiB over two rails. Up to 4 KiB the clock
// is read only for the call, grants, and the end; rails read it for frames anyway. The rest has the time
// of what it follows from, and reductions take no time.
func (c *Communicator) Trace(events int) (*Trace, error) {
	inner, err := c.of()
	if err != nil {
		return nil, err
	}
	if events < 1 || events > maxTrace {
		return nil, fmt.Errorf("%w: a trace of %d events: needs 1 to %d", fault.ErrArgument, events, maxTrace)
	}
	t := &Trace{timeline: observe.Timeline{Communicator: inner.Name(), Rank: inner.Rank(), Nodes: c.Nodes()}}
	for _, r := range c.node.Rails() {
		t.timeline.Rails = append(t.timeline.Rails, r.Name)
	}
	t.trace = inner.Group.StartTrace(events)
	return t, nil
}

// Stop ends the recording. What was recorded can still be written.
func (t *Trace) Stop() {
	if inner, err := t.of(); err == nil {
		inner.Stop()
	}
}

// Write writes what was recorded so far in Chrome's trace event format, for https://ui.perfetto.dev
// or chrome://tracing. Times are those of this host's clock, so that traces of several ranks can be
// put side by side.
func (t *Trace) Write(w io.Writer) error {
	inner, err := t.of()
	if err != nil {
		return err
	}
	if w == nil {
		return fmt.Errorf("%w: there is nothing to write a trace to", fault.ErrArgument)
	}
	timeline := t.timeline
	timeline.Events, timeline.Lost = inner.Events()
	return timeline.Write(w)
}
