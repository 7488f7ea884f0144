package observe

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/polyrail/polyrail/actors/engine"
)

// Timeline is a recorded trace, and the names that its numbers stand for.
type Timeline struct {
	Communicator string
	Rank         int
	Nodes        []string // by rank
	Rails        []string // by index
	Events       []engine.TraceEvent
	Lost         uint64 // before the first event
}

// The tracks of a rank's process in a timeline. Those of lanes follow: two for the lane's tree, and
// two for each peer.
const (
	trackOperations = 1
	trackRails      = 2
	trackReductions = 3
	trackLanes      = 10
)

// traceEvent is an event of Chrome's trace event format, which Perfetto reads too. Times are
// microseconds.
type traceEvent struct {
	Name      string         `json:"name"`
	Category  string         `json:"cat,omitempty"`
	Phase     string         `json:"ph"`
	Time      micros         `json:"ts"`
	Process   int            `json:"pid"`
	Thread    int            `json:"tid"`
	ID        string         `json:"id,omitempty"`
	Scope     string         `json:"s,omitempty"`
	Arguments map[string]any `json:"args,omitempty"`
}

// micros is a time since 1970 in microseconds, to the nanosecond. A float64 would not hold it.
type micros int64

// MarshalJSON implements json.Marshaler.
func (m micros) MarshalJSON() ([]byte, error) {
	return fmt.Appendf(nil, "%d.%03d", int64(m)/1000, int64(m)%1000), nil
}

// Write writes the timeline in Chrome's trace event format. Operations and outages last: they begin
// and end, and may overlap. Frames and grants are moments on a track for each lane and peer. Times
// are those of the clock, so that timelines of several ranks can be put side by side.
func (t *Timeline) Write(w io.Writer) error {
	out := bufio.NewWriter(w)
	fmt.Fprint(out, `{"displayTimeUnit":"ms","otherData":`)
	t.json(out, map[string]any{"communicator": t.Communicator, "rank": t.Rank, "lost events": t.Lost})
	fmt.Fprint(out, `,"traceEvents":[`)
	first := true
	emit := func(e traceEvent) {
		if !first {
			fmt.Fprint(out, ",")
		}
		first = false
		fmt.Fprint(out, "\n")
		e.Process = t.Rank
		t.json(out, e)
	}
	t.names(emit)
	open := make(map[[2]int]bool) // outages, by rail and peer
	for i := range t.Events {
		t.event(i, open, emit)
	}
	if len(t.Events) > 0 {
		end := t.Events[len(t.Events)-1]
		for k := range open { // still down at the end
			emit(t.outage("e", k, end.At, nil))
		}
	}
	fmt.Fprint(out, "\n]}\n")
	return out.Flush()
}

// json writes a value; the writer keeps its error.
func (t *Timeline) json(out *bufio.Writer, v any) {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err) // texts and numbers only
	}
	out.Write(text)
}

// names names the process and its tracks.
func (t *Timeline) names(emit func(traceEvent)) {
	meta := func(what string, thread int, name string) {
		emit(traceEvent{Name: what, Phase: "M", Thread: thread, Arguments: map[string]any{"name": name}})
	}
	meta("process_name", 0, fmt.Sprintf("%s, rank %d (%s)", t.Communicator, t.Rank, t.node(t.Rank)))
	meta("thread_name", trackOperations, "operations")
	meta("thread_name", trackRails, "rails and ranks")
	meta("thread_name", trackReductions, "reductions")
	named := make(map[int]bool)
	for i := range t.Events {
		e := &t.Events[i]
		switch e.Kind {
		case engine.TraceSend, engine.TraceReceive, engine.TraceGrant, engine.TraceGranted:
			if track := t.track(e); !named[track] {
				named[track] = true
				way := "to"
				if e.Kind == engine.TraceReceive || e.Kind == engine.TraceGrant {
					way = "from"
				}
				peer := fmt.Sprintf("rank %d (%s)", e.Peer, t.node(e.Peer))
				if e.Peer < 0 {
					peer = "its tree"
				}
				meta("thread_name", track, fmt.Sprintf("lane %s %s %s", t.lane(e.Lane), way, peer))
			}
		}
	}
}

// track is that of a lane's frames to, or from, a peer or the lane's tree.
func (t *Timeline) track(e *engine.TraceEvent) int {
	track := trackLanes + 2*(e.Lane*(len(t.Nodes)+1)+e.Peer+1)
	if e.Kind == engine.TraceReceive || e.Kind == engine.TraceGrant {
		track++
	}
	return track
}

func (t *Timeline) node(rank int) string {
	if rank < 0 || rank >= len(t.Nodes) {
		return "none"
	}
	return t.Nodes[rank]
}

func (t *Timeline) rail(i int) string {
	if i < 0 || i >= len(t.Rails) {
		return "none"
	}
	return t.Rails[i]
}

func (t *Timeline) lane(i int) string {
	if i >= len(t.Rails) { // what a tree's failure left is carried by a lane of its own
		return "repair of " + t.rail(i-len(t.Rails))
	}
	return t.rail(i)
}

// moment is a time of a trace by the clock.
func moment(at time.Duration) micros { return micros(engine.TraceBegan().Add(at).UnixNano()) }

// event writes the i-th event.
func (t *Timeline) event(i int, open map[[2]int]bool, emit func(traceEvent)) {
	e := &t.Events[i]
	frame := map[string]any{"seq": e.Seq, "operation": e.Operation.String()}
	at := moment(e.At)
	lasting := func(name, category string, thread int, args map[string]any) {
		id := fmt.Sprintf("%s-%d-%d", category, t.Rank, i)
		emit(traceEvent{Name: name, Category: category, Phase: "b", Time: at, Thread: thread, ID: id, Arguments: args})
		emit(traceEvent{Name: name, Category: category, Phase: "e", Time: moment(e.At + e.Took), Thread: thread, ID: id})
	}
	instant := func(name, category string, thread int, args map[string]any) {
		emit(traceEvent{Name: name, Category: category, Phase: "i", Scope: "t", Time: at, Thread: thread, Arguments: args})
	}
	switch e.Kind {
	case engine.TraceOperation:
		frame["bytes"] = e.Bytes
		if e.Text != "" {
			frame["error"] = e.Text
		}
		lasting(e.Operation.String(), "operation", trackOperations, frame)
	case engine.TraceReduce:
		frame["bytes"], frame["lane"] = e.Bytes, t.lane(e.Lane)
		lasting("reduce", "reduction", trackReductions, frame)
	case engine.TraceSend, engine.TraceReceive:
		name := map[engine.TraceKind]string{engine.TraceSend: "send", engine.TraceReceive: "receive"}[e.Kind]
		frame["bytes"] = e.Bytes
		if e.Peer < 0 {
			frame["fragment"], frame["node"] = e.First, e.Text
		} else {
			frame["rounds"] = fmt.Sprintf("%d+%d", e.First, e.Count)
		}
		if e.Kind == engine.TraceReceive {
			frame["rail"] = t.rail(e.Rail) // that carried it; a frame that is sent is bound to one later
		}
		instant(name, "frame", t.track(e), frame)
	case engine.TraceGrant, engine.TraceGranted:
		name := map[engine.TraceKind]string{engine.TraceGrant: "grant", engine.TraceGranted: "granted"}[e.Kind]
		frame["spans"] = e.Count
		instant(name, "grant", t.track(e), frame)
	case engine.TraceNote:
		t.note(e, open, emit, instant)
	}
}

// note writes what happened to rails and communicators: a lost connection lasts until it is made
// again.
func (t *Timeline) note(e *engine.TraceEvent, open map[[2]int]bool, emit func(traceEvent),
	instant func(name, category string, thread int, args map[string]any)) {
	args := map[string]any{}
	if e.Rail >= 0 {
		args["rail"] = t.rail(e.Rail)
	}
	if e.Peer >= 0 {
		args["rank"], args["node"] = e.Peer, t.node(e.Peer)
	}
	if e.Detail != "" {
		args["cause"] = e.Detail
	}
	if e.Bytes > 0 {
		args["bytes"] = e.Bytes
	}
	instant(e.Text, "event", trackRails, args)
	key := [2]int{e.Rail, e.Peer}
	switch {
	case e.Text == "rail down" && !open[key]:
		open[key] = true
		emit(t.outage("b", key, e.At, args))
	case e.Text == "rail up" && open[key]:
		delete(open, key)
		emit(t.outage("e", key, e.At, nil))
	}
}

// outage is the begin or the end of a rail's outage.
func (t *Timeline) outage(phase string, key [2]int, at time.Duration, args map[string]any) traceEvent {
	return traceEvent{Name: fmt.Sprintf("%s to rank %d is down", t.rail(key[0]), key[1]), Category: "outage", Phase: phase,
		Time: moment(at), Process: t.Rank, Thread: trackRails, ID: fmt.Sprintf("outage-%d-%d-%d", t.Rank, key[0], key[1]),
		Arguments: args}
}
