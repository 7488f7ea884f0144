package sim

import (
	"github.com/polyrail/polyrail/collective/op"
	"github.com/polyrail/polyrail/collective/task"
)

// pump schedules the arrival of an end's next packet, or the end of the stream.
func (s *Sim) pump(e *end) {
	switch {
	case e.busy || e.closed:
	case len(e.inbox) > 0:
		e.busy = true
		s.schedule(event{kind: packetArrives, at: max(s.now, e.inbox[0].arrives), end: e})
	case e.conn.cut:
		e.busy = true
		s.schedule(event{kind: streamEnds, at: s.now + s.travel(), end: e})
	}
}

// arrive takes the header of the next packet, and starts reading what follows it.
func (s *Sim) arrive(e *end) {
	if e.closed {
		return
	}
	p, d := &e.inbox[0], e.side
	fx := s.effects()
	d.core.At(s.elapsed(), 1)
	s.failIf(d.core.Acked(e.conn.rail, e.conn.generation, p.ack, fx), "rank %d", d.me.id)
	s.failIf(d.core.Credited(p.credit, fx), "rank %d", d.me.id)
	if p.frame != nil && p.frame.kind == dataFrame {
		s.land(e, p)
	}
	reading := p.frame != nil && s.chance(s.setup.slowReads)
	if reading {
		e.reading = true
		if p.placed && p.frame.length > 0 {
			d.me.part(p.frame).at(p.place)[0] = poisonValue // half written
		}
		s.schedule(event{kind: packetRead, at: s.now + s.some(s.setup.readTime), end: e})
	}
	s.carryOut(d, fx)
	if !reading && !e.closed {
		s.read(e)
	}
}

// land asks where a data frame goes: into an operation's memory, or into the early store.
func (s *Sim) land(e *end, p *packet) {
	f := p.frame
	o := f.to.find(f.seq)
	if o != nil {
		p.landed, p.place = s.place(o, f)
		p.placed = true
		return
	}
	switch {
	case f.seq < f.to.member.Next():
		s.fail("rank %d: %v for an operation that is over", f.to.id, f)
	case !f.eager:
		s.fail("rank %d: %v without a grant", f.to.id, f)
	case p.uncredited:
		s.fail("rank %d: %v was granted before the operation began", f.to.id, f)
	}
}

// read: a packet is read whole, unless the connection was lost meanwhile.
func (s *Sim) read(e *end) {
	p := e.inbox[0]
	if e.closed || e.conn.cut && s.chance(50) {
		s.tear(e, &p)
		return
	}
	e.inbox = append(e.inbox[:0], e.inbox[1:]...)
	s.receive(e, &p)
	e.reading, e.busy = false, false
	s.letGo(e)
	s.pump(e)
}

// tear: the connection was lost in the middle of a packet, or just behind it.
func (s *Sim) tear(e *end, p *packet) {
	if e.closed && s.chance(50) {
		s.receive(e, p) // the reader had it already
	} else if p.placed {
		s.stats.Torn++
		s.logf("torn    %v", p.frame)
		s.step(p.frame.to.part(p.frame), task.Event{Kind: task.Torn, Ref: p.landed})
	}
	e.reading, e.busy = false, false
	e.inbox = e.inbox[:0]
	if e.closed {
		s.letGo(e)
	} else {
		s.lost(e)
	}
}

// receive takes a whole frame. It counts as received once its arrival stands where it is looked for.
func (s *Sim) receive(e *end, p *packet) {
	f := p.frame
	if f == nil {
		return
	}
	s.logf("receive %v (on rail %d)", f, e.conn.rail)
	length, ackNow := f.length, f.ackNow // the sender may let go of f as soon as it hears
	s.meet(e, f, Received)
	if f.kind == dataFrame {
		f.rail = e.conn.rail
		s.checkLent(f)
		s.data(f, p)
	} else {
		s.control(f)
	}
	fx := s.effects()
	e.side.core.Received(e.conn.rail, e.conn.generation, headerBytes+length, ackNow, fx)
	s.carryOut(e.side, fx)
}

// data gives a frame to its operation, or stores it for one to come.
func (s *Sim) data(f *frame, p *packet) {
	o := f.to.find(f.seq)
	switch {
	case o == nil:
		s.storeEarly(f)
		return
	case !p.placed: // the operation began while the frame was read into the store
		p.landed, p.place = s.place(o, f)
	}
	if f.eager && !p.uncredited {
		s.returnCredit(f)
	}
	s.tick(o, f.lane, f)
	s.arrived(o.parts[f.lane], p.landed, p.place, f.memory)
}

func (s *Sim) returnCredit(f *frame) {
	d := s.side(f.to, f.from)
	fx := s.effects()
	d.core.ReturnCredit(headerBytes+f.length, fx)
	s.carryOut(d, fx)
}

// place finds where a frame goes. In a node what the header says may be anything; here it must be right.
func (s *Sim) place(o *operation, f *frame) (task.Ref, task.Loc) {
	if f.version != o.call.table.Version {
		s.fail("rank %d: %v is cut by table version %d, the operation by %d", o.rank.id, f, f.version, o.call.table.Version)
	}
	p := o.parts[f.lane]
	if p == nil || p.retired {
		s.fail("rank %d: %v for a part that is over, or never was", o.rank.id, f)
	}
	ref, place, err := p.task.Place(task.Frame{
		From: op.Rank(f.from.id), First: f.first, Count: f.count, Mark: f.mark, Step: f.step, Bytes: f.length,
	})
	s.failIf(err, "rank %d: %v", o.rank.id, f)
	if place.Len != f.length || place.Mem == task.Input {
		s.fail("rank %d: %v lands in %+v", o.rank.id, f, place)
	}
	if place.Mem != task.Scratch && p.resolved {
		s.fail("rank %d: %v lands in user memory after its part of seq %d has resolved", o.rank.id, f, o.seq)
	}
	return ref, place
}
