package task

import (
	"errors"
	"fmt"
	"slices"

	"github.com/polyrail/polyrail/collective/op"
	"github.com/polyrail/polyrail/collective/schedule"
)

// Task is one operation at one rank. The zero Task waits for Reset.
type Task struct {
	Config
	shape

	started, aborted, resolved, retired bool

	// By Ref.
	state []state
	need  []uint16 // what the instruction still waits for
	next  []Ref    // the parked list that it is in

	rails   []rail
	scratch []int    // by span: instructions that touch its scratch and aren't done
	args    []Loc    // operands of the kernels, so that actions need no memory of their own
	parked  []Ref    // by link and span: last of the Sends that wait for a grant, plus 1; 0 is none
	limits  []int    // by link and rail: spans that the peer allows
	sends   []counts // by link and rail: of the Sends that aren't out yet

	// Instructions that aren't done (left), of those the ones begun (busy); user: those that
	// touch the user's memory.
	left, userLeft, busy, userBusy int
	kernels                        int // running
	slotBytes                      int
	scratchBytes                   int
}

// state is how far an instruction has come.
type state uint8

const (
	waiting state = iota
	begun         // received, reduced or sent right now
	done
)

// rail is the window of one planned rail.
type rail struct {
	arena   int // offset of its slots
	window  int // spans that have slots at a time
	free    int // its first so many spans are done with their slots
	granted int // spans that our senders may send
}

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
	longest := 0
	for r := range t.rails {
		out = t.grant(r, out)
		longest = max(longest, t.Plan.PerRail[r].Len())
	}
	// Span by span over all rails, so that none of them waits for the others' share.
	for i := range longest {
		for _, spans := range t.Plan.PerRail {
			if i >= spans.Len() {
				continue
			}
			span := spans.From + i
			owners := t.Plan.OwnersIn(span)
			for _, at := range t.Program.Ready {
				if t.Program.Code[at].Owner < owners {
					out = t.begin(span, at, out)
				}
			}
		}
	}
	return out, nil
}

// Place says where a frame lands, and marks it as being received until Arrived or Torn.
// Its arguments come from the frame's header and may be anything. An error is a
// violation of the protocol by rank from, except for ErrAborted.
func (t *Task) Place(from op.Rank, rail, first, count, owner, step, length int) (Ref, Loc, error) {
	if t.aborted {
		return 0, Loc{}, ErrAborted
	}
	if !t.started {
		return 0, Loc{}, errors.New("task: frame placed before the start")
	}
	refuse := func(why string) (Ref, Loc, error) {
		return 0, Loc{}, fmt.Errorf("frame of rank %d (rail %d, rounds %d+%d, owner %d, step %d, %d bytes): %s",
			from, rail, first, count, owner, step, length, why)
	}
	span, ok := t.Plan.Find(rail, first, count)
	if !ok {
		return refuse("no such span")
	}
	v, ok := t.Program.FindRecv(owner, step)
	if !ok || owner >= t.Plan.OwnersIn(span) {
		return refuse("nothing is received in that step")
	}
	at := t.Program.Base[owner] + int(v)
	in := &t.Program.Code[at]
	if in.Peer != from {
		return refuse(fmt.Sprintf("that step is rank %d's", in.Peer))
	}
	if t.Plan.Spans[span].Index >= t.rails[rail].granted {
		return refuse("not granted")
	}
	loc := t.loc(span, owner, v)
	if loc.Len != length {
		return refuse(fmt.Sprintf("should have %d bytes", loc.Len))
	}
	ref := t.ref(span, at)
	if t.state[ref] != waiting {
		return refuse("came before")
	}
	t.mark(ref, in)
	return ref, loc, nil
}

// torn takes back a Place.
func (t *Task) torn(ref Ref) error {
	in, err := t.outstanding(ref, Torn)
	if err != nil {
		return err
	}
	t.state[ref] = waiting
	t.busy--
	if in.User {
		t.userBusy--
	}
	return nil
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
	if in.Kind != schedule.Send || t.InPlace { // a Send is waited for only by those who would overwrite what it reads
		base := t.Program.Base[in.Owner]
		for _, u := range in.Uses {
			at := base + int(u)
			ref := t.ref(span, at)
			if t.need[ref]--; t.need[ref] == 0 {
				out = t.begin(span, at, out)
			}
		}
	}
	if in.Scratch {
		if t.scratch[span]--; t.scratch[span] == 0 {
			out = t.grant(t.Plan.Spans[span].Rail, out)
		}
	}
	return out, nil
}

// granted raises a peer's limit and sends what waited for it. A limit that comes before
// the start counts from then on.
func (t *Task) granted(e Event, out []Action) ([]Action, error) {
	link, ok := slices.BinarySearch(t.Program.To, e.From)
	if !ok || t.Eager {
		return out, fmt.Errorf("grant of rank %d, to whom nothing is sent by grant", e.From)
	}
	if e.Rail < 0 || e.Rail >= len(t.rails) || e.Limit < 0 || e.Limit > t.Plan.PerRail[e.Rail].Len() {
		return out, fmt.Errorf("grant of rank %d: no %d spans on rail %d", e.From, e.Limit, e.Rail)
	}
	limit := &t.limits[link*len(t.rails)+e.Rail]
	old := *limit
	*limit = max(old, e.Limit)
	if t.aborted {
		return out, nil
	}
	from := t.Plan.PerRail[e.Rail].From
	for span := from + old; span < from+*limit; span++ {
		list := &t.parked[link*len(t.Plan.Spans)+span]
		if *list == 0 {
			continue
		}
		last := *list - 1
		*list = 0
		for ref := t.next[last]; ; ref = t.next[ref] {
			out = append(out, t.send(span, int(ref)%len(t.Program.Code)))
			if ref == last {
				break
			}
		}
	}
	return out, nil
}

// begin runs an instruction that has all it waits for, or parks it until it is granted.
func (t *Task) begin(span, at int, out []Action) []Action {
	in := &t.Program.Code[at]
	ref := t.ref(span, at)
	if in.Kind != schedule.Send {
		t.kernels++
		t.mark(ref, in)
		return append(out, t.kernel(span, at))
	}
	s := &t.Plan.Spans[span]
	if t.Eager || s.Index < t.limits[in.Link*len(t.rails)+s.Rail] {
		return append(out, t.send(span, at))
	}
	list := &t.parked[in.Link*len(t.Plan.Spans)+span]
	if *list == 0 {
		t.next[ref] = ref
	} else {
		last := *list - 1
		t.next[ref], t.next[last] = t.next[last], ref
	}
	*list = ref + 1
	return out
}

// send is the action of a Send, from now on outstanding.
func (t *Task) send(span, at int) Action {
	in := &t.Program.Code[at]
	ref := t.ref(span, at)
	t.mark(ref, in)
	r := t.Plan.Spans[span].Rail
	a := Action{
		Kind: Send, User: in.User, Ref: ref, To: in.Peer, Rail: r, Span: span,
		Owner: in.Owner, Step: in.Step, Loc: t.loc(span, in.Owner, in.Args[0]),
	}
	left := &t.sends[in.Link*len(t.rails)+r]
	left.add(in, -1)
	a.AckNow = left.all == 0 || in.User && left.user == 0
	return a
}

// kernel is the action of a Reduce or Copy.
func (t *Task) kernel(span, at int) Action {
	in := &t.Program.Code[at]
	a := Action{Kind: Reduce, Last: in.Last, Ref: t.ref(span, at)}
	if in.Kind == schedule.Copy {
		a.Kind = Copy
	}
	from := span*t.argsPerSpan + t.argsAt[at]
	a.Args = t.args[from : from+len(in.Args) : from+len(in.Args)]
	for i, v := range in.Args {
		a.Args[i] = t.loc(span, in.Owner, v)
	}
	a.Dst = t.loc(span, in.Owner, schedule.Value(at-t.Program.Base[in.Owner]))
	return a
}

// grant notes which spans are done with their slots and lets our senders go on.
func (t *Task) grant(r int, out []Action) []Action {
	rail, spans := &t.rails[r], t.Plan.PerRail[r]
	for rail.free < spans.Len() && t.scratch[spans.From+rail.free] == 0 {
		rail.free++
	}
	limit := min(rail.free+rail.window, spans.Len())
	if limit <= rail.granted {
		return out
	}
	rail.granted = limit
	if t.Eager {
		return out
	}
	for _, from := range t.Program.From {
		out = append(out, Action{Kind: Grant, To: from, Rail: r, Limit: limit})
	}
	return out
}

// settle resolves and retires when nothing stands against it.
func (t *Task) settle(out []Action) []Action {
	all, user := t.left, t.userLeft
	if t.aborted {
		all, user = t.busy, t.userBusy
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

// loc is where a value of one span and owner lives.
func (t *Task) loc(span, owner int, v schedule.Value) Loc {
	off, length := t.Plan.RangeOf(span, owner)
	if v == schedule.Input {
		return Loc{Mem: Input, Off: off, Len: length}
	}
	place := t.Program.Code[t.Program.Base[owner]+int(v)].Store
	if place.Kind == schedule.Final {
		return Loc{Mem: Final, Off: off, Len: length}
	}
	s := &t.Plan.Spans[span]
	r := &t.rails[s.Rail]
	slot := s.Index%r.window*t.Program.Slots + place.Slot
	return Loc{Mem: Scratch, Off: r.arena + slot*t.slotBytes, Len: length}
}
