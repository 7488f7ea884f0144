package sim

import (
	"fmt"
	"slices"
	"time"

	"github.com/polyrail/polyrail/collective/peer"
	"github.com/polyrail/polyrail/collective/task"
)

// side is one rank's dealings with another: the peer's core, and its ends of the pairs.
type side struct {
	me, other *rank
	core      *peer.Core[*frame]
	ends      []*end // by rail; nil while there is no connection
}

// connection is one generation of a pair. Both directions keep their order.
type connection struct {
	rail       int
	generation uint64
	ends       [2]*end
	cut        bool // nothing that is written arrives any more
}

// end is one side's end of a connection: what arrives for it, and the reader that takes it.
type end struct {
	side    *side
	conn    *connection
	other   *end
	inbox   []packet
	last    uint64   // arrival of the last packet
	busy    bool     // the reader is at inbox[0], or its arrival is scheduled
	reading bool     // the reader holds memory
	writing []*frame // the writer holds their memory
	closed  bool
}

func (e *end) String() string {
	return fmt.Sprintf("rail %d generation %d at rank %d, to rank %d", e.conn.rail, e.conn.generation, e.side.me.id, e.side.other.id)
}

// packet is a frame under way, with what its header says besides.
type packet struct {
	frame       *frame // nil for a lone acknowledgement
	arrives     uint64
	ack, credit uint64
	uncredited  bool
	landed      task.Ref // while it is read into an operation's memory
	place       task.Loc
	placed      bool
}

// side connects two ranks that have not met: of many ranks a few pairs alone do.
func (s *Sim) side(me, other *rank) *side {
	d := s.met(me, other)
	if d == nil {
		d = s.newSide(me, other)
		s.newSide(other, me)
		s.pairs = append(s.pairs, d)
		for rail := range s.setup.rails {
			s.connect(d, rail)
		}
	}
	return d
}

// met is nil where two ranks have not met.
func (s *Sim) met(me, other *rank) *side { return s.sides[me.id*s.setup.ranks+other.id] }

func (s *Sim) newSide(me, other *rank) *side {
	d := &side{me: me, other: other, ends: make([]*end, s.setup.rails)}
	s.sides[me.id*s.setup.ranks+other.id] = d
	d.core = peer.New[*frame](peer.Config{
		Rails: s.setup.rails, InFlightBytes: s.setup.inFlightBytes, AckBytes: s.setup.ackBytes,
		CreditBytes: s.setup.creditBytes / 4, AckDelay: time.Duration(s.setup.ackDelay) * tick,
	})
	fx := s.effects()
	d.core.Limit(uint64(s.setup.creditBytes), fx)
	s.carryOut(d, fx)
	return d
}

// connectAll makes few ranks meet before they begin.
func (s *Sim) connectAll() {
	s.sides = slices.Grow(s.sides[:0], s.setup.ranks*s.setup.ranks)[:s.setup.ranks*s.setup.ranks]
	clear(s.sides)
	s.pairs = s.pairs[:0]
	if s.Ranks > 0 {
		return
	}
	for a := range s.ranks {
		for b := range a {
			s.side(s.ranks[a], s.ranks[b])
		}
	}
}

// connect makes a new connection of a rail, and ends what is left of the one before.
func (s *Sim) connect(a *side, rail int) {
	b := s.side(a.other, a.me)
	for _, d := range [...]*side{a, b} {
		if e := d.ends[rail]; e != nil {
			s.lost(e)
		}
	}
	generation := a.core.Propose(rail, b.core.Propose(rail, 0))
	c := &connection{rail: rail, generation: generation}
	ea, eb := &end{side: a, conn: c}, &end{side: b, conn: c}
	ea.other, eb.other = eb, ea
	c.ends = [2]*end{ea, eb}
	a.ends[rail], b.ends[rail] = ea, eb
	s.logf("connect %d–%d rail %d generation %d", a.me.id, b.me.id, rail, generation)
	for _, d := range [...]*side{a, b} {
		fx := s.effects()
		if !d.core.Connected(rail, generation, fx) {
			s.fail("rank %d refuses generation %d of rail %d to rank %d", d.me.id, generation, rail, d.other.id)
		}
		s.carryOut(d, fx)
	}
	s.disturb(a.me)
	s.disturb(b.me)
}

// cut breaks a random connection.
func (s *Sim) cut() {
	if len(s.pairs) == 0 {
		return
	}
	d := s.pairs[s.rng.IntN(len(s.pairs))]
	if e := d.ends[s.rng.IntN(s.setup.rails)]; e != nil {
		s.sever(e)
	}
}

// sever breaks an end's connection: some of what is under way still arrives, then its readers
// see the end, each in its own time. A new connection comes later.
func (s *Sim) sever(e *end) {
	if e.conn.cut {
		return
	}
	d, rail := e.side, e.conn.rail
	s.stats.Cuts++
	s.logf("cut     %v", e)
	e.conn.cut = true
	s.disturb(e.side.me)
	s.disturb(e.other.side.me)
	for _, e := range e.conn.ends {
		if keep := s.rng.IntN(len(e.inbox) + 1); keep > 0 || !e.busy {
			e.inbox = e.inbox[:keep]
		} else {
			e.inbox = e.inbox[:1] // the reader is at it
		}
		s.pump(e)
	}
	s.schedule(event{kind: reconnects, at: s.now + s.travel() + s.some(s.setup.repairTime), side: d, rail: rail})
}

// lost: one side finds that a connection has ended.
func (s *Sim) lost(e *end) {
	fx := s.effects()
	e.side.core.Down(e.conn.rail, e.conn.generation, fx)
	s.close(e)
	s.carryOut(e.side, fx)
}

// close stops an end's reader and writer; what they hold they let go in their own time.
func (s *Sim) close(e *end) {
	if e.closed {
		return
	}
	e.closed = true
	e.conn.cut = true
	s.logf("close   %v", e)
	e.side.ends[e.conn.rail] = nil
	s.pump(e.other)
	if !e.reading && len(e.writing) == 0 {
		s.schedule(event{kind: quiesces, at: s.now + s.some(s.setup.readTime), end: e})
	}
}

// letGo: reader or writer of an end holds nothing any more.
func (s *Sim) letGo(e *end) {
	if e.closed && !e.reading && len(e.writing) == 0 {
		s.quiesced(e)
	}
}

func (s *Sim) quiesced(e *end) {
	s.logf("quiet   %v", e)
	fx := s.effects()
	e.side.core.Quiesced(e.conn.rail, e.conn.generation, fx)
	s.carryOut(e.side, fx)
}

// effects returns empty effects, which carryOut takes back.
func (s *Sim) effects() *peer.Effects[*frame] {
	if kept := len(s.kept); kept > 0 {
		fx := s.kept[kept-1]
		s.kept = s.kept[:kept-1]
		return fx
	}
	return new(peer.Effects[*frame])
}

// carryOut does what the peer's core wants.
func (s *Sim) carryOut(d *side, fx *peer.Effects[*frame]) {
	for rail := range fx.Close.All() {
		if e := d.ends[rail]; e != nil {
			s.close(e)
		}
	}
	for _, it := range fx.Wants {
		f := s.newFrame(wantFrame, d.me, d.other)
		f.seq = it.Op.Seq
		s.send(f)
	}
	for _, statement := range fx.Statements {
		f := s.newFrame(statementFrame, d.me, d.other)
		f.statement = statement
		s.send(f)
	}
	for rail := range (fx.Wake | fx.Ack).All() {
		if e := d.ends[rail]; e != nil {
			s.write(e, fx.Ack.Has(rail))
		}
	}
	for rail := range fx.Arm.All() {
		if e := d.ends[rail]; e != nil {
			s.schedule(event{kind: ackIsDue, at: s.now + s.setup.ackDelay, end: e})
		}
	}
	for _, r := range fx.Released {
		if r.Outcome != peer.Delivered {
			s.fail("rank %d: %v was released undelivered", d.me.id, r.Frame)
		}
		s.release(r.Frame)
	}
	fx.Reset()
	s.kept = append(s.kept, fx)
}

// ackDue: the time of a delayed acknowledgement has come.
func (s *Sim) ackDue(e *end) {
	fx := s.effects()
	e.side.core.AckTimer(e.conn.rail, e.conn.generation, fx)
	s.carryOut(e.side, fx)
}

// write puts on its way what the core gives, and a lone acknowledgement if one is owed and
// nothing else carries it.
func (s *Sim) write(e *end, ackOwed bool) {
	core, rail, generation := e.side.core, e.conn.rail, e.conn.generation
	core.At(s.elapsed(), 1)
	took := 0
	for ; !e.closed; took++ {
		it, _, ok := core.Take(rail, generation)
		if !ok {
			break
		}
		if planned := e.side.ends[it.Rail]; !it.Ahead && it.Rail != rail && planned != nil {
			s.stats.Strayed++
		}
		if used := core.InFlight(rail); !it.Ahead && used > s.setup.inFlightBytes && used != it.Bytes {
			s.fail("rank %d has %d bytes unacknowledged on rail %d to rank %d, the limit is %d",
				e.side.me.id, used, rail, e.side.other.id, s.setup.inFlightBytes)
		}
		it.Frame.writers++
		e.writing = append(e.writing, it.Frame)
		if it.Resent {
			s.stats.Resent++
		}
		s.transmit(e, it.Frame, it.Uncredited)
	}
	switch {
	case took > 0 && took == len(e.writing):
		s.schedule(event{kind: writerLetsGo, at: s.now + s.some(s.setup.writeTime), end: e})
	case took == 0 && ackOwed && !e.closed:
		s.transmit(e, nil, false)
	}
	if core.Queued() > 0 {
		s.stats.Capped++
	}
}

func (s *Sim) written(e *end) {
	for _, f := range e.writing {
		f.writers--
	}
	e.writing = e.writing[:0]
	fx := s.effects()
	e.side.core.Written(e.conn.rail, e.conn.generation, fx)
	s.carryOut(e.side, fx)
	s.letGo(e)
}

// transmit writes one frame into the connection.
func (s *Sim) transmit(e *end, f *frame, uncredited bool) {
	p := packet{frame: f, uncredited: uncredited}
	p.ack, p.credit = e.side.core.Stamp(e.conn.rail)
	if e.conn.cut {
		return
	}
	to := e.other
	p.arrives = max(to.last, s.now+s.travel())
	if s.setup.perKiB[e.conn.rail] > 0 && f != nil { // one frame after the other
		p.arrives = max(to.last, s.now) + s.travel()/4 + (headerBytes+uint64(f.length))*s.setup.perKiB[e.conn.rail]>>10
		p.arrives = max(p.arrives, s.now+s.travel())
	}
	to.last = p.arrives
	to.inbox = append(to.inbox, p)
	if f != nil && s.log != nil {
		s.logf("send    %v (on rail %d)", f, e.conn.rail)
	}
	s.pump(to)
	s.meet(e, f, Sent)
}
