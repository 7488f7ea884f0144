package p2p

import (
	"container/list"

	"github.com/polyrail/polyrail/collective/op"
)

// Message is one that comes in, from its envelope until nothing more is expected of it.
type Message[W any] struct {
	From     op.Rank
	Number   uint64
	Envelope Envelope
	Data     Buffer // where an eager one waits; the caller provides it

	eager     bool
	cancelled bool // given up before its envelope came
	granted   bool
	landing   bool             // its eager frame is being read
	whole     bool             // Data is complete
	drop      bool             // nobody wants it; an eager one is over when it has arrived
	recv      *Recv[W]         // that it was matched with
	elements  [4]*list.Element // in Core.stray
}

// inbound is what is known of one source.
type inbound[W any] struct {
	next     uint64 // messages below it have entered the matching
	messages map[uint64]*Message[W]
	held     int           // credit that eager messages take
	given    uint64        // credit given back, in all
	untold   int           // of it
	granted  int           // messages whose bytes may be on their way
	pending  []*Message[W] // matched, and to be granted
	departed error
	last     uint64 // with departed: the number of its last message
	gone     bool   // it departed, and nothing is to come
}

func (c *Core[W]) inbound(from op.Rank) *inbound[W] {
	in := c.from[from]
	if in == nil {
		in = &inbound[W]{next: 1, messages: make(map[uint64]*Message[W])}
		c.from[from] = in
	}
	return in
}

// Ref names the part of a message that a frame holds.
type Ref uint64

func refTo(offset, length int) Ref { return Ref(offset/Granule<<8 | granules(length)) }

// granules are how many a part takes. The only part of an empty message takes one, too, so that
// it has its place once.
func granules(length int) int { return max(1, up(length)/Granule) }

func (r Ref) granules() (first, count int) { return int(r >> 8), int(r & 0xff) }

// Place is where a frame's payload lands. The zero Place is nowhere: it is read and dropped.
type Place[W any] struct {
	Recv    *Recv[W]    // its memory takes the payload at Offset: Arrived or Torn follows
	Message *Message[W] // its Data takes the payload: ArrivedHeld or TornHeld follows
	Offset  int
	Ref     Ref
}

// admit checks a new number of a source against the limits.
func (c *Core[W]) admit(in *inbound[W], from op.Rank, number uint64) error {
	most := c.cfg.Open + c.cfg.CreditBytes/Overhead
	switch {
	case number == 0 || number >= in.next+uint64(2*most):
		return violation(from, number, "the next one is %d", in.next)
	case len(in.messages) >= most:
		return violation(from, number, "more than %d messages at once", most)
	}
	return nil
}

// enter takes all messages into the matching that are next in the order of their source.
func (c *Core[W]) enter(in *inbound[W], from op.Rank, fx *Effects[W]) {
	for m := in.messages[in.next]; m != nil; m = in.messages[in.next] {
		in.next++
		if m.cancelled {
			delete(in.messages, m.Number)
		} else if r := c.receiver(m); r != nil {
			c.join(m, r, fx)
		} else {
			c.keep(m)
		}
	}
	c.checkGone(in, from, fx)
}

// Eager: the frame of an eager message begins to arrive. An error is a violation of the protocol.
func (c *Core[W]) Eager(from op.Rank, number uint64, e Envelope, length int,
	fx *Effects[W]) (p Place[W], err error) {
	if c.broken != nil {
		return p, nil
	}
	in := c.inbound(from)
	m := in.messages[number]
	if m == nil {
		if m, err = c.newEager(in, from, number, e, length); err != nil {
			return p, err
		}
		in.messages[number] = m
		c.enter(in, from, fx)
	} else if !m.eager || m.landing || m.whole || m.Envelope != e || length != e.Bytes() {
		return p, violation(from, number, "came before")
	}
	m.landing = true
	if r := m.recv; r != nil {
		r.landings++
		return Place[W]{Recv: r}, nil
	}
	return Place[W]{Message: m}, nil
}

func (c *Core[W]) newEager(in *inbound[W], from op.Rank, number uint64, e Envelope,
	length int) (*Message[W], error) {
	if err := e.check(); err != nil {
		return nil, violation(from, number, "%w", err)
	}
	cost := e.Bytes() + Overhead
	switch {
	case number < in.next:
		return nil, violation(from, number, "came before")
	case length != e.Bytes() || length > MaxFrame:
		return nil, violation(from, number, "%d bytes of %d", length, e.Bytes())
	case in.held+cost > c.cfg.CreditBytes:
		return nil, violation(from, number, "%d bytes beyond the credit", in.held+cost-c.cfg.CreditBytes)
	}
	if err := c.admit(in, from, number); err != nil {
		return nil, err
	}
	in.held += cost
	return &Message[W]{From: from, Number: number, Envelope: e, eager: true}, nil
}

// Asked: an envelope arrived whose bytes wait. An error is a violation of the protocol.
func (c *Core[W]) Asked(from op.Rank, number uint64, e Envelope, fx *Effects[W]) error {
	if c.broken != nil {
		return nil
	}
	in := c.inbound(from)
	m := in.messages[number]
	switch {
	case m != nil && m.cancelled, m == nil && number > 0 && number < in.next:
		return nil // Cancel came first
	case m != nil:
		return violation(from, number, "came before")
	}
	if err := e.check(); err != nil {
		return violation(from, number, "%w", err)
	}
	if err := c.admit(in, from, number); err != nil {
		return err
	}
	in.messages[number] = &Message[W]{From: from, Number: number, Envelope: e}
	c.enter(in, from, fx)
	return nil
}

// Canceled: the sender has given a message up. An error is a violation of the protocol.
func (c *Core[W]) Canceled(from op.Rank, number uint64, fx *Effects[W]) error {
	if c.broken != nil {
		return nil
	}
	in := c.inbound(from)
	m := in.messages[number]
	switch {
	case m == nil && number > 0 && number < in.next:
		return nil // it is over
	case m == nil:
		if err := c.admit(in, from, number); err != nil {
			return err
		}
		in.messages[number] = &Message[W]{From: from, Number: number, cancelled: true}
		c.enter(in, from, fx)
	case m.eager || m.cancelled:
		return violation(from, number, "cannot be cancelled")
	case number >= in.next:
		m.cancelled = true
	case m.kept():
		c.unkeep(m)
		delete(in.messages, number)
	default:
		r := m.recv
		c.leave(m, fx)
		c.failRecv(r, canceledBy(from), fx)
	}
	return nil
}

// Part: a frame of a granted message begins to arrive. An error is a violation of the protocol.
func (c *Core[W]) Part(from op.Rank, number uint64, offset, length int) (p Place[W], err error) {
	if c.broken != nil {
		return p, nil
	}
	in := c.inbound(from)
	m := in.messages[number]
	if m == nil && number > 0 && number < in.next {
		return p, nil // its receive was given up
	}
	if m == nil || !m.granted {
		return p, violation(from, number, "bytes that were not granted")
	}
	r, bytes := m.recv, m.Envelope.Bytes()
	if offset < 0 || offset%Granule != 0 || length < min(1, bytes) || length > MaxFrame ||
		offset > bytes-length ||
		length%Granule != 0 && offset+length != bytes {
		return p, violation(from, number, "bytes %d+%d of %d", offset, length, bytes)
	}
	ref := refTo(offset, length)
	if !r.placed.claim(ref) {
		return p, violation(from, number, "bytes %d+%d came before", offset, length)
	}
	r.landings++
	return Place[W]{Recv: r, Offset: offset, Ref: ref}, nil
}

// ArrivedHeld: an eager message is whole in its Data.
func (c *Core[W]) ArrivedHeld(m *Message[W], fx *Effects[W]) {
	m.landing, m.whole = false, true
	switch {
	case m.drop:
		c.settle(m, fx)
	case m.recv != nil:
		c.copyOut(m, fx)
	}
}

// TornHeld: the reader has let go of the message's Data. The frame comes again, if at all.
func (c *Core[W]) TornHeld(m *Message[W], fx *Effects[W]) {
	m.landing = false
	if c.broken != nil {
		c.settle(m, fx)
	}
}

// copyOut brings a message that waited to its receive.
func (c *Core[W]) copyOut(m *Message[W], fx *Effects[W]) {
	m.recv.landings++
	fx.Copies = append(fx.Copies, Copy[W]{m, m.recv})
}

// Copied: a Copy was carried out.
func (c *Core[W]) Copied(m *Message[W], fx *Effects[W]) {
	m.recv.landings--
	c.settle(m, fx)
	c.endRecv(m.recv, fx)
}

// settle ends an eager message: its memory is free, and the sender gets its credit back.
func (c *Core[W]) settle(m *Message[W], fx *Effects[W]) {
	if m.Data.Bytes != nil {
		fx.Free = append(fx.Free, m.Data)
		m.Data = Buffer{}
	}
	if c.broken != nil {
		return
	}
	in, cost := c.from[m.From], m.Envelope.Bytes()+Overhead
	delete(in.messages, m.Number)
	in.held -= cost
	in.given += uint64(cost)
	if in.untold += cost; in.untold >= c.cfg.CreditBytes/4 {
		fx.Frames = append(fx.Frames, Frame[W]{To: m.From, Verb: Credit, Credit: in.tell()})
	}
}

// tell is the credit that the next frame to the source says.
func (in *inbound[W]) tell() uint64 {
	in.untold = 0
	return in.given
}

// offer grants the message, or keeps it until others of its source are over.
func (c *Core[W]) offer(m *Message[W], fx *Effects[W]) {
	in := c.from[m.From]
	if in.granted >= c.cfg.Granted {
		in.pending = append(in.pending, m)
		return
	}
	in.granted++
	m.granted = true
	fx.Frames = append(fx.Frames, Frame[W]{To: m.From, Verb: Grant, Number: m.Number, Credit: in.tell()})
}

// leave ends a message that asked and was matched: what still comes of it is dropped.
func (c *Core[W]) leave(m *Message[W], fx *Effects[W]) {
	in := c.from[m.From]
	delete(in.messages, m.Number)
	if !m.granted {
		for i, p := range in.pending {
			if p == m {
				in.pending = append(in.pending[:i], in.pending[i+1:]...)
				return
			}
		}
		return
	}
	in.granted--
	if len(in.pending) > 0 {
		next := in.pending[0]
		in.pending = in.pending[1:]
		c.offer(next, fx)
	}
}
