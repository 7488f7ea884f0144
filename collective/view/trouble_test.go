package view

import (
	"errors"
	"slices"
	"testing"
	"time"
)

func TestALostAnnouncementIsRepairedWhenTheOtherSideAsks(t *testing.T) {
	s := newStage(t, "a", "b")
	announcements := 0
	s.lose = func(from, _ string, m Message) bool {
		_, ok := m.(*Announce)
		if ok && from == "b" {
			announcements++
		}
		return ok && from == "b" && announcements == 1
	}
	s.ask("x", 2, "b")
	s.now = s.now.Add(200 * time.Millisecond)
	s.ask("x", 2, "a") // it believes that b asks for nothing: b sets it right at once
	s.expectView("a", "b")
}

func TestALateAnnouncementOfAnEndedCallHoldsNobodyUpForLong(t *testing.T) {
	s := newStage(t, "a", "b", "c")
	s.step("b", Received{"a", 1, &Announce{Name: "x", Ask: 9, Size: 2, Rails: s.cores["a"].self.Rails, TTL: time.Minute}})
	s.ask("x", 2, "b", "c")
	s.pass(300 * time.Millisecond) // to b's next announcement, which a corrects
	s.expectView("b", "c")
}

func TestANodeThatJoinsLaterHearsWhoAsks(t *testing.T) {
	s := newStage(t, "a", "b")
	s.ask("x", 3, "a", "b")
	s.pass(time.Minute)
	s.order = append(s.order, "c")
	s.add("c", 1, "eth0", "eth1")
	s.introduce()
	if n := s.cores["c"].names["x"]; n == nil || len(n.asks) != 2 {
		t.Error("c wasn't told")
	}
	s.ask("x", 3, "c")
	s.expectView("a", "b", "c")
}

func TestABarrierThatWasEnteredIsNotLeftForAHigherBallot(t *testing.T) {
	s := newStage(t, "a", "b", "c")
	s.hold = true
	s.ask("x", 2, "b", "c")
	s.cores["a"].saw(1000)
	s.ask("x", 2, "a") // chooses b, which is in the barrier
	s.pass(500 * time.Millisecond)
	for id, nodes := range s.entered {
		for _, node := range nodes {
			s.step(node, BarrierDone{id, nil})
		}
	}
	s.pass(5 * time.Second)
	s.expectView("b", "c")
}

func TestALostMemberIsReplacedByAnotherAsker(t *testing.T) {
	s := newStage(t, "a", "b", "c", "d")
	s.broken = func(_, b string) string {
		if b == "b" {
			return "connection refused"
		}
		return ""
	}
	s.ask("x", 3, "a", "b", "c", "d")
	delete(s.cores, "b")
	for _, node := range []string{"a", "c", "d"} {
		s.step(node, MemberDown{"b", 1, true})
	}
	s.pass(2 * time.Second)
	s.expectView("a", "c", "d")
}

func TestTheProposersDeathLeavesItToTheNext(t *testing.T) {
	s := newStage(t, "a", "b", "c")
	a := s.cores["a"]
	s.lose = func(_, to string, _ Message) bool { return to == "a" && a.clock > 0 } // it proposes, and hears no more
	s.ask("x", 2, "a", "b", "c")
	delete(s.cores, "a")
	s.step("b", MemberDown{"a", 1, true})
	s.step("c", MemberDown{"a", 1, true})
	s.pass(time.Second)
	s.expectView("b", "c")
}

func TestARestartedNodesOldCallCountsNoMore(t *testing.T) {
	s := newStage(t, "a", "b")
	s.ask("x", 2, "a")
	s.add("a", 2, "eth0", "eth1") // crashed and came back before anybody noticed
	s.step("a", MemberUp{"b", 1})
	s.step("b", MemberUp{"a", 2})
	s.ask("x", 2, "b")
	s.pass(5 * time.Second)
	if len(s.formed) != 0 {
		t.Fatalf("formed with a process that is gone: %v", s.formed)
	}
	s.ask("x", 2, "a")
	if v := s.expectView("a", "b"); v.Members[0].Incarnation != 2 {
		t.Errorf("%+v", v)
	}
}

func TestAFailedBarrierLeadsToAnotherBallot(t *testing.T) {
	s := newStage(t, "a", "b")
	s.hold = true
	s.ask("x", 2, "a", "b")
	if len(s.entered) != 1 {
		t.Fatalf("entered: %v", s.entered)
	}
	var first uint64
	for id, nodes := range s.entered {
		first = id
		for _, node := range slices.Clone(nodes) {
			s.step(node, BarrierDone{id, errors.New("digests differ")})
		}
	}
	if len(s.gone) != 2 || !s.gone[0].Entered {
		t.Errorf("unregistered: %+v", s.gone)
	}
	s.hold = false
	s.pass(time.Second)
	if v := s.expectView("a", "b"); v.ID == first {
		t.Error("the failed ballot's id was used again")
	}
}

func TestBarriersThatKeepFailingFailTheCall(t *testing.T) {
	s := newStage(t, "a", "b")
	s.hold = true
	s.ask("x", 2, "a", "b")
	for range 60 {
		for id, nodes := range s.entered {
			delete(s.entered, id)
			for _, node := range nodes {
				s.step(node, BarrierDone{id, errors.New("digests differ")})
			}
		}
		s.pass(200 * time.Millisecond)
	}
	s.expectFailed("a", "digests differ")
	s.expectFailed("b", "digests differ")
}

func TestAHigherBallotReplacesALowerOne(t *testing.T) {
	s := newStage(t, "a", "b", "c")
	// b knows nothing of a's call, and proposes to c first.
	s.lose = func(from, to string, m Message) bool {
		_, announce := m.(*Announce)
		_, accept := m.(*Accept)
		return announce && from == "a" && to == "b" || accept && to == "b"
	}
	s.ask("x", 2, "b", "c")
	s.ask("x", 2, "a")
	s.lose = func(from, to string, m Message) bool {
		_, announce := m.(*Announce)
		return announce && from == "a" && to == "b"
	}
	s.pass(10 * time.Second)
	if len(s.formed) != 2 {
		t.Errorf("formed %v", s.formed)
	}
}
