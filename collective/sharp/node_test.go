package sharp_test

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/polyrail/polyrail/collective/op"
	"github.com/polyrail/polyrail/collective/sharp"
)

// allReduce is what the children say of their fragments.
var allReduce = sharp.Request{Seq: 3, Table: 2, Digest: 1, Block: 4, Bytes: 8,
	Desc: op.Descriptor{Kind: op.KindAllReduce, DType: op.F32, Code: op.CodeSum, Algorithm: op.Ring,
		Elements: 2}}

// story is a node with what happens to it.
type story struct {
	t *testing.T
	*sharp.Node
}

func tell(t *testing.T, c sharp.NodeConfig) story { return story{t, sharp.NewNode(c)} }

func (s story) place(child int, number uint64) {
	s.t.Helper()
	if err := s.Place(child, number, allReduce); err != nil {
		s.t.Fatal(err)
	}
}

// operands are those of some fragments from all children; the last one of each makes it whole.
func (s story) operands(numbers ...uint64) (out []sharp.Action) {
	s.t.Helper()
	for _, n := range numbers {
		for c := range s.Children {
			s.place(c, n)
			out = s.Arrived(c, n, out)
		}
	}
	return out
}

// wants compares actions; kinds with a child stand for all children in their order.
func (s story) wants(got []sharp.Action, want ...sharp.Action) {
	s.t.Helper()
	if len(got) != len(want) || len(got) > 0 && !reflect.DeepEqual(got, want) {
		s.t.Fatalf("actions %+v, want %+v", got, want)
	}
}

// toAll is an action for each of two children.
func toAll(k sharp.ActionKind, number uint64) []sharp.Action {
	return []sharp.Action{{Kind: k, Number: number}, {Kind: k, Number: number, Child: 1}}
}

// refuses fails at the caller's line unless there is an error that says so.
func refuses(t *testing.T, err error, words ...string) {
	t.Helper()
	if err == nil {
		t.Fatalf("no error that says %q", words)
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Fatalf("%v; want %q in it", err, w)
		}
	}
}

var (
	root  = sharp.NodeConfig{Children: 2, Window: 2, Root: true}
	inner = sharp.NodeConfig{Children: 2, Window: 2}
)

func act(k sharp.ActionKind, number uint64) sharp.Action {
	return sharp.Action{Kind: k, Number: number}
}

func TestRootFoldsRespondsAndFrees(t *testing.T) {
	n := tell(t, root)
	n.place(1, 0)
	n.wants(n.Arrived(1, 0, nil))
	n.place(0, 0)
	n.wants(n.Arrived(0, 0, nil), act(sharp.Fold, 0))
	n.wants(n.Folded(0, nil), toAll(sharp.Respond, 0)...)
	n.wants(n.Released(0, nil))
	n.wants(n.Released(0, nil), act(sharp.Free, 0))
}

func TestInnerNodeForwardsAndWaitsForTheResult(t *testing.T) {
	n := tell(t, inner)
	n.place(0, 0)
	if n.Expects(0) {
		t.Error("a result is expected before all operands are here")
	}
	n.Torn(0, 0)
	n.wants(n.operands(0), act(sharp.Fold, 0))
	n.wants(n.Folded(0, nil), act(sharp.Forward, 0))
	if !n.Expects(0) || n.Expects(1) || n.Expects(2) || n.Expects(1<<64-1) {
		t.Error("the result of 0 is expected, and no other")
	}
	n.wants(n.Released(0, nil)) // the parent has the value
	n.wants(n.Returned(0, nil), toAll(sharp.Respond, 0)...)
	n.wants(n.Returned(0, nil)) // the second of two at once
	if n.Expects(0) {
		t.Error("a second result is expected")
	}
	n.wants(n.Released(0, nil))
	n.wants(n.Released(0, nil), act(sharp.Free, 0))
}

func TestRootExpectsNoResult(t *testing.T) {
	n := tell(t, root)
	n.wants(n.operands(0), act(sharp.Fold, 0))
	if n.Expects(0) {
		t.Error("the root expects a result")
	}
	n.wants(n.Returned(0, nil))
}

func TestNodeRefusesWhatIsOutsideTheWindow(t *testing.T) {
	n := tell(t, root)
	for _, number := range []uint64{2, 3, 1 << 63, 1<<64 - 1} {
		refuses(t, n.Place(1, number, allReduce), "child 1", "0 to 1")
	}
	n.wants(n.operands(1, 0), act(sharp.Fold, 1), act(sharp.Fold, 0))
	n.wants(n.Folded(1, nil), toAll(sharp.Respond, 1)...)
	refuses(t, n.Place(0, 2, allReduce), "0 to 1") // 0 is not done
	refuses(t, n.Place(0, 1, allReduce), "came before")
	n.Folded(0, nil)
	refuses(t, n.Place(0, 1, allReduce), "2 to 3")
	n.place(0, 2)
	n.place(0, 3)
}

func TestNodeOpensTheWindowBeforeItResponds(t *testing.T) {
	n := tell(t, root)
	n.operands(0)
	for _, a := range n.Folded(0, nil) { // whoever has a response may send at once
		n.place(a.Child, 2)
	}
}

func TestNodeTakesAnOperandOnce(t *testing.T) {
	n := tell(t, root)
	n.place(0, 1)
	refuses(t, n.Place(0, 1, allReduce), "fragment 1 of child 0 came before")
	n.Torn(0, 1)
	n.place(0, 1)
	n.Torn(0, 1)
	n.place(0, 1)
	n.wants(n.Arrived(0, 1, nil))
	refuses(t, n.Place(0, 1, allReduce), "came before")
	n.place(1, 1)
	n.wants(n.Arrived(1, 1, nil), act(sharp.Fold, 1))
}

func TestDisagreementNamesBothChildren(t *testing.T) {
	other := map[string]func(*sharp.Request){
		"seq":        func(r *sharp.Request) { r.Seq++ },
		"table":      func(r *sharp.Request) { r.Table++ },
		"digest":     func(r *sharp.Request) { r.Digest++ },
		"descriptor": func(r *sharp.Request) { r.Desc.Code = op.CodeMax },
		"block":      func(r *sharp.Request) { r.Block++ },
		"bytes":      func(r *sharp.Request) { r.Bytes++ },
	}
	for name, change := range other {
		t.Run(name, func(t *testing.T) {
			n := tell(t, sharp.NodeConfig{Children: 3, Window: 1, Root: true})
			n.place(2, 0)
			n.place(0, 0)
			r := allReduce
			change(&r)
			err := n.Place(1, 0, r)
			refuses(t, err, "child 2", "child 1", "seq 3")
			var e *sharp.DisagreeError
			if !errors.As(err, &e) || *e != (sharp.DisagreeError{A: 2, B: 1, OfA: allReduce, OfB: r}) {
				t.Errorf("%+v", e)
			}
			n.place(1, 0) // what was refused left no trace
		})
	}
}

// What a child said of an operand that was torn stands: the header was whole.
func TestDisagreementWithATornOperand(t *testing.T) {
	n := tell(t, root)
	n.place(0, 0)
	n.Torn(0, 0)
	r := allReduce
	r.Seq++
	refuses(t, n.Place(1, 0, r), "child 0", "child 1")
}

func TestNodeForgetsARequestWithItsFragment(t *testing.T) {
	n := tell(t, root)
	n.operands(0)
	n.Folded(0, nil)
	r := allReduce
	r.Seq++
	for c := range 2 {
		if err := n.Place(c, 2, r); err != nil {
			t.Fatal(err)
		}
	}
}

// With a window of 2, four results wait for their frames; the fifth is folded when one has gone.
func TestNodeKeepsTwoWindowsOfResults(t *testing.T) {
	n := tell(t, root)
	for number := range uint64(4) {
		n.wants(n.operands(number), act(sharp.Fold, number))
		n.Folded(number, nil)
	}
	n.wants(n.operands(5, 4))
	n.wants(n.Released(2, nil))
	n.wants(n.Released(2, nil), act(sharp.Free, 2), act(sharp.Fold, 5)) // what was whole first
	n.wants(n.Released(0, nil))
	n.wants(n.Released(0, nil), act(sharp.Free, 0), act(sharp.Fold, 4))
}

func TestRootSettlesWhatAllChildrenHold(t *testing.T) {
	n := tell(t, root)
	n.operands(0, 1)
	n.Folded(1, nil)
	n.Folded(0, nil)
	held := func(child int, number uint64, want ...sharp.Action) {
		t.Helper()
		out, err := n.Held(child, number, nil)
		if err != nil {
			t.Fatal(err)
		}
		n.wants(out, want...)
	}
	held(0, 2)
	held(0, 1) // older news
	held(1, 1, toAll(sharp.Settle, 1)...)
	held(1, 1)
	held(1, 2, toAll(sharp.Settle, 2)...)
	held(0, 0)
}

func TestNodeRefusesClaimsOfWhatWasNotSent(t *testing.T) {
	for _, c := range []sharp.NodeConfig{root, inner} {
		n := tell(t, c)
		n.operands(1, 0)
		n.Folded(1, nil) // sent by the root, but 0 is not
		for _, number := range []uint64{1, 2, 1<<64 - 1} {
			_, err := n.Held(1, number, nil)
			refuses(t, err, "child 1", "below 0 are sent")
		}
	}
}

func TestInnerNodePassesNewsOn(t *testing.T) {
	n := tell(t, inner)
	n.operands(0)
	n.Folded(0, nil)
	n.Returned(0, nil)
	out, err := n.Held(1, 1, nil)
	n.wants(out)
	if err != nil {
		t.Fatal(err)
	}
	_, err = n.Settled(1, nil)
	refuses(t, err, "below 1", "below 0") // child 0 has not said so
	out, err = n.Held(0, 1, nil)
	n.wants(out, act(sharp.Hold, 1))
	if err != nil {
		t.Fatal(err)
	}
	_, err = n.Settled(1<<64-1, nil)
	refuses(t, err)
	out, err = n.Settled(1, nil)
	n.wants(out, toAll(sharp.Settle, 1)...)
	if err != nil {
		t.Fatal(err)
	}
}

func TestNobodyTellsTheRootWhatIsSettled(t *testing.T) {
	_, err := tell(t, root).Settled(0, nil)
	refuses(t, err)
}

func TestNodeNeedsChildrenAndAWindow(t *testing.T) {
	panics(t, func() { sharp.NewNode(sharp.NodeConfig{Window: 1}) })
	panics(t, func() { sharp.NewNode(sharp.NodeConfig{Children: 1}) })
}
