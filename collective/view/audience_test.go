package view

import (
	"fmt"
	"testing"
	"time"
)

// crowded is a stage of so many nodes.
func crowded(t *testing.T, n int) (*stage, []string) {
	nodes := make([]string, n)
	for i := range nodes {
		nodes[i] = fmt.Sprintf("n%03d", i)
	}
	return newStage(t, nodes...), nodes
}

// Nodes that share a processor answer late when all of them ask at once. Who then told more and more
// others would make that worse: what is told stays near the few lowest times the number of nodes.
func TestManyWhoAskAtOnceTellFew(t *testing.T) {
	const n = 128
	for _, late := range []time.Duration{20 * time.Millisecond, time.Second} {
		s, nodes := crowded(t, n)
		told := 0
		type letter struct {
			at       time.Time
			from, to string
			m        Message
		}
		var letters []letter
		s.lose = func(from, to string, m Message) bool {
			if _, ok := m.(*Announce); !ok {
				return false
			}
			told++
			letters = append(letters, letter{s.now.Add(late), from, to, m})
			return true
		}
		began := s.now
		s.ask("train", n, nodes...)
		for len(s.formed) < n && s.now.Sub(began) < 3*late {
			s.pass(late / 10)
			for len(letters) > 0 && !letters[0].at.After(s.now) {
				l := letters[0]
				letters = letters[1:]
				s.step(l.to, Received{l.from, 1, l.m})
			}
		}
		s.expectView(nodes...)
		if most := 3 * n * announceFew; told > most {
			t.Errorf("%d announcements that take %v, want at most %d", told, late, most)
		}
	}
}

// Of a large communicator the lowest who shrinks it connects to all that it misses, and later any
// other one to the lowest, as long as it knows none below itself that shrinks.
func TestWhoShrinksMissesMembers(t *testing.T) {
	const n = 40
	timing := DefaultTiming()
	for _, c := range []struct {
		caller string
		after  time.Duration
		missed int
	}{
		{"n000", timing.Missed, n - 1},
		{"n020", timing.Missed + timing.announceOf(n), announceFew},
		{"n003", timing.Missed + timing.announceOf(n), 3},
	} {
		s, nodes := crowded(t, n)
		s.ask("train", n, nodes...)
		v := s.expectView(nodes...)
		s.shrink(v, nil, c.caller)
		name, core := ShrinkName(v.ID), s.cores[c.caller]
		s.pass(c.after - time.Millisecond)
		s.step(c.caller, Tick{})
		if got := core.Awaited(name); len(got) > 0 {
			t.Errorf("%s misses %v after %v", c.caller, got, c.after-time.Millisecond)
		}
		if at, ok := core.Wake(); !ok || at.After(s.now.Add(time.Millisecond)) {
			t.Errorf("%s is to be woken at %v, %v; it is %v", c.caller, at, ok, s.now)
		}
		s.pass(time.Millisecond)
		s.step(c.caller, Tick{})
		if got := core.Awaited(name); len(got) != c.missed || got[0] == c.caller {
			t.Errorf("%s misses %v after %v, want %d", c.caller, got, c.after, c.missed)
		}
	}
}

// Who knows of somebody below itself leaves it to that one.
func TestWhoIsNotTheLowestMissesNobody(t *testing.T) {
	const n = 40
	s, nodes := crowded(t, n)
	s.ask("train", n, nodes...)
	v := s.expectView(nodes...)
	s.shrink(v, nil, "n003", "n020")
	s.pass(5 * time.Second)
	s.step("n020", Tick{})
	if got := s.cores["n020"].Awaited(ShrinkName(v.ID)); len(got) > 0 {
		t.Errorf("misses %v", got)
	}
}

// Nodes that ask before they have heard of all others refer each other to the lowest.
func TestManyWhoHaveNotHeardOfAllFormSoon(t *testing.T) {
	const n = 128
	timing := DefaultTiming()
	for seed := range int64(3) {
		w := newShrinkWorldIn(newWorldOf(n, seed+1, nil)) // news of members take their way, like all else
		w.rough = false
		for _, node := range w.nodes {
			w.ask(node, "x", n)
		}
		w.run(w.world.now.Add(2 * timing.announceOf(n)))
		if len(w.now) != n {
			t.Errorf("seed %d: %d of %d have formed a view", seed+1, len(w.now), n)
		}
	}
}
