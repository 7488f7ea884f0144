package task

import (
	"fmt"

	"github.com/polyrail/polyrail/collective/schedule"
)

// Claim begins the Reduce of two operands that waits for nothing but the frame that was placed as ref.
// Its other operand is there, so whoever receives the frame may fold it from where it is: Folded
// follows, or Torn, in place of Arrived. Args[operand] is the frame.
//
// A frame that is torn comes again and is folded again. So only one that is whole, which can't be
// torn any more, may be folded over the other operand.
func (t *Task) Claim(ref Ref, whole bool) (a Action, operand int, ok bool) {
	if _, err := t.outstanding(ref, Arrived); err != nil || t.aborted {
		return Action{}, 0, false
	}
	user, in, ok := t.userOf(ref)
	if !ok || len(in.Args) != 2 || t.state[user] != waiting || t.need[user] != 1 {
		return Action{}, 0, false
	}
	code := len(t.Program.Code)
	span, at := int(user)/code, int(user)%code
	if in.Args[1] == schedule.Value(int(ref)%code) {
		operand = 1
	}
	if !whole && t.overwrites(in, in.Args[1-operand]) {
		return Action{}, 0, false
	}
	t.kernels++
	t.mark(user, in)
	return t.kernel(span, at), operand, true
}

// overwrites reports whether a Reduce's value lies where this operand of it does.
func (t *Task) overwrites(in *schedule.Instr, operand schedule.Value) bool {
	if _, ok := operand.Input(); ok {
		return t.InPlace && in.Store.Kind == schedule.Final
	}
	return in.Store == t.Program.Code[operand].Store
}

// userOf is the Reduce that alone uses what is received as ref.
func (t *Task) userOf(ref Ref) (user Ref, in *schedule.Instr, ok bool) {
	code := len(t.Program.Code)
	uses := t.Program.Code[int(ref)%code].Uses
	if len(uses) != 1 || t.Program.Code[uses[0]].Kind != schedule.Reduce {
		return 0, nil, false
	}
	return t.ref(int(ref)/code, int(uses[0])), &t.Program.Code[uses[0]], true
}

// folded ends what Claim began: the frame has arrived, and is folded.
func (t *Task) folded(ref Ref, out []Action) ([]Action, error) {
	user, _, ok := t.userOf(ref)
	if !ok || t.state[user] != begun || t.state[ref] != begun {
		return out, fmt.Errorf("task: frame %d was not claimed", ref)
	}
	out, err := t.finished(Event{Kind: Arrived, Ref: ref}, out)
	if err != nil {
		return out, err
	}
	return t.finished(Event{Kind: Reduced, Ref: user}, out)
}

// torn takes back a Place, and a Claim.
func (t *Task) torn(ref Ref) error {
	in, err := t.outstanding(ref, Torn)
	if err != nil {
		return err
	}
	t.unmark(ref, in)
	if user, reduce, ok := t.userOf(ref); ok && t.state[user] == begun {
		t.unmark(user, reduce)
		t.kernels--
	}
	return nil
}

// unmark takes mark back.
func (t *Task) unmark(ref Ref, in *schedule.Instr) {
	t.state[ref] = waiting
	t.busy--
	if in.User {
		t.userBusy--
	}
}
