package view

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/polyrail/polyrail/collective/fault"
)

// shrinkers forms a view of all nodes and clears the stage for its shrinking.
func shrinkers(t *testing.T, nodes ...string) (*stage, *View) {
	s := newStage(t, nodes...)
	s.ask("train", len(nodes), nodes...)
	v := s.expectView(nodes...)
	s.formed = map[string]*View{}
	return s, v
}

// shrink lets nodes ask for the rest of v, each with its own report.
func (s *stage) shrink(v *View, own map[string]SeqRange, nodes ...string) {
	for _, node := range nodes {
		s.step(node, Shrink{Call: 2, Nonce: uint64(node[0]), Old: Old{ID: v.ID, Title: v.Name, Members: v.Members, Uneven: own[node]}})
	}
	s.run()
}

// lose takes a node away, and tells the others.
func (s *stage) loseNode(node string) {
	delete(s.cores, node)
	for _, n := range s.order {
		s.step(n, Lost{node, 1, "its host refuses connections"})
	}
	s.run()
}

func (s *stage) expectMinority(node string, words ...string) {
	s.t.Helper()
	var e *fault.MinorityError
	err := s.failed[node]
	if !errors.As(err, &e) || !errors.Is(err, fault.ErrMinority) || !errors.Is(err, fault.ErrView) {
		s.t.Fatalf("%s: got %v", node, err)
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			s.t.Errorf("%s: %q is missing in %q", node, w, err)
		}
	}
}

func TestSurvivorsShrink(t *testing.T) {
	s, v := shrinkers(t, "a", "b", "c", "d")
	own := map[string]SeqRange{"a": {6, 5}, "c": {4, 3}, "d": {5, 6}}
	s.shrink(v, own, "a", "c")
	s.loseNode("b")
	if len(s.formed) != 0 {
		t.Fatalf("formed without waiting for d: %v", s.formed)
	}
	s.shrink(v, own, "d")
	w := s.expectView("a", "c", "d")
	if w.Uneven != (SeqRange{4, 6}) {
		t.Errorf("range %v, want 4 to 6", w.Uneven)
	}
	if id, ok := ShrinkOf(w.Name); !ok || id != v.ID {
		t.Errorf("name %q", w.Name)
	}

	s.formed = map[string]*View{} // and once more, without its lowest
	s.shrink(w, nil, "d", "c")
	s.loseNode("a")
	s.expectView("c", "d")
}

func TestAllCanGoOnTogetherAfterAnErrorThatWasNoLoss(t *testing.T) {
	s, v := shrinkers(t, "a", "b")
	s.shrink(v, nil, "b", "a")
	s.expectView("a", "b")
}

func TestHalfGoesOnOnlyWithTheLowest(t *testing.T) {
	s, v := shrinkers(t, "a", "b", "c", "d")
	s.shrink(v, nil, "a", "b")
	s.loseNode("c")
	s.loseNode("d")
	s.expectView("a", "b")

	s, v = shrinkers(t, "a", "b", "c", "d")
	s.shrink(v, nil, "c", "d")
	s.loseNode("a")
	s.loseNode("b")
	if len(s.formed) != 0 {
		t.Fatalf("formed %v", s.formed)
	}
	s.expectMinority("c", `"train"`, "2 nodes left (c, d)", "of 4", "missing: a, b")
	s.expectMinority("d")
}

func TestAMinorityKnowsWithoutWaiting(t *testing.T) {
	s, v := shrinkers(t, "a", "b", "c", "d", "e")
	s.loseNode("a")
	s.loseNode("b")
	s.loseNode("c")
	s.shrink(v, nil, "d") // e never calls
	for _, node := range []string{"a", "b", "c"} {
		s.step("d", Lost{node, 1, "gone"})
	}
	s.expectMinority("d")
}

func TestWhoNeverShrinksIsNamed(t *testing.T) {
	s, v := shrinkers(t, "a", "b", "c")
	s.shrink(v, nil, "a", "b")
	s.pass(time.Minute)
	if len(s.formed)+len(s.failed) != 0 {
		t.Fatalf("formed %v, failed %v", s.formed, s.failed)
	}
	s.step("a", Cancel{2, ShrinkName(v.ID), "deadline exceeded"})
	s.run()
	s.expectFailed("a", `"train"`, `node "c"`, "2 of 3", "neither lost nor shrinking: c")

	s.shrink(v, nil, "a", "c") // the same again: nothing is decided yet
	s.expectView("a", "b", "c")
}

func TestWhoClosedTheCommunicatorIsNotWaitedFor(t *testing.T) {
	s, v := shrinkers(t, "a", "b", "c")
	s.shrink(v, nil, "a", "b")
	s.step("c", Stranger{"a", ShrinkName(v.ID)})
	s.step("c", Stranger{"b", ShrinkName(v.ID)})
	s.run()
	s.expectView("a", "b")
}

func TestWhoWasStartedAgainIsNotWaitedFor(t *testing.T) {
	s, v := shrinkers(t, "a", "b", "c")
	s.shrink(v, nil, "a", "b")
	s.add("c", 2, "eth0", "eth1")
	s.introduce()
	s.expectView("a", "b")
}

func TestLateComerFindsTheOthersGone(t *testing.T) {
	s, v := shrinkers(t, "a", "b", "c")
	s.step("a", Lost{"c", 1, "unheard for 2s"})
	s.step("b", Lost{"c", 1, "unheard for 2s"})
	s.shrink(v, nil, "a", "b")
	for _, node := range []string{"a", "b"} {
		s.step(node, Lost{"c", 1, "unheard for 2s"})
	}
	s.run()
	s.expectView("a", "b")
	s.shrink(v, nil, "c")
	s.step("a", Stranger{"c", ShrinkName(v.ID)})
	s.step("b", Stranger{"c", ShrinkName(v.ID)})
	s.run()
	s.expectMinority("c", "missing: a, b")
}

// The rest of a view that may have been formed elsewhere must hold a majority of that one, too.
func TestAMemberRemembersTheBarrierThatItEnteredInVain(t *testing.T) {
	s, v := shrinkers(t, "a", "b", "c", "d", "e", "f", "g")
	s.hold = true
	s.shrink(v, nil, "a", "b", "c", "d")
	for _, node := range []string{"e", "f", "g"} {
		s.step("a", Lost{node, 1, "unheard"})
	}
	s.run()
	var id uint64
	for view, entered := range s.entered {
		if len(entered) == 4 {
			id = view
		}
	}
	if id == 0 {
		t.Fatalf("entered: %v", s.entered)
	}
	// a and b complete the barrier; c and d see it fail and lose them, but reach the others.
	s.step("a", BarrierDone{id, nil})
	s.step("b", BarrierDone{id, nil})
	for _, node := range []string{"c", "d"} {
		s.step(node, BarrierDone{id, errors.New("reset")})
		s.step(node, Lost{"a", 1, "reset"})
		s.step(node, Lost{"b", 1, "reset"})
	}
	s.shrink(v, nil, "e", "f", "g")
	s.pass(time.Second)
	s.expectMinority("c", "5 nodes left (c, d, e, f, g) are no majority of 4")
	s.expectMinority("d", "of 4")
	if len(s.formed) != 2 {
		t.Errorf("formed: %v", s.formed)
	}

	// A proposer who knows nothing of the attempt meets the members' objection.
	member := newShrink(Old{Members: v.Members, Attempts: []*View{{Members: v.Members[:4]}}})
	if reason := member.objection(&View{Members: v.Members[2:]}); !strings.Contains(reason, "of the 4 nodes") {
		t.Errorf("objection %q", reason)
	}
}

func TestWrongShrinksFailAtOnce(t *testing.T) {
	s, v := shrinkers(t, "a", "b", "c")
	s.step("a", Shrink{Call: 2, Old: Old{ID: v.ID, Title: v.Name, Members: v.Members[1:]}})
	s.expectFailed("a", "no member")
	s.shrink(v, nil, "b")
	s.step("b", Shrink{Call: 3, Old: Old{ID: v.ID, Title: v.Name, Members: v.Members}})
	s.expectFailed("b", "waits")
	s.step("c", Ask{Call: 1, Name: ShrinkName(v.ID), Size: 3, Nonce: 9})
	s.expectFailed("c", "begun by")
	if v, ok := ShrinkOf("train"); ok {
		t.Errorf("%x", v)
	}
}
