package cluster

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

func newTestRoster() *roster {
	return newRoster(Member{Node: "me", Incarnation: 5, Addr: "10.0.0.1:1"}, func() {})
}

func settled(r *roster) string {
	var s []string
	for _, e := range r.settle(time.Unix(0, 0)) {
		s = append(s, fmt.Sprintf("%s#%d %v", e.Member.Node, e.Member.Incarnation, e.Kind))
	}
	return strings.Join(s, ", ")
}

func TestRosterReportsOneProcessOfANodeAtATime(t *testing.T) {
	r := newTestRoster()
	first := Member{Node: "a", Incarnation: 1, Addr: "10.0.0.2:1"}
	second := Member{Node: "a", Incarnation: 2, Addr: "10.0.0.2:2"}
	steps := []struct {
		do   func()
		want string
	}{
		{func() { r.up(first) }, "a#1 joined"},
		{func() { r.up(first) }, ""},
		{func() { r.up(second) }, ""}, // a restart, or a conflict: it waits
		{func() { r.down(first) }, "a#1 failed, a#2 joined"},
		{func() { r.up(first) }, ""},
		{func() { r.goodbye(second) }, "a#2 left, a#1 joined"},
		{func() { r.down(second) }, ""},
		{func() { r.down(first); r.up(first) }, ""}, // back before anybody was told
		{func() { r.down(first) }, "a#1 failed"},
	}
	for i, s := range steps {
		s.do()
		if got := settled(r); got != s.want {
			t.Fatalf("step %d: got %q, want %q", i, got, s.want)
		}
	}
	if len(r.farewell) != 0 || len(r.living) != 0 || len(r.reported) != 0 {
		t.Errorf("left over: %v %v %v", r.farewell, r.living, r.reported)
	}
}

func TestAProcessAtTheAddressOfAnOlderOneProvesItDead(t *testing.T) {
	r := newTestRoster()
	r.up(Member{Node: "a", Incarnation: 1, Addr: "10.0.0.2:1"})
	settled(r)
	r.up(Member{Node: "a", Incarnation: 2, Addr: "10.0.0.2:1"})
	if got := settled(r); got != "a#1 failed, a#2 joined" {
		t.Error(got)
	}
}

// Somebody says goodbye in a process's name. The process takes it back, and fails some time later.
func TestAGoodbyeThatIsTakenBackIsForgotten(t *testing.T) {
	r := newTestRoster()
	a := Member{Node: "a", Incarnation: 1, Addr: "10.0.0.2:1"}
	r.up(a)
	settled(r)
	r.goodbye(a)
	r.up(a) // before anybody was told
	if got := settled(r); got != "" || len(r.farewell) != 0 {
		t.Errorf("events %q, farewells %v", got, r.farewell)
	}
	r.down(a)
	if got := settled(r); got != "a#1 failed" || len(r.lost) != 1 {
		t.Errorf("events %q, searched for %v", got, r.lost)
	}
}

// Goodbyes of processes that were never members are as many as somebody likes.
func TestAGoodbyeOfWhoWasNoMemberIsForgotten(t *testing.T) {
	r := newTestRoster()
	brief := Member{Node: "a", Incarnation: 1, Addr: "10.0.0.2:1"}
	rival := Member{Node: "me", Incarnation: 4, Addr: "10.0.0.9:1"}
	for _, m := range []Member{brief, rival} {
		r.up(m)
		r.goodbye(m) // before anybody was told
	}
	if got := settled(r); got != "" || len(r.farewell) != 0 {
		t.Errorf("events %q, farewells %v", got, r.farewell)
	}
}

func TestARivalIsNoMember(t *testing.T) {
	r := newTestRoster()
	r.up(Member{Node: "me", Incarnation: 4, Addr: "10.0.0.9:1"})
	r.up(Member{Node: "me", Incarnation: 5, Addr: "10.0.0.1:1"}) // ourselves
	if got := settled(r); got != "" || len(r.rivals()) != 1 || r.rivals()[0].Incarnation != 4 {
		t.Errorf("events %q, rivals %v", got, r.rivals())
	}
}

func TestFailedMembersAreSearchedForAWhile(t *testing.T) {
	r := newTestRoster()
	seeds := []string{"10.0.0.1:1", "10.0.0.2:1", "10.0.0.7:1"} // ourselves, a, nobody
	r.up(Member{Node: "a", Incarnation: 1, Addr: "10.0.0.2:1"})
	r.up(Member{Node: "b", Incarnation: 1, Addr: "10.0.0.3:1"})
	settled(r)
	r.down(Member{Node: "b", Incarnation: 1})
	settled(r)
	if got := r.missing(seeds, time.Unix(1, 0)); !slices.Equal(got, []string{"10.0.0.7:1", "10.0.0.3:1"}) {
		t.Error(got)
	}
	if got := r.missing(nil, time.Unix(0, 0).Add(lostMemory+1)); len(got) != 0 {
		t.Error(got)
	}
	for i := range 2 * maxLost {
		m := Member{Node: fmt.Sprint("n", i), Incarnation: 1, Addr: fmt.Sprintf("10.1.0.1:%d", i+1)}
		r.up(m)
		settled(r)
		r.down(m)
		settled(r)
	}
	if len(r.lost) > maxLost {
		t.Errorf("%d lost members are remembered", len(r.lost))
	}
}
