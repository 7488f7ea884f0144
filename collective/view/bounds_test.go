package view

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestWrongCallsFailAtOnce(t *testing.T) {
	s := newStage(t, "a", "b")
	for _, e := range []Ask{{Name: "", Size: 2}, {Name: strings.Repeat("x", MaxName+1), Size: 2},
		{Name: "\xff", Size: 2}, {Name: "x"}, {Name: "x", Size: MaxMembers + 1}} {
		e.Call = 1
		delete(s.failed, "a")
		s.step("a", e)
		s.expectFailed("a", `node "a"`)
	}
	s.ask("x", 2, "a")
	s.step("a", Ask{Call: 2, Name: "x", Size: 2})
	s.expectFailed("a", "waits for this name already")
	for i := range MaxCalls {
		s.step("b", Ask{Call: uint64(i), Name: fmt.Sprint("name", i), Size: 2})
	}
	s.ask("one more", 2, "b")
	s.expectFailed("b", "1024 calls")
}

func TestMemoryOfOtherNodesAsksIsBounded(t *testing.T) {
	s := newStage(t, "a", "b")
	for i := range MaxKnownAsks + 100 {
		s.step("a", Received{"b", 1, &Announce{Name: fmt.Sprint(i), Ask: uint64(i + 1), Size: 2, TTL: time.Second}})
	}
	if c := s.cores["a"]; c.known.total() != MaxKnownAsks || len(c.names) != MaxKnownAsks {
		t.Errorf("%d asks, %d names", c.known.total(), len(c.names))
	}
	s.pass(2 * time.Second)
	if c := s.cores["a"]; c.known.total() != 0 || len(c.names) != 0 {
		t.Errorf("not forgotten: %d asks, %d names", c.known.total(), len(c.names))
	}
}

func TestDigestAndValidateCoverEveryField(t *testing.T) {
	good := func() *View {
		v := &View{Name: "x", Ballot: 3, Nonce: 9, Members: []Member{
			{"a", 1, 1, []Rail{{"eth0", "a:1"}}, Host{"h", "m1:0"}},
			{"b", 2, 5, []Rail{{"eth0", "b:1"}}, Host{"h", "m2:0"}}}}
		v.ID = WireID(v.Name, v.Ballot, v.Nonce)
		return v
	}
	if err := good().Validate(); err != nil {
		t.Fatal(err)
	}
	changes := map[string]func(*View){
		"name": func(v *View) { v.Name = "y" }, "ballot": func(v *View) { v.Ballot++ }, "nonce": func(v *View) { v.Nonce++ },
		"node": func(v *View) { v.Members[1].Node = "c" }, "incarnation": func(v *View) { v.Members[1].Incarnation++ },
		"ask": func(v *View) { v.Members[1].Ask++ }, "rail": func(v *View) { v.Members[1].Rails[0].Name = "ib0" },
		"range": func(v *View) { v.Uneven.Last++ }, "address": func(v *View) { v.Members[1].Rails[0].Addr = "b:2" }, "members": func(v *View) { v.Members = v.Members[:1] },
		"host": func(v *View) { v.Members[1].Host.Name = "i" }, "memory": func(v *View) { v.Members[0].Host.Memory = "" },
	}
	for what, change := range changes {
		v := good()
		if change(v); v.Digest() == good().Digest() {
			t.Errorf("the digest does not cover %s", what)
		}
	}
	for what, change := range map[string]func(*View){
		"id": func(v *View) { v.ID++ }, "order": func(v *View) { v.Members[0].Node = "z" }, "twins": func(v *View) { v.Members[0].Node = "b" },
		"rails": changes["rail"], "nobody": func(v *View) { v.Members = nil },
		"host": func(v *View) { v.Members[1].Host.Name = strings.Repeat("h", MaxHost+1) }, "ballot": func(v *View) { v.Ballot = 0 },
	} {
		v := good()
		if change(v); v.Validate() == nil {
			t.Errorf("wrong %s passes", what)
		}
	}
}

// Whatever a hostile node says, the core neither panics nor gives its own callers a wrong view.
func TestHostileMessagesDoNoHarm(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		s := newStage(t, "a", "b")
		s.ask("x", 2, "a")
		name := rapid.SampledFrom([]string{"x", "y", "", strings.Repeat("n", 200)})
		number := rapid.SampledFrom([]uint64{0, 1, 2, 7, MaxBallot, ^uint64(0)})
		id := func() uint64 {
			if n := s.cores["a"].names["x"]; n != nil && n.part != nil && rapid.Bool().Draw(rt, "true id") {
				return n.part.view.ID
			}
			return number.Draw(rt, "id")
		}
		node := rapid.SampledFrom([]string{"a", "b", "c", ""})
		for range rapid.IntRange(1, 30).Draw(rt, "messages") {
			var m Message
			switch rapid.IntRange(0, 7).Draw(rt, "kind") {
			case 0:
				m = &Announce{name.Draw(rt, "name"), number.Draw(rt, "ask"), rapid.IntRange(-1, 5000).Draw(rt, "size"),
					[]Rail{{"eth0", "x"}, {"eth1", "y"}}, Host{strings.Repeat("h", rapid.IntRange(0, 300).Draw(rt, "host")), "m"}, number.Draw(rt, "believed"), time.Duration(rapid.Int64().Draw(rt, "ttl")), SeqRange{}, node.Draw(rt, "lowest"),
					rapid.SliceOfN(node, 0, MaxSettings+1).Draw(rt, "settings")}
			case 1:
				m = &Withdraw{name.Draw(rt, "name"), number.Draw(rt, "ask"), rapid.Bool().Draw(rt, "absent")}
			case 2:
				v := &View{Name: name.Draw(rt, "name"), Ballot: number.Draw(rt, "ballot")}
				for range rapid.IntRange(0, 3).Draw(rt, "members") {
					v.Members = append(v.Members, Member{node.Draw(rt, "node"), 1, number.Draw(rt, "ask"), s.cores["a"].self.Rails, Host{"h", ""}})
				}
				v.ID = WireID(v.Name, v.Ballot, v.Nonce)
				m = &Propose{v}
			case 3:
				m = &Accept{name.Draw(rt, "name"), id()}
			case 4:
				m = &Refuse{name.Draw(rt, "name"), id(), Cause(rapid.IntRange(0, 9).Draw(rt, "cause")), number.Draw(rt, "ballot"), node.Draw(rt, "node"), "r"}
			case 5:
				m = &Abandon{name.Draw(rt, "name"), id(), name.Draw(rt, "node"), name.Draw(rt, "reason")}
			case 6:
				m = &Commit{name.Draw(rt, "name"), id()}
			case 7:
				m = &Reject{name.Draw(rt, "name"), number.Draw(rt, "ask"), number.Draw(rt, "mine"), node.Draw(rt, "node"), "r"}
			}
			s.step("a", Received{"b", 1, m})
			if v := s.formed["a"]; v != nil && (v.Rank("a") < 0 || v.Validate() != nil) {
				rt.Fatalf("formed %+v", v)
			}
		}
		s.step("a", Tick{})
	})
}
