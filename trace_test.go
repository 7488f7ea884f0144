package polyrail_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	. "github.com/polyrail/polyrail"
)

// tracedEvent is an event as Chrome's trace event format has it.
type tracedEvent struct {
	Name, Cat, Ph, ID, S string
	Ts                   *float64
	Pid, Tid             *int
	Args                 map[string]any
}

// readTrace parses a trace by the rules of the format: an object with traceEvents; each with a
// name, a phase, a process and a thread; metadata that names; asynchronous events that begin before
// they end, by category and id.
func readTrace(t *testing.T, trace *Trace) (all []tracedEvent) {
	t.Helper()
	var text bytes.Buffer
	if err := trace.Write(&text); err != nil {
		t.Fatal(err)
	}
	var file struct {
		DisplayTimeUnit string
		TraceEvents     []tracedEvent
	}
	if err := json.Unmarshal(text.Bytes(), &file); err != nil {
		t.Fatalf("%v\n%.400s", err, text.String())
	}
	if file.DisplayTimeUnit != "ms" && file.DisplayTimeUnit != "ns" {
		t.Errorf("displayTimeUnit %q", file.DisplayTimeUnit)
	}
	open := make(map[string]float64)
	tracks := make(map[int]bool)
	for _, e := range file.TraceEvents {
		if e.Name == "" || e.Ts == nil || e.Pid == nil || e.Tid == nil {
			t.Fatalf("an event without name, time, process or thread: %+v", e)
		}
		key := e.Cat + " " + e.ID
		switch e.Ph {
		case "M":
			if name, _ := e.Args["name"].(string); name == "" || (e.Name != "process_name" && e.Name != "thread_name") {
				t.Errorf("metadata %+v", e)
			}
			tracks[*e.Tid] = true
		case "b":
			if _, twice := open[key]; twice || e.ID == "" || e.Cat == "" {
				t.Errorf("begins twice, or without id: %+v", e)
			}
			open[key] = *e.Ts
		case "e":
			if begun, ok := open[key]; !ok || begun > *e.Ts {
				t.Errorf("ends before it began: %+v", e)
			}
			delete(open, key)
		case "i":
			if e.S != "t" && e.S != "p" && e.S != "g" {
				t.Errorf("scope of %+v", e)
			}
		default:
			t.Errorf("phase of %+v", e)
		}
		if e.Ph != "M" && !tracks[*e.Tid] {
			t.Errorf("on a track without a name: %+v", e)
		}
	}
	for key := range open {
		t.Errorf("%s does not end", key)
	}
	return file.TraceEvents
}

// find is the first event from a time on for which ok holds.
func find(t *testing.T, all []tracedEvent, from float64, what string, ok func(e *tracedEvent) bool) *tracedEvent {
	t.Helper()
	i := slices.IndexFunc(all, func(e tracedEvent) bool { return e.Ph != "M" && *e.Ts >= from && ok(&e) })
	if i < 0 {
		t.Fatalf("the trace has no %s from %f on", what, from)
	}
	return &all[i]
}

// The story of a rail that dies, as ARCHITECTURE.md tells it.
func TestATraceTellsOfAFailover(t *testing.T) {
	inFailOver(t, func(b *bed) {
		comms := b.form("train")
		trace, err := comms[0].Trace(100_000)
		if err != nil {
			t.Fatal(err)
		}
		b.failOver(comms)
		<-time.After(5 * time.Second)
		trace.Stop()
		sumOnAll(b, comms, 1) // is not recorded any more

		all := readTrace(t, trace)
		is := func(name, phase string) func(*tracedEvent) bool {
			return func(e *tracedEvent) bool { return e.Name == name && e.Ph == phase }
		}
		begun := find(t, all, 0, "operation", is("allreduce", "b"))
		if begun.Args["bytes"] != float64(16<<20) || begun.Args["seq"] != 2.0 {
			t.Errorf("operation %+v", begun.Args)
		}
		find(t, all, *begun.Ts, "grant", is("granted", "i"))
		find(t, all, *begun.Ts, "send", is("send", "i"))
		down := find(t, all, *begun.Ts, "loss of the rail", is("rail down", "i"))
		if down.Args["rail"] != "rail0" || down.Args["node"] != "node1" || down.Args["cause"] == nil {
			t.Errorf("loss %+v", down.Args)
		}
		find(t, all, *down.Ts, "outage", is("rail0 to rank 1 is down", "b"))
		moved := find(t, all, *down.Ts, "failover", is("rail moved", "i"))
		if moved.Args["bytes"] == nil {
			t.Errorf("failover %+v", moved.Args)
		}
		ended := find(t, all, *moved.Ts, "end of the operation", is("allreduce", "e"))
		if begun.Args["error"] != nil {
			t.Errorf("the operation ended with %v", begun.Args["error"])
		}
		up := find(t, all, *ended.Ts, "return of the rail", is("rail up", "i"))
		find(t, all, *up.Ts, "end of the outage", is("rail0 to rank 1 is down", "e"))
		find(t, all, *begun.Ts, "reduction", is("reduce", "b"))
		if n := len(slices.DeleteFunc(all, func(e tracedEvent) bool { return e.Name != "allreduce" || e.Ph != "b" })); n != 1 {
			t.Errorf("%d operations after Stop", n)
		}
	})
}

// An operation of 4 bytes reads the clock less often: its events still tell in which order things
// happened, whether its frames come before the call or after it.
func TestATraceTellsOfSmallOperations(t *testing.T) {
	inBed(t, 4, 2, nil, func(b *bed) {
		comms := b.form("train")
		trace, err := comms[0].Trace(100_000)
		if err != nil {
			t.Fatal(err)
		}
		const operations = 50
		for range operations {
			sumOnAll(b, comms, 1)
		}
		trace.Stop()
		type span struct{ begin, end float64 }
		spans := make(map[any]*span) // by seq
		all := readTrace(t, trace)
		for i, e := range all {
			if e.Name == "allreduce" && e.Ph == "b" {
				spans[e.Args["seq"]] = &span{*e.Ts, *all[i+1].Ts}
			}
		}
		if len(spans) != operations {
			t.Errorf("%d operations, want %d", len(spans), operations)
		}
		seen := make(map[string]int)
		for _, e := range all {
			if e.Cat != "frame" && e.Cat != "reduction" || e.Ph == "e" {
				continue
			}
			seen[e.Name]++
			if s := spans[e.Args["seq"]]; s == nil || *e.Ts < s.begin || *e.Ts > s.end {
				t.Errorf("%s of operation %v at %f, which lasts %+v", e.Name, e.Args["seq"], *e.Ts, s)
			}
		}
		for _, name := range []string{"send", "receive", "reduce"} {
			if n := seen[name]; n < operations || n%operations != 0 {
				t.Errorf("%d times %s in %d operations", n, name, operations)
			}
		}
	})
}

// A rank says what it has room for before it sends what others have room for: a grant behind a large
// frame of a slow rail would come that frame's time later.
func TestGrantsGoOutBeforeData(t *testing.T) {
	const lanes = 4
	inBed(t, 2, lanes, func(cfg *Config) { cfg.EagerBytes = 0 }, func(b *bed) {
		comms := b.form("train")
		trace, err := comms[0].Trace(100_000)
		if err != nil {
			t.Fatal(err)
		}
		for range 300 {
			sumOnAll(b, comms, 1<<16)
		}
		trace.Stop()
		granted := make(map[any]int)
		for _, e := range readTrace(t, trace) { // in the order in which things happened
			seq := e.Args["seq"]
			switch e.Name {
			case "grant":
				granted[seq]++
			case "send":
				if granted[seq] < lanes {
					t.Errorf("operation %v sends data after %d grants of %d", seq, granted[seq], lanes)
					return
				}
			}
		}
		if len(granted) != 300 {
			t.Errorf("%d operations with grants", len(granted))
		}
	})
}

// What goes over a tree is on tracks of its own, and so is the repair when its node dies.
func TestATraceTellsOfATree(t *testing.T) {
	inGrove(t, 3, 1, 1, nil, func(b *bed, comms []*Communicator) {
		sums(b, comms, 100_000, 1, true)
		untilTree(b, comms[0], true)
		for range 3 { // until all ranks have the table
			sums(b, comms, 100_000, 1, true)
		}
		trace, err := comms[0].Trace(100_000)
		if err != nil {
			t.Fatal(err)
		}
		sums(b, comms, 1<<20, 2, true)
		b.Kill(3)
		sums(b, comms, 1<<20, 3, true)

		all := readTrace(t, trace)
		over := func(name, node string) func(*tracedEvent) bool {
			return func(e *tracedEvent) bool { return e.Name == name && e.Cat == "frame" && e.Args["node"] == node }
		}
		begun := find(t, all, 0, "operation", func(e *tracedEvent) bool { return e.Name == "allreduce" && e.Ph == "b" })
		up := find(t, all, *begun.Ts, "operand", over("send", "node3"))
		down := find(t, all, *up.Ts, "result", over("receive", "node3"))
		if up.Args["fragment"] != 0.0 || down.Args["rail"] != "rail0" {
			t.Errorf("the first fragment: %+v, the first result: %+v", up.Args, down.Args)
		}
		for _, want := range []string{"lane rail0 to its tree", "lane rail0 from its tree", "lane repair of rail0 to rank 1 (node1)"} {
			if !slices.ContainsFunc(all, func(e tracedEvent) bool { return e.Name == "thread_name" && e.Args["name"] == want }) {
				t.Errorf("no track %q", want)
			}
		}
		lost := find(t, all, *down.Ts, "loss of the tree", func(e *tracedEvent) bool { return e.Name == "tree down" })
		find(t, all, *lost.Ts, "frame of the repair", func(e *tracedEvent) bool { return e.Name == "send" && e.Args["node"] == nil })
	})
}

// sumOnAll runs an allreduce of so many elements on all ranks.
func sumOnAll(b *bed, comms []*Communicator, elements int) {
	b.t.Helper()
	b.each(func(i int) error { return AllReduce(b.t.Context(), comms[i], make([]float32, elements), Sum) })
}

func TestATraceKeepsTheLastEvents(t *testing.T) {
	inBed(t, 2, 1, nil, func(b *bed) {
		comms := b.form("train")
		for _, events := range []int{0, -1, 1 << 30} {
			if _, err := comms[0].Trace(events); !errors.Is(err, ErrArgument) {
				t.Errorf("%d events: %v", events, err)
			}
		}
		first, err := comms[0].Trace(10)
		if err != nil {
			t.Fatal(err)
		}
		trace, err := comms[0].Trace(10)
		if err != nil {
			t.Fatal(err)
		}
		if err := trace.Write(nil); !errors.Is(err, ErrArgument) {
			t.Errorf("written to nothing: %v", err)
		}
		first.Stop() // has been replaced: the second one goes on
		for range 50 {
			sumOnAll(b, comms, 1)
		}
		all := slices.DeleteFunc(readTrace(t, trace), func(e tracedEvent) bool { return e.Ph == "M" || e.Ph == "e" })
		if len(all) != 10 {
			t.Errorf("%d events", len(all))
		}
		last := fmt.Sprint(all[len(all)-1].Args["seq"])
		if last != "51" {
			t.Errorf("the last one is of operation %s", last)
		}
	})
}
