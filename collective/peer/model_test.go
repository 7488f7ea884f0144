package peer

import (
	"time"

	"pgregory.net/rapid"
)

// The model: two cores, and between them connections that break at any moment, seen by either
// side at any time, or by one alone. It checks that every frame arrives exactly once unless
// it was revoked, is released exactly once and never while a writer holds it, that credit is
// conserved, and that limits are kept. A reader and a writer may be at work for a while after their
// connection was closed. A writer that found nothing to write sleeps until it is woken.

// frame is what the model sends: data, or one of the runtime's own.
type frame struct {
	id        int // of data, from 1
	statement *Statement
	want      *Operation
	grant     *Operation
	held      bool // a writer reads it
}

// message is what travels on a connection.
type message struct {
	number      uint64 // 0: a bare acknowledgement
	item        Item[*frame]
	ack, credit uint64
}

// stream is a connection. When it breaks, what is on the way is lost.
type stream struct {
	broken bool
	way    [2][]message // by sending side
}

// end is one side's end of a connection.
type end struct {
	rail       int
	generation uint64
	stream     *stream
	up         bool
	read       uint64    // numbered frames
	held       []*frame  // by the writer
	late       []message // after the end: what the reader may still read until it is quiesced
}

type side struct {
	w       *world
	me      int
	core    *Core[*frame]
	ends    []*end // by rail; nil: none was made yet
	old     []*end // down and not quiesced
	past    []*end // down, all of them
	pending map[int]Item[*frame]
	revoked map[int]bool
	arrived map[int]int // from the other side
	owed    []int       // credit to be given back
	wanted  []Operation // by the other side
	acks    Rails
	armed   Rails
	woken   Rails // what their writers have not looked for since
	losing  bool  // the other side is lost
}

type world struct {
	t     *rapid.T
	cfg   Config
	sides [2]*side
	sent  int

	now, pause time.Duration // how late it is, and what passes from event to event
}

func newWorld(t *rapid.T) *world {
	w := &world{t: t}
	credit := rapid.SampledFrom([]uint64{0, 10, 70, 1000}).Draw(t, "credit")
	w.cfg = Config{Rails: rapid.SampledFrom([]int{1, 2, 3, 3}).Draw(t, "rails"), InFlightBytes: 100,
		AckBytes: 50, CreditBytes: 20, GivenBytes: int(credit), AckDelay: 1}
	w.pause = rapid.SampledFrom([]time.Duration{0, 1, time.Millisecond, time.Second}).Draw(t, "pause")
	for i := range w.sides {
		s := &side{w: w, me: i, core: New[*frame](w.cfg), ends: make([]*end, w.cfg.Rails),
			pending: map[int]Item[*frame]{}, revoked: map[int]bool{}, arrived: map[int]int{}}
		w.sides[i] = s
		s.do(func(fx *Effects[*frame]) { s.core.Limit(credit, fx) })
	}
	return w
}

// rail is any, each as often: of a range rapid draws mostly small numbers.
func (w *world) rail() int {
	return rapid.SampledFrom([]int{0, 1, 2}[:w.cfg.Rails]).Draw(w.t, "rail")
}

// do calls the core and carries out what it asks for.
func (s *side) do(call func(fx *Effects[*frame])) {
	var fx Effects[*frame]
	s.w.now += s.w.pause
	s.core.At(s.w.now, 1)
	call(&fx)
	for i := 0; i < len(fx.Wants); i++ {
		op := fx.Wants[i].Op
		s.core.Send(Item[*frame]{Frame: &frame{want: &op}, Bytes: 1, Ahead: true}, &fx)
	}
	for i := 0; i < len(fx.Statements); i++ {
		st := fx.Statements[i]
		s.core.Send(Item[*frame]{Frame: &frame{statement: &st}, Bytes: 1, Ahead: true, Restated: true}, &fx)
	}
	for r := range fx.Close.All() {
		s.retire(r)
	}
	s.acks |= fx.Ack
	s.armed |= fx.Arm
	s.woken |= fx.Wake
	for _, r := range fx.Released {
		s.released(r)
	}
	s.checkCore()
}

// checkCore is what holds whenever the core was called.
func (s *side) checkCore() {
	for r, e := range s.ends {
		if e != nil && e.up && !s.core.Up(r) {
			s.w.t.Fatalf("rail %d is down, and nobody closes its connection", r)
		}
	}
	for id := range s.revoked {
		if it, ok := s.pending[id]; ok && !it.Frame.held {
			s.w.t.Fatalf("frame %d was revoked, no writer holds it, and it is not released", id)
		}
	}
	if c := s.core; c.starved.len() > 0 {
		if first := c.starved.at(0); c.used+uint64(first.Credit) <= c.returned+c.limit {
			s.w.t.Fatalf("%+v waits for credit that is there", first)
		}
	}
	for r := range s.w.cfg.Rails {
		bytes, unacked := 0, &s.core.links[r].unacked
		for i := range unacked.len() {
			if e := unacked.at(i); !e.Ahead {
				bytes += e.Bytes
			}
		}
		n := s.core.InFlight(r)
		if s.core.Up(r) && n != bytes || n > s.w.cfg.InFlightBytes {
			s.w.t.Fatalf("%d bytes in flight count as %d", bytes, n)
		}
	}
}

func (s *side) released(r Release[*frame]) {
	id := r.Frame.id
	if r.Frame.held {
		s.w.t.Fatalf("frame %d was released while a writer held it", id)
	}
	if id == 0 {
		return
	}
	if _, ok := s.pending[id]; !ok {
		s.w.t.Fatalf("frame %d was released twice", id)
	}
	delete(s.pending, id)
	switch arrived := s.other().arrived[id]; {
	case r.Outcome == Delivered && arrived != 1:
		s.w.t.Fatalf("frame %d counts as delivered and arrived %d times", id, arrived)
	case r.Outcome == Revoked && !s.revoked[id], r.Outcome == Lost && !s.losing:
		s.w.t.Fatalf("frame %d: %v out of the blue", id, r.Outcome)
	}
}

func (s *side) other() *side { return s.w.sides[1-s.me] }

func (s *side) send() {
	t := s.w.t
	s.w.sent++
	it := Item[*frame]{Frame: &frame{id: s.w.sent}, Rail: s.w.rail(),
		Rails: Rails(rapid.IntRange(0, 7).Draw(t, "rails")),
		Bytes: rapid.IntRange(1, 60).Draw(t, "bytes"), Op: Operation{Comm: 1, Seq: uint64(rapid.IntRange(1, 3).Draw(t, "seq"))}}
	switch rapid.SampledFrom([]string{"plain", "eager", "eager", "control"}).Draw(t, "kind") {
	case "eager":
		it.Credit = it.Bytes
	case "control":
		it.Ahead = true
	}
	s.pending[it.Frame.id] = it
	s.do(func(fx *Effects[*frame]) { s.core.Send(it, fx) })
}

// write writes one frame, or an acknowledgement, on a rail. The writer looks for frames only if it
// was woken.
func (s *side) write(rail int) bool {
	e := s.ends[rail]
	if e == nil || !e.up {
		return false
	}
	var it Item[*frame]
	number, ok := uint64(0), false
	if s.woken.Has(rail) {
		if it, number, ok = s.core.Take(rail, e.generation); !ok {
			s.woken &^= 1 << rail
		}
	}
	if !ok && !s.acks.Has(rail) {
		return false
	}
	s.acks &^= 1 << rail
	m := message{number: number, item: it}
	m.ack, m.credit = s.core.Stamp(rail)
	if ok {
		it.Frame.held = true
		e.held = append(e.held, it.Frame)
	}
	if !e.stream.broken {
		e.stream.way[s.me] = append(e.stream.way[s.me], m)
	}
	return true
}

// holds reports whether the rail's writer is at work.
func (s *side) holds(rail int) bool {
	e := s.ends[rail]
	return e != nil && e.up && len(e.held) > 0
}

// letGo ends the write in progress. The writer then sleeps until it is woken.
func (s *side) letGo(e *end) {
	for _, f := range e.held {
		f.held = false
	}
	e.held = nil
	s.do(func(fx *Effects[*frame]) { s.core.Written(e.rail, e.generation, fx) })
}

// receive reads one message of a rail.
func (s *side) receive(rail int) bool {
	e := s.ends[rail]
	return e != nil && e.up && s.read(e, &e.stream.way[1-s.me])
}

func (s *side) read(e *end, way *[]message) bool {
	if len(*way) == 0 {
		return false
	}
	m := (*way)[0]
	*way = (*way)[1:]
	s.do(func(fx *Effects[*frame]) {
		s.check(s.core.Acked(e.rail, e.generation, m.ack, fx))
		s.check(s.core.Credited(m.credit, fx))
	})
	if m.number == 0 {
		return true
	}
	if e.read++; m.number != e.read {
		s.w.t.Fatalf("frame number %d, want %d", m.number, e.read)
	}
	s.arrive(m.item)
	s.do(func(fx *Effects[*frame]) {
		s.core.Received(e.rail, e.generation, m.item.Bytes, false, fx)
	})
	return true
}

func (s *side) check(err error) {
	if err != nil {
		s.w.t.Fatalf("side %d: %v", s.me, err)
	}
}

func (s *side) arrive(it Item[*frame]) {
	switch f := it.Frame; {
	case f.statement != nil:
		s.do(func(fx *Effects[*frame]) { s.check(s.core.PeerClosed(*f.statement, fx)) })
	case f.want != nil:
		s.wanted = append(s.wanted, *f.want)
	case f.grant != nil:
		s.do(func(fx *Effects[*frame]) { s.core.EagerGranted(*f.grant, fx) })
	default:
		s.arrived[f.id]++
		if s.arrived[f.id] > 1 {
			s.w.t.Fatalf("frame %d arrived twice", f.id)
		}
		if it.Credit > 0 {
			if s.core.Overdraws(it.Credit) {
				s.w.t.Fatalf("frame %d costs more credit than there is", f.id)
			}
			s.core.Took(it.Credit)
			s.owed = append(s.owed, it.Credit)
		}
	}
}

// grant answers the oldest want.
func (s *side) grant() {
	op := s.wanted[0]
	s.wanted = s.wanted[1:]
	s.do(func(fx *Effects[*frame]) {
		s.core.Send(Item[*frame]{Frame: &frame{grant: &op}, Bytes: 1, Ahead: true}, fx)
	})
}

func (s *side) giveBack() {
	n := s.owed[0]
	s.owed = s.owed[1:]
	s.do(func(fx *Effects[*frame]) { s.core.ReturnCredit(n, fx) })
}

func (s *side) timers() {
	armed := s.armed
	s.armed = 0
	for r := range armed.All() {
		if e := s.ends[r]; e != nil && e.up {
			s.do(func(fx *Effects[*frame]) { s.core.AckTimer(r, e.generation, fx) })
		}
	}
}

func (s *side) revoke() {
	ids := make(map[int]bool)
	for id := 1; id <= s.w.sent; id++ {
		if _, ok := s.pending[id]; ok && rapid.IntRange(0, 2).Draw(s.w.t, "revoke") == 0 {
			ids[id], s.revoked[id] = true, true
		}
	}
	s.do(func(fx *Effects[*frame]) { s.core.Revoke(func(f *frame) bool { return ids[f.id] }, fx) })
}
