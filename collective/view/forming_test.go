package view

import (
	"fmt"
	"testing"
	"time"
)

func TestNodesThatAskForOneNameFormAView(t *testing.T) {
	s := newStage(t, "a", "b", "c", "d")
	s.ask("train", 3, "c", "a")
	if len(s.formed) != 0 {
		t.Fatal("two of three formed a view")
	}
	s.ask("train", 3, "b")
	v := s.expectView("a", "b", "c")
	if v.ID == 0 || v.ID != WireID("train", v.Ballot, 'a') {
		t.Errorf("wire id %x", v.ID)
	}
}

func TestTheLowestNodesGoFirstAndTheOthersFormTheNextView(t *testing.T) {
	s := newStage(t, "a", "b", "c", "d")
	s.hold = true
	s.ask("x", 2, "a", "b", "c", "d")
	for id, nodes := range s.entered {
		for _, node := range nodes {
			s.step(node, BarrierDone{id, nil})
		}
	}
	s.hold = false
	s.pass(5 * time.Second)
	if s.formed["a"] != s.formed["b"] || s.formed["c"] == nil || s.formed["c"] != s.formed["d"] || s.formed["a"].ID == s.formed["c"].ID {
		t.Errorf("formed %v", s.formed)
	}
}

func TestAViewOfOneNeedsNobody(t *testing.T) {
	s := newStage(t, "a", "b")
	s.ask("x", 1, "b")
	s.expectView("b")
}

func TestDifferentSizesUnderOneNameFailBothCallsNamingBoth(t *testing.T) {
	for name, together := range map[string]bool{"together": true, "one after the other": false} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t, "a", "b")
			s.step("a", Ask{Call: 1, Name: "x", Size: 2, Nonce: 1})
			if !together {
				s.run()
			}
			s.step("b", Ask{Call: 1, Name: "x", Size: 3, Nonce: 1})
			s.run()
			for _, node := range []string{"a", "b"} {
				s.expectFailed(node, `node "a"`, `node "b"`, "asked for", "2", "3")
			}
		})
	}
}

func TestAnOldAskOfAnotherSizeFailsNobody(t *testing.T) {
	s := newStage(t, "a", "b")
	// b's call has ended; its announcement comes late.
	s.step("a", Ask{Call: 1, Name: "x", Size: 2, Nonce: 1})
	s.step("a", Received{"b", 1, &Announce{Name: "x", Ask: 1, Size: 7, Rails: s.cores["b"].self.Rails, TTL: time.Second}})
	s.run()
	if s.failed["a"] != nil {
		t.Fatalf("failed: %v", s.failed["a"])
	}
	s.pass(3 * time.Second)
	s.cores["b"].asked = 1 // b's next call is another one
	s.ask("x", 2, "b")
	s.pass(time.Second)
	s.expectView("a", "b")
}

func TestAMissingRailFailsEveryCallAndIsNamed(t *testing.T) {
	s := newStage(t, "a", "b", "c")
	s.add("b", 1, "eth0") // without eth1
	s.introduce()
	for _, node := range s.order {
		if node != "b" {
			s.step("b", MemberUp{node, 1})
		}
	}
	s.ask("x", 3, "a", "b", "c")
	for _, node := range s.order {
		s.expectFailed(node, `node "b"`, `rail "eth1"`, `node "a"`)
	}
}

func TestARailsIndexIsTheSameWhateverTheConfiguredOrder(t *testing.T) {
	c, err := New("a", 1, []Rail{{"z", "1"}, {"b", "2"}, {"k", "3"}}, Host{}, DefaultTiming())
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(c.self.Rails); got != "[{b 2} {k 3} {z 1}]" {
		t.Error(got)
	}
	if _, err := New("a", 1, []Rail{{"z", "1"}, {"z", "2"}}, Host{}, DefaultTiming()); err == nil {
		t.Error("two rails of one name were accepted")
	}
}

func TestNobodyEntersTheBarrierBeforeAllPairsAreUp(t *testing.T) {
	s := newStage(t, "a", "b", "c")
	down := true
	s.broken = func(a, b string) string {
		if down && a == "b" && b == "c" {
			return "connection refused"
		}
		return ""
	}
	s.ask("x", 3, "a", "b", "c")
	s.pass(time.Second)
	if len(s.entered) != 0 {
		t.Fatalf("entered: %v", s.entered)
	}
	down = false
	s.pass(2 * time.Second)
	s.expectView("a", "b", "c")
}

func TestOfTwoThatCannotReachEachOtherTheHigherOneFails(t *testing.T) {
	s := newStage(t, "a", "b", "c")
	s.broken = func(a, b string) string {
		if a == "b" && b == "c" || a == "c" && b == "b" {
			return "no route to host"
		}
		return ""
	}
	s.ask("x", 3, "a", "b", "c")
	s.pass(4 * time.Second)
	if len(s.failed) != 0 {
		t.Fatalf("failed too early: %v", s.failed)
	}
	s.pass(4 * time.Second)
	s.expectFailed("c", `node "b"`, "no route to host")
	if s.failed["a"] != nil || s.failed["b"] != nil {
		t.Fatalf("failed: %v", s.failed)
	}
	// A spare takes its place.
	s.order = append(s.order, "d")
	s.add("d", 1, "eth0", "eth1")
	s.introduce()
	s.ask("x", 3, "d")
	s.pass(5 * time.Second)
	s.expectView("a", "b", "d")
}

func TestASilentMemberIsGivenUpAndNamed(t *testing.T) {
	s := newStage(t, "a", "b", "c")
	s.lose = func(from, to string, m Message) bool {
		_, proposal := m.(*Propose)
		return proposal && to == "c"
	}
	s.ask("x", 3, "a", "b", "c")
	s.pass(12 * time.Second)
	s.expectFailed("c", `"a"`, "no answer")
	s.step("a", Cancel{1, "x", "deadline exceeded"})
	s.run()
	s.expectFailed("a", "deadline exceeded", "2 of 3 nodes", "a, b", `node "c"`)
}

func TestALostCommitIsRepeated(t *testing.T) {
	s := newStage(t, "a", "b")
	lost := 0
	s.lose = func(_, _ string, m Message) bool {
		if _, ok := m.(*Commit); ok && lost == 0 {
			lost++
			return true
		}
		return false
	}
	s.ask("x", 2, "a", "b")
	s.pass(300 * time.Millisecond)
	s.expectView("a", "b")
	if lost != 1 {
		t.Error("no commit was lost")
	}
}

func TestAProposerWaitsNotForAMemberThatLeftBeforeTheCommit(t *testing.T) {
	s := newStage(t, "a", "b")
	s.lose = func(_, _ string, m Message) bool { // b cancels; a hears only its answer to the commit
		switch m := m.(type) {
		case *Commit:
			if s.failed["b"] == nil {
				s.step("b", Cancel{1, "x", "canceled"})
			}
		case *Withdraw:
			return true
		case *Refuse:
			return m.Cause == NotAsking
		}
		return false
	}
	s.ask("x", 2, "a", "b")
	s.expectFailed("b", "canceled")
	if len(s.gone) != 2 || s.gone[1].View.Rank("a") != 0 || !s.gone[1].Entered {
		t.Errorf("unregistered: %+v", s.gone)
	}
}

// Eth1 of node b was absent when b asked, and comes while a proposal with its old addresses is on
// the way.
func TestANodeWhoseAddressesChangeIsInTheNextViewWithThem(t *testing.T) {
	s := newStage(t)
	s.order = []string{"a", "b"}
	s.add("a", 1, "eth0", "eth1")
	s.cores["b"] = func() *Core {
		c, err := New("b", 1, []Rail{{"eth1", ""}, {"eth0", "b/eth0"}}, Host{}, DefaultTiming())
		if err != nil {
			t.Fatal(err)
		}
		return c
	}()
	s.introduce()
	s.lose = func(from, to string, m Message) bool {
		if _, ok := m.(*Propose); ok {
			s.step("b", Moved{[]Rail{{"eth1", "b/eth1"}, {"eth0", "b/eth0"}}})
			s.lose = nil
		}
		return false
	}
	s.ask("train", 2, "a", "b")
	s.pass(5 * time.Second)
	v := s.expectView("a", "b")
	if got := v.Members[1].Rails; got[0] != (Rail{"eth0", "b/eth0"}) || got[1] != (Rail{"eth1", "b/eth1"}) {
		t.Errorf("rails of b are %v", got)
	}
}

// A proposal is repeated, and meets its member after the barrier: that one has formed the view, and
// the proposer has yet to hear of its own barrier's end.
func TestAProposalThatComesLateEndsNoBarrier(t *testing.T) {
	s := newStage(t, "a", "b")
	s.hold = true
	var late *Propose
	s.lose = func(_, _ string, m Message) bool {
		if p, ok := m.(*Propose); ok {
			late = p
		}
		return false
	}
	s.ask("x", 2, "a", "b")
	for id := range s.entered {
		s.step("b", BarrierDone{id, nil})
		s.step("b", Received{"a", 1, late})
		s.run()
		s.step("a", BarrierDone{id, nil})
	}
	s.run()
	s.expectView("a", "b")
}
