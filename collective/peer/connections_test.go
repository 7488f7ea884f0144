package peer

import (
	"slices"

	"pgregory.net/rapid"
)

// This file is how connections of the model begin and end.

// connect makes a new connection; side 0 dials. The reply to the hello may get lost.
func (w *world) connect(rail int, lost bool) {
	dialer, acceptor := w.sides[0], w.sides[1]
	if e := dialer.ends[rail]; e != nil && e.up {
		return
	}
	acceptor.down(rail) // superseded
	g := acceptor.core.Propose(rail, dialer.core.Propose(rail, 0))
	st := &stream{broken: lost}
	attach := func(s *side) {
		ok := false
		s.do(func(fx *Effects[*frame]) { ok = s.core.Connected(rail, g, fx) })
		if !ok {
			w.t.Fatalf("side %d refuses generation %d", s.me, g)
		}
		s.ends[rail] = &end{rail: rail, generation: g, stream: st, up: true}
	}
	attach(acceptor)
	if !lost {
		attach(dialer)
	}
}

// down: this side sees the end of a connection.
func (s *side) down(rail int) {
	if e := s.ends[rail]; e != nil && e.up {
		s.retire(rail)
		s.do(func(fx *Effects[*frame]) { s.core.Down(rail, e.generation, fx) })
	}
}

// retire closes a connection on this side: it takes part in nothing any more.
func (s *side) retire(rail int) {
	e := s.ends[rail]
	e.up, e.stream.broken = false, true
	e.late, e.stream.way = e.stream.way[1-s.me], [2][]message{}
	s.acks &^= 1 << rail
	s.armed &^= 1 << rail
	s.woken &^= 1 << rail
	s.old, s.past = append(s.old, e), append(s.past, e)
}

// quiesce: the reader and the writer of the oldest closed connection have ended.
func (s *side) quiesce() {
	e := s.old[0]
	s.old = s.old[1:]
	for _, f := range e.held {
		f.held = false
	}
	e.held, e.late = nil, nil
	s.do(func(fx *Effects[*frame]) { s.core.Quiesced(e.rail, e.generation, fx) })
}

// lose: the other side is lost, whether or not its connections were closed. No writer holds frames.
func (s *side) lose() {
	closed := rapid.Bool().Draw(s.w.t, "closed")
	for r, e := range s.ends {
		switch {
		case closed:
			s.down(r)
		case s.holds(r):
			s.letGo(e)
		}
	}
	for len(s.old) > 0 {
		s.quiesce()
	}
	s.losing = true
	s.do(func(fx *Effects[*frame]) {
		s.core.Lose(fx)
		for r, e := range s.ends {
			if s.core.Up(r) {
				s.w.t.Fatalf("rail %d is up, and its node is lost", r)
			}
			if e != nil {
				e.up = false
			}
		}
	})
}

// late: the writer and the timer of a connection that was closed have not heard of that. Nor does
// anything come of what is told once more after it was quiesced.
func (s *side) late(e *end) {
	_, _, ok := s.core.Take(e.rail, e.generation)
	if ok || s.core.NextBytes(e.rail, e.generation) != 0 {
		s.w.t.Fatalf("rail %d hands out frames for generation %d, which is closed", e.rail, e.generation)
	}
	s.do(func(fx *Effects[*frame]) {
		s.core.Written(e.rail, e.generation, fx)
		s.core.AckTimer(e.rail, e.generation, fx)
		s.core.Down(e.rail, e.generation, fx)
		s.core.Farewell(e.rail, e.generation, fx)
		s.check(s.core.Acked(e.rail, e.generation, 1<<40, fx))
		if !slices.Contains(s.old, e) {
			s.core.Received(e.rail, e.generation, 1, true, fx)
			s.core.Quiesced(e.rail, e.generation, fx)
		}
		if !fx.None() {
			s.w.t.Fatalf("what came late of a closed generation asks for %+v", fx)
		}
	})
}
