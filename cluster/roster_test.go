package cluster

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/polyrail/polyrail/test/bubble"
)

func newTestRoster() *roster {
	return newRoster(Member{Node: "me", Incarnation: 5, Addr: "10.0.0.1:1"}, func() {})
}

func settled(r *roster) string { return settledAt(r, time.Unix(0, 0)) }

func settledAt(r *roster, now time.Time) string {
	var s []string
	for _, e := range r.settle(now) {
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

// Some of many nodes are always late to answer gossip's probes.
func TestAFailureAmongManyNodesIsToldAfterAGrace(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		told := make(chan struct{}, 10*ManyNodes)
		r := newRoster(Member{Node: "me", Incarnation: 5}, func() { told <- struct{}{} })
		one := func(i int) Member { return Member{Node: fmt.Sprint("n", i), Incarnation: 1} }
		for i := range ManyNodes {
			r.up(one(i))
		}
		settledAt(r, time.Now())
		for len(told) > 0 {
			<-told
		}
		for i := range 3 {
			r.down(one(i))
		}
		r.up(one(1))
		r.goodbye(one(2))
		if got := settledAt(r, time.Now()); got != "n2#1 left" {
			t.Errorf("at once: %q, want the farewell alone", got)
		}
		start := time.Now()
		for got := ""; got != "n0#1 failed"; got = settledAt(r, time.Now()) {
			if got != "" || time.Since(start) > time.Minute {
				t.Fatalf("after %v: %q, want the failure of who has not come back", time.Since(start), got)
			}
			<-told
		}
		if grace := time.Since(start); grace < graceUnit {
			t.Errorf("told after %v", grace)
		}
		if len(r.doubted) != 0 {
			t.Errorf("still doubted: %v", r.doubted)
		}
	})
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

// Two processes have one name. Which one goes is settled by their clocks, and by who stays.
func TestANodeGivesWayToWhoWasThereFirst(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		g := &Gossip{self: Member{Node: "me", Incarnation: 5}, later: map[string]time.Time{},
			log: slog.New(slog.DiscardHandler)}
		earlier, later := Member{Node: "me", Incarnation: 4}, Member{Node: "me", Incarnation: 6}
		if !g.yields(earlier, false) || g.yields(earlier, true) {
			t.Error("who started earlier wins against whoever has not settled, and nobody else")
		}
		if g.yields(later, true); len(g.later) != 0 {
			t.Error("who has settled waits for nobody to go")
		}
		began := time.Now()
		for ; time.Since(began) < 4*settleTime; <-time.After(settleTime / 4) {
			age := time.Since(began)
			want := settleTime < age && age < 2*settleTime // it has stayed: it had settled before
			if got := g.yields(later, age > settleTime); got != want {
				t.Errorf("%v after who started later was seen: yields %v", age, got)
			}
		}
		for i := range 2 * maxRefused {
			g.yields(Member{Node: "me", Incarnation: uint64(10 + i)}, false)
		}
		if len(g.later) > maxRefused {
			t.Errorf("%d processes are remembered", len(g.later))
		}
	})
}
