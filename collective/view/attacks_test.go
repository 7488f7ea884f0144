package view

import (
	"fmt"
	"testing"
	"time"
)

// The tests in this file say what an attacker can say who is no member, or one that lies.

func TestBallotsDoNotJump(t *testing.T) {
	s := newStage(t, "a", "b")
	far := &View{Name: "x", Ballot: MaxBallot, Nonce: 1, Members: []Member{{Node: "b", Incarnation: 1, Ask: 1, Rails: s.cores["a"].self.Rails}}}
	far.ID = WireID(far.Name, far.Ballot, far.Nonce)
	for _, m := range []Message{
		&Refuse{Name: "x", ID: 1, Cause: Outbid, Ballot: MaxBallot, Reason: "so there"},
		&Propose{View: far},
	} {
		for range 100 {
			s.step("a", Received{"b", 1, m})
		}
		if clock := s.cores["a"].clock; clock > 200*maxBallotJump {
			t.Errorf("%T: the clock stands at %d", m, clock)
		}
	}
	s.ask("x", 2, "a", "b")
	s.pass(10 * time.Second)
	s.expectView("a", "b")
}

// A node that comes into an old cluster finds it far ahead, and takes part all the same.
func TestANewNodeCatchesUpWithTheBallots(t *testing.T) {
	s := newStage(t, "a", "b")
	s.cores["a"].clock = 5 * maxBallotJump
	s.ask("x", 2, "a", "b")
	s.pass(10 * time.Second)
	s.expectView("a", "b")
}

func TestARejectionNamesAnAskThatNobodyGuesses(t *testing.T) {
	s := newStage(t, "a", "b")
	s.step("a", Ask{Call: 1, Name: "x", Size: 2, Nonce: 0xdeadbeef12345678})
	for ask := range uint64(1000) {
		s.step("a", Received{"b", 1, &Reject{Name: "x", Ask: ask, Node: "b", Reason: "because"}})
	}
	if err := s.failed["a"]; err != nil {
		t.Errorf("the call failed: %v", err)
	}
}

func TestAsksInStrangersNamesTakeNoRoom(t *testing.T) {
	s := newStage(t, "a", "b")
	for i := range MaxKnownAsks + 100 {
		s.step("a", Received{fmt.Sprint("made-up", i), 1,
			&Announce{Name: fmt.Sprint(i), Ask: 1, Size: 2, TTL: time.Minute}})
	}
	if known := s.cores["a"].known.total(); known > MaxStrangers {
		t.Errorf("%d asks of strangers are remembered", known)
	}
	s.ask("x", 2, "a", "b")
	s.pass(time.Second)
	s.expectView("a", "b")
}

// A call is announced to members alone, and it remembers those alone.
func TestACallRemembersNoStrangers(t *testing.T) {
	s := newStage(t, "a", "b")
	told := 0
	s.lose = func(from, to string, m Message) bool {
		if _, lives := s.cores[from].members[to]; !lives {
			told++
		}
		return false
	}
	s.ask("x", 3, "a", "b")
	for i := range 20000 {
		s.step("a", Received{fmt.Sprint("made-up", i), 1,
			&Announce{Name: "x", Ask: 1, Size: 3, Rails: s.cores["a"].self.Rails, TTL: time.Millisecond}})
		if i%500 == 0 {
			s.pass(10 * time.Millisecond)
		}
	}
	if heard := s.cores["a"].names["x"].call.heard; len(heard) != 1 || told > 0 {
		t.Errorf("%d are remembered, %d strangers were told", len(heard), told)
	}
	// A member that goes is forgotten, and told again when it comes back.
	s.step("a", MemberDown{Node: "b", Incarnation: 1})
	if heard := s.cores["a"].names["x"].call.heard; len(heard) != 0 {
		t.Errorf("%d are remembered", len(heard))
	}
	s.add("c", 1, "eth0", "eth1")
	s.order = append(s.order, "c")
	s.ask("x", 3, "c")
	s.introduce()
	s.pass(10 * time.Second)
	s.expectView("a", "b", "c")
}

func TestOneMembersAsksTakeNoRoomOfOthers(t *testing.T) {
	s := newStage(t, "a", "b", "c")
	for i := range MaxKnownAsks {
		s.step("a", Received{"b", 1, &Announce{Name: fmt.Sprint(i), Ask: uint64(i + 1), Size: 2, TTL: time.Minute}})
	}
	s.ask("x", 2, "a", "c")
	s.pass(time.Second)
	s.expectView("a", "c")
}
