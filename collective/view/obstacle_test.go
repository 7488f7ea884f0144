package view

import (
	"testing"
	"time"
)

// cut lets b not reach c, which waits for it.
func (s *stage) cut() {
	s.broken = func(from, to string) string {
		if from == "b" && to == "c" {
			return "connection refused"
		}
		return ""
	}
	s.silent = func(from, to string) bool { return from == "c" && to == "b" }
}

func TestARefusalThatIsLostIsRepeatedWithItsCause(t *testing.T) {
	s := newStage(t, "a", "b", "c")
	s.cut()
	lost := map[uint64]bool{}
	s.lose = func(_, _ string, m Message) bool {
		r, ok := m.(*Refuse)
		first := ok && !lost[r.ID]
		if first {
			lost[r.ID] = true
		}
		return first
	}
	s.ask("x", 3, "a", "b", "c")
	s.pass(10 * time.Second)
	s.expectFailed("c", `"b" and "c" cannot reach each other`, "connection refused")
	if len(lost) < 2 {
		t.Errorf("%d refusals were lost", len(lost))
	}
}

func TestEachMemberKnowsAtItsDeadlineWhatStoodInTheWay(t *testing.T) {
	for _, order := range []string{"abc", "bca", "cab", "cba"} {
		// The later ones hear that the first withdrew.
		for _, held := range []bool{false, true} { // true: in the middle of the next ballot
			s := newStage(t, "a", "b", "c")
			s.cut()
			s.ask("x", 3, "a", "b", "c")
			if held {
				s.broken, s.silent = nil, func(from, to string) bool { return from == "b" && to == "c" }
				s.pass(100 * time.Millisecond)
				// b tells a.
				s.lose = func(from, to string, _ Message) bool { return from == "c" && to == "a" }
			}
			for _, node := range order {
				s.step(string(node), Cancel{1, "x", "deadline exceeded"})
				s.run()
				s.expectFailed(string(node), "deadline exceeded",
					`last obstacle: node "c" cannot be reached`, "connection refused")
			}
		}
	}
}

func TestWhoIsCancelledInABallotSaysWhatItWaitsFor(t *testing.T) {
	pairs := func(s *stage) {
		s.silent = func(from, to string) bool { return from > "a" && to > "a" }
	}
	commit := func(s *stage) {
		s.lose = func(from, _ string, m Message) bool {
			_, accept := m.(*Accept)
			return accept && from == "b"
		}
	}
	barrier := func(s *stage) { s.hold = true }
	for _, c := range []struct {
		stop       func(*stage)
		node, want string
	}{
		{pairs, "a", "waiting for the answers of b, c"},
		{pairs, "b", "waiting for pairs to c"},
		{pairs, "c", "waiting for pairs to b"},
		{commit, "a", "waiting for the answers of b"},
		{commit, "c", "waiting for the commit of a"},
		{barrier, "b", "in the barrier that commits the view"},
	} {
		s := newStage(t, "a", "b", "c")
		c.stop(s)
		s.ask("x", 3, "a", "b", "c")
		s.step(c.node, Cancel{1, "x", "deadline exceeded"})
		s.expectFailed(c.node, "3 of 3 nodes have asked", c.want)

		s, v := shrinkers(t, "a", "b", "c")
		c.stop(s)
		s.shrink(v, nil, "a", "b", "c")
		s.step(c.node, Cancel{2, ShrinkName(v.ID), "deadline exceeded"})
		s.expectFailed(c.node, "3 of 3 nodes want to go on", c.want)
	}
}
