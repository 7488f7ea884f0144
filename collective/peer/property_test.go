package peer

import (
	"testing"

	"pgregory.net/rapid"
)

func (w *world) step() {
	t := w.t
	s := w.sides[rapid.SampledFrom([]int{0, 1}).Draw(t, "side")]
	rail := w.rail()
	switch rapid.SampledFrom([]string{"send", "send", "write", "write", "written", "receive", "receive", "break", "down",
		"quiesce", "connect", "connect", "give", "grant", "timers", "revoke",
		"late", "late"}).Draw(t, "event") {
	case "send":
		s.send()
	case "write": // its writer may look without being woken
		s.woken.Add(rail)
		s.write(rail)
	case "written":
		if e := s.ends[rail]; e != nil && e.up {
			s.letGo(e)
		}
	case "receive":
		s.receive(rail)
	case "break":
		if e := s.ends[rail]; e != nil {
			e.stream.broken = true
			for i := range e.stream.way {
				e.stream.way[i] = e.stream.way[i][:rapid.IntRange(0, len(e.stream.way[i])).Draw(t, "left")]
			}
		}
	case "down":
		s.down(rail)
	case "quiesce":
		if len(s.old) > 0 {
			s.quiesce()
		}
	case "connect":
		w.connect(rail, rapid.IntRange(0, 4).Draw(t, "reply lost") == 0)
	case "give":
		if len(s.owed) > 0 {
			s.giveBack()
		}
	case "grant":
		if len(s.wanted) > 0 {
			s.grant()
		}
	case "timers":
		s.timers()
	case "revoke":
		s.revoke()
	case "late":
		if n := len(s.old); n > 0 {
			s.read(s.old[n-1], &s.old[n-1].late)
		}
		if n := len(s.past); n > 0 {
			s.late(s.past[rapid.IntRange(0, n-1).Draw(t, "past")])
		}
	}
}

// settle lets everything happen that has to, without further faults.
func (w *world) settle() {
	for range 100_000 {
		progress := false
		for _, s := range w.sides {
			for r := range w.cfg.Rails {
				if e := s.ends[r]; e != nil && e.up && e.stream.broken {
					s.down(r)
					progress = true
				}
				for s.write(r) {
					progress = true
				}
				if s.holds(r) {
					s.letGo(s.ends[r])
					progress = true
				}
				progress = s.receive(r) || progress
			}
			for len(s.old) > 0 {
				s.quiesce()
				progress = true
			}
			for len(s.owed) > 0 {
				s.giveBack()
				progress = true
			}
			for len(s.wanted) > 0 {
				s.grant()
				progress = true
			}
			progress = progress || s.armed != 0
			s.timers()
		}
		for r := range w.cfg.Rails {
			if e := w.sides[0].ends[r]; e == nil || !e.up {
				w.connect(r, false)
				progress = true
			}
		}
		if !progress {
			return
		}
	}
	w.t.Fatal("the two sides never come to rest")
}

func TestEveryFrameArrivesOnceWhateverBreaks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t)
		w.run()
		w.settle()
		for _, s := range w.sides {
			s.checkIdle()
			if s.core.used != s.core.returned {
				t.Fatalf("side %d: spent %d bytes of credit, got %d back", s.me, s.core.used, s.core.returned)
			}
		}
		arrived := len(w.sides[0].arrived) + len(w.sides[1].arrived)
		if lacking := w.sent - arrived; lacking > len(w.sides[0].revoked)+len(w.sides[1].revoked) {
			t.Fatalf("%d of %d frames never arrived", lacking, w.sent)
		}
	})
}

func TestALostNodeLeavesNoFrameUnreleased(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t)
		w.run()
		for _, s := range w.sides {
			s.lose()
			s.checkIdle()
		}
	})
}

func (w *world) run() {
	for r := range w.cfg.Rails {
		w.connect(r, false)
	}
	for range rapid.SampledFrom([]int{20, 200, 500}).Draw(w.t, "steps") {
		w.step()
	}
}

func (s *side) checkIdle() {
	if n := len(s.pending); n != 0 || !s.core.Idle() {
		s.w.t.Fatalf("side %d: %d frames were never released, idle %v", s.me, n, s.core.Idle())
	}
	if len(s.core.starving) != 0 || s.core.Unsettled() != 0 {
		s.w.t.Fatalf("side %d: %d operations starve, %d generations are unsettled",
			s.me, len(s.core.starving), s.core.Unsettled())
	}
}
