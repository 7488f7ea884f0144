package peer

import (
	"time"

	"pgregory.net/rapid"
)

// The model: two cores, and between them connections that break at any moment, seen by either
// side at any time, or by one alone. It checks that every frame arrives exactly once unless
// it was revoked, is released exactly once and never while a writer holds it, that credit is
// conserved, and that limits are kept.

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
	read       uint64   // numbered frames
	held       []*frame // by the writer
}

type side struct {
	w       *world
	me      int
	core    *Core[*frame]
	ends    []*end // by rail; nil: none was made yet
	old     []*end // down and not quiesced
	pending map[int]Item[*frame]
	revoked map[int]bool
	arrived map[int]int // from the other side
	owed    []int       // credit to be given back
	wanted  []Operation // by the other side
	acks    Rails
	armed   Rails
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
	w.cfg = Config{Rails: rapid.IntRange(1, 3).Draw(t, "rails"), InFlightBytes: 100, AckBytes: 50, CreditBytes: 20, AckDelay: 1}
	w.pause = rapid.SampledFrom([]time.Duration{0, 1, time.Millisecond, time.Second}).Draw(t, "pause")
	credit := rapid.SampledFrom([]uint64{0, 10, 70, 1000}).Draw(t, "credit")
	for i := range w.sides {
		s := &side{w: w, me: i, core: New[*frame](w.cfg), ends: make([]*end, w.cfg.Rails),
			pending: map[int]Item[*frame]{}, revoked: map[int]bool{}, arrived: map[int]int{}}
		w.sides[i] = s
		s.do(func(fx *Effects[*frame]) { s.core.Limit(credit, fx) })
	}
	return w
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
	for _, r := range fx.Released {
		s.released(r)
	}
	for r := range s.w.cfg.Rails {
		if n := s.core.InFlight(r); n > s.w.cfg.InFlightBytes {
			s.w.t.Fatalf("%d bytes in flight", n)
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
	case r.Outcome == Revoked && !s.revoked[id], r.Outcome == Lost:
		s.w.t.Fatalf("frame %d: %v out of the blue", id, r.Outcome)
	}
}

func (s *side) other() *side { return s.w.sides[1-s.me] }

func (s *side) send() {
	t := s.w.t
	s.w.sent++
	it := Item[*frame]{Frame: &frame{id: s.w.sent}, Rail: rapid.IntRange(0, s.w.cfg.Rails-1).Draw(t, "rail"),
		Rails: Rails(rapid.IntRange(0, 7).Draw(t, "rails")),
		Bytes: rapid.IntRange(1, 60).Draw(t, "bytes"), Op: Operation{Comm: 1, Seq: uint64(rapid.IntRange(1, 3).Draw(t, "seq"))}}
	if rapid.Bool().Draw(t, "eager") {
		it.Credit = it.Bytes
	}
	s.pending[it.Frame.id] = it
	s.do(func(fx *Effects[*frame]) { s.core.Send(it, fx) })
}

// write writes one frame, or an acknowledgement, on a rail.
func (s *side) write(rail int) bool {
	e := s.ends[rail]
	if e == nil || !e.up {
		return false
	}
	it, number, ok := s.core.Take(rail, e.generation)
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

// letGo ends the write in progress.
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
	if e == nil || !e.up || len(e.stream.way[1-s.me]) == 0 {
		return false
	}
	way := &e.stream.way[1-s.me]
	m := (*way)[0]
	*way = (*way)[1:]
	s.do(func(fx *Effects[*frame]) {
		s.check(s.core.Acked(rail, e.generation, m.ack, fx))
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
		s.core.Received(rail, e.generation, m.item.Bytes, false, fx)
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
	e.stream.way = [2][]message{}
	s.acks &^= 1 << rail
	s.armed &^= 1 << rail
	s.old = append(s.old, e)
}

// quiesce: the reader and the writer of the oldest closed connection have ended.
func (s *side) quiesce() {
	e := s.old[0]
	s.old = s.old[1:]
	for _, f := range e.held {
		f.held = false
	}
	e.held = nil
	s.do(func(fx *Effects[*frame]) { s.core.Quiesced(e.rail, e.generation, fx) })
}

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
