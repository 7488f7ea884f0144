package task

import (
	"errors"
	"fmt"
	"slices"

	"github.com/polyrail/polyrail/collective/plan"
	"github.com/polyrail/polyrail/collective/schedule"
)

// Task is one lane's part of an operation at one rank. The zero Task waits for Reset.
type Task struct {
	Config
	shape
	lane *plan.Lane

	started, aborted, resolved, retired bool

	// By Ref.
	state []state
	need  []uint16 // what the instruction still waits for
	next  []Ref    // the parked list that it is in

	window  int   // spans that have slots at a time
	free    int   // the first so many spans are done with their slots
	given   int   // spans that our senders may send
	scratch []int // by span: instructions that touch its scratch and aren't done
	args    []Loc // operands of the kernels, so that actions need no memory of their own
	// By link and span: last of the Sends that wait for a grant, plus 1; 0 is none. Then kernels.
	parked []Ref
	limits []int    // by link: spans that the peer allows
	sends  []counts // by link: of the Sends that aren't out yet
	comes  []int    // by link of Program.From: frames that come in all spans together

	// Instructions that aren't done (left), of those the ones begun (busy); user: those that
	// touch the user's memory.
	left, userLeft, busy, userBusy int
	kernels                        int   // running
	slots                          []int // by slot: where it begins in a span's scratch
	spanBytes                      int   // of scratch
}

// state is how far an instruction has come.
type state uint8

const (
	waiting state = iota
	begun         // received, reduced or sent right now
	done
)

// Step takes an event and appends what it leads to. An error is a violation of the
// protocol, and leaves the task as it was.
func (t *Task) Step(e Event, out []Action) ([]Action, error) {
	var err error
	switch e.Kind {
	case Start:
		out, err = t.start(out)
	case Granted:
		out, err = t.granted(e, out)
	case Torn:
		err = t.torn(e.Ref)
	case Arrived, Reduced, Released:
		out, err = t.finished(e, out)
	case Folded:
		out, err = t.folded(e.Ref, out)
	case Abort:
		t.aborted = true
	default:
		err = fmt.Errorf("task: unknown event %d", e.Kind)
	}
	if err != nil {
		return out, err
	}
	return t.settle(out), nil
}

// start begins whatever depends on the rank's own input alone.
func (t *Task) start(out []Action) ([]Action, error) {
	if t.aborted {
		return out, nil
	}
	if t.started {
		return out, errors.New("task: started twice")
	}
	t.started = true
	out = t.grant(out)
	for span := range t.lane.Spans {
		if t.Plan.Full() {
			for _, at := range t.ready {
				out = t.begin(span, at, out)
			}
			continue
		}
		for at := range t.Program.Code {
			// What waited for instructions that were skipped may be ready, too.
			ref := t.ref(span, at)
			if t.state[ref] == waiting && t.need[ref] == 0 && t.Program.Code[at].Kind != schedule.Recv {
				out = t.begin(span, at, out)
			}
		}
	}
	return out, nil
}

// Place says where a frame lands, and marks it as being received until Arrived or Torn.
// What the frame says comes from the network and may be anything. An error is a
// violation of the protocol by its sender, except for ErrAborted.
func (t *Task) Place(f Frame) (Ref, Loc, error) {
	if t.aborted {
		return 0, Loc{}, ErrAborted
	}
	if !t.started {
		return 0, Loc{}, errors.New("task: frame placed before the start")
	}
	refuse := func(why string) (Ref, Loc, error) {
		return 0, Loc{}, fmt.Errorf(
			"frame of rank %d (lane %d, rounds %d+%d, block %d, step %d, %d bytes): %s",
			f.From, t.Lane, f.First, f.Count, f.Mark, f.Step, f.Bytes, why)
	}
	span, ok := t.lane.Find(f.First, f.Count)
	if !ok {
		return refuse("no such span")
	}
	v, ok := t.Program.FindRecv(f.Mark, f.Step)
	if !ok {
		return refuse("nothing is received in that step")
	}
	in := &t.Program.Code[v]
	if in.Peer != f.From {
		return refuse(fmt.Sprintf("that step is rank %d's", in.Peer))
	}
	if span >= t.given {
		return refuse("not granted")
	}
	loc := t.value(span, v)
	if loc.Len != f.Bytes {
		return refuse(fmt.Sprintf("should have %d bytes", loc.Len))
	}
	ref := t.ref(span, int(v))
	if t.state[ref] != waiting {
		return refuse("came before")
	}
	t.mark(ref, in)
	return ref, loc, nil
}

// finished ends an instruction and begins those that waited for it.
func (t *Task) finished(e Event, out []Action) ([]Action, error) {
	in, err := t.outstanding(e.Ref, e.Kind)
	if err != nil {
		return out, err
	}
	t.state[e.Ref] = done
	t.left--
	t.busy--
	if in.User {
		t.userLeft--
		t.userBusy--
	}
	if e.Kind == Reduced {
		t.kernels--
	}
	if t.aborted {
		return out, nil
	}
	span := int(e.Ref) / len(t.Program.Code)
	out = t.wake(span, in.Uses, out)
	if t.InPlace {
		out = t.wake(span, in.Frees, out)
	}
	if in.Scratch {
		if t.scratch[span]--; t.scratch[span] == 0 {
			out = t.grant(out)
		}
	}
	return out, nil
}

// wake begins those instructions that waited for nothing else, and were not skipped.
func (t *Task) wake(span int, users []schedule.Value, out []Action) []Action {
	for _, u := range users {
		ref := t.ref(span, int(u))
		if t.need[ref]--; t.need[ref] == 0 && t.state[ref] == waiting &&
			t.Program.Code[u].Kind != schedule.Recv {
			out = t.begin(span, int(u), out)
		}
	}
	return out
}

// granted raises a peer's limit and sends what waited for it. A limit that comes before
// the start counts from then on.
func (t *Task) granted(e Event, out []Action) ([]Action, error) {
	link, ok := slices.BinarySearch(t.Program.To, e.From)
	if !ok || t.Eager {
		return out, fmt.Errorf("grant of rank %d, to whom nothing is sent by grant", e.From)
	}
	if e.Limit < 0 || e.Limit > len(t.lane.Spans) {
		return out, fmt.Errorf("grant of rank %d: no %d spans on lane %d", e.From, e.Limit, t.Lane)
	}
	old := t.limits[link]
	t.limits[link] = max(old, e.Limit)
	if t.aborted {
		return out, nil
	}
	return t.unpark(link, old, t.limits[link], out), nil
}

// begin runs an instruction that has all it waits for, or parks it: a Send until it is granted,
// a kernel until its span has scratch. That matters to kernels of the rank's own input
// alone; what is received was granted.
func (t *Task) begin(span, at int, out []Action) []Action {
	in := &t.Program.Code[at]
	ref := t.ref(span, at)
	switch {
	case in.Kind == schedule.Send && (t.Eager || span < t.limits[in.Link]):
		return append(out, t.send(span, at))
	case in.Kind == schedule.Send:
		t.park(in.Link, span, ref)
	case in.Store.Kind == schedule.Scratch && span >= t.given:
		t.park(t.kernelsAt(), span, ref)
	default:
		t.kernels++
		t.mark(ref, in)
		return append(out, t.kernel(span, at))
	}
	return out
}

// send is the action of a Send, from now on outstanding.
func (t *Task) send(span, at int) Action {
	in := &t.Program.Code[at]
	ref := t.ref(span, at)
	t.mark(ref, in)
	a := Action{
		Kind: Send, User: in.User, Ref: ref, To: in.Peer, Span: span,
		Mark: in.Mark, Step: in.Step, Loc: t.value(span, in.Args[0]),
	}
	left := &t.sends[in.Link]
	left.add(in, -1)
	a.AckNow = left.all == 0 || in.User && left.user == 0
	return a
}

// kernel is the action of a Reduce or Copy.
func (t *Task) kernel(span, at int) Action {
	in := &t.Program.Code[at]
	a := Action{Kind: Reduce, Last: in.Last, Ref: t.ref(span, at)}
	from := span*t.argsPerSpan + t.argsAt[at]
	if in.Kind == schedule.Copy {
		a.Kind = Copy
		a.Args = t.args[from : from+len(in.Pieces) : from+len(in.Pieces)]
		for i, v := range in.Pieces {
			a.Args[i] = t.piece(span, v, in.Blocks[i])
		}
	} else {
		a.Args = t.args[from : from+len(in.Args) : from+len(in.Args)]
		for i, v := range in.Args {
			a.Args[i] = t.value(span, v)
		}
	}
	a.Dst = t.value(span, schedule.Value(at))
	return a
}

// grant notes which spans are done with their slots and lets our senders go on.
func (t *Task) grant(out []Action) []Action {
	for t.free < len(t.scratch) && t.scratch[t.free] == 0 {
		t.free++
	}
	limit := min(t.free+t.window, len(t.scratch))
	if limit <= t.given {
		return out
	}
	old := t.given
	t.given = limit
	if t.Eager {
		return out
	}
	for link, from := range t.Program.From {
		// Who sends nothing may be any number of operations behind, and would keep every grant.
		if t.comes[link] > 0 {
			out = append(out, Action{Kind: Grant, To: from, Limit: limit})
		}
	}
	return t.unpark(t.kernelsAt(), old, limit, out)
}

// settle resolves and retires when nothing stands against it.
func (t *Task) settle(out []Action) []Action {
	all, user := t.left, t.userLeft
	switch {
	case t.aborted:
		all, user = t.busy, t.userBusy
	case !t.started:
		return out
	}
	if !t.resolved && user == 0 && t.kernels == 0 {
		t.resolved = true
		out = append(out, Action{Kind: Resolve})
	}
	if t.resolved && !t.retired && all == 0 {
		t.retired = true
		out = append(out, Action{Kind: Retire})
	}
	return out
}

// outstanding is the instruction that an event reports on, if it was begun.
func (t *Task) outstanding(ref Ref, kind EventKind) (*schedule.Instr, error) {
	if int(ref) >= len(t.state) {
		return nil, fmt.Errorf("task: event %d of unknown instruction %d", kind, ref)
	}
	in := &t.Program.Code[int(ref)%len(t.Program.Code)]
	if t.state[ref] != begun || answer(in.Kind) != kind && (kind != Torn || in.Kind != schedule.Recv) {
		return nil, fmt.Errorf("task: event %d of instruction %d, which isn't outstanding", kind, ref)
	}
	return in, nil
}

// answer is the event that ends an instruction.
func answer(k schedule.InstrKind) EventKind {
	switch k {
	case schedule.Recv:
		return Arrived
	case schedule.Send:
		return Released
	default:
		return Reduced
	}
}

// mark makes an instruction outstanding.
func (t *Task) mark(ref Ref, in *schedule.Instr) {
	t.state[ref] = begun
	t.busy++
	if in.User {
		t.userBusy++
	}
}

func (t *Task) ref(span, at int) Ref { return Ref(span*len(t.Program.Code) + at) }

// bytes is what so many blocks take in a span, together.
func (t *Task) bytes(span int, blocks []int) (bytes int) {
	s := &t.lane.Spans[span]
	for _, block := range blocks {
		_, length := t.Plan.Range(s.First, s.Count, block)
		bytes += length
	}
	return bytes
}

// value is where a value of a span lives.
func (t *Task) value(span int, v schedule.Value) Loc {
	if block, ok := v.Input(); ok {
		return t.user(Input, span, block)
	}
	in := &t.Program.Code[v]
	if in.Kind == schedule.Send {
		return t.value(span, in.Args[0])
	}
	if in.Store.Kind == schedule.Final {
		return t.user(Final, span, in.Blocks[0])
	}
	return Loc{Mem: Scratch, Off: t.slot(span, in), Len: t.bytes(span, in.Blocks)}
}

// piece is where one block of a value lives.
func (t *Task) piece(span int, v schedule.Value, block int) Loc {
	if _, ok := v.Input(); ok || t.Program.Code[v].Store.Kind == schedule.Final {
		return t.value(span, v) // a block by itself
	}
	in := &t.Program.Code[v]
	l := Loc{Mem: Scratch, Off: t.slot(span, in)}
	s := &t.lane.Spans[span]
	for _, b := range in.Blocks {
		_, length := t.Plan.Range(s.First, s.Count, b)
		if b == block {
			l.Len = length
			break
		}
		l.Off += length
	}
	return l
}

// slot is where the scratch of an instruction's value begins.
func (t *Task) slot(span int, in *schedule.Instr) int {
	return span%t.window*t.spanBytes + t.slots[in.Store.Slot]
}

// user is a block's part of a span in the user's memory.
func (t *Task) user(m Memory, span, block int) Loc {
	s := &t.lane.Spans[span]
	off, length := t.Plan.Range(s.First, s.Count, block)
	if m == Input {
		off += t.Plan.Blocks[block].Source
	} else {
		off += t.Plan.Blocks[block].Target
	}
	return Loc{Mem: m, Off: off, Len: length}
}
