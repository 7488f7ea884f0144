package p2p

import (
	"slices"

	"github.com/polyrail/polyrail/collective/op"
)

// Send is a message that goes out.
type Send[W any] struct {
	Work     W
	To       op.Rank
	Envelope Envelope
	Data     []byte // of an eager one: the copy that goes

	number  uint64
	weights []uint32 // by rail
	granted bool
	spans   []span // by rail: what is planned for it and not yet handed out
	unsent  int    // bytes in spans
	frame   int    // bytes of its largest frame
	flying  int    // frames handed out and not released
	cause   error  // why it was given up
	noticed bool   // the receiver is told
}

// span is a part of a message.
type span struct{ next, end int }

// outbound is what is known of one destination.
type outbound[W any] struct {
	last     uint64 // number of the last message
	used     uint64 // credit
	returned uint64
	open     map[uint64]*Send[W] // that asked and are not over
	ready    []*Send[W]          // granted, with bytes to hand out
	inFlight []int               // by rail: bytes handed out and not released
	closed   error               // it departed
}

func (c *Core[W]) outbound(to op.Rank) *outbound[W] {
	o := c.to[to]
	if o == nil {
		o = &outbound[W]{open: make(map[uint64]*Send[W]), inFlight: make([]int, c.cfg.Rails)}
		c.to[to] = o
	}
	return o
}

// Send numbers a message. Data is a copy of its bytes that may go at once, or nil. If Data of the
// answer is nil, the copy was not used: the bytes go later, from the caller's memory. The weights
// of the rails are kept, and not changed.
func (c *Core[W]) Send(w W, to op.Rank, e Envelope, data []byte, weights []uint32,
	fx *Effects[W]) (*Send[W], error) {
	o := c.outbound(to)
	if c.broken != nil {
		return nil, c.broken
	}
	if o.closed != nil {
		return nil, o.closed
	}
	o.last++
	s := &Send[W]{Work: w, To: to, Envelope: e, number: o.last, weights: weights}
	bytes := e.Bytes()
	if cost := uint64(bytes + Overhead); data != nil && bytes <= c.cfg.EagerBytes &&
		o.used+cost <= o.returned+uint64(c.cfg.CreditBytes) {
		o.used += cost
		s.Data = data
		fx.Frames = append(fx.Frames, Frame[W]{To: to, Verb: Eager, Number: s.number, Envelope: e,
			Length: bytes, Send: s})
		fx.Done = append(fx.Done, Done[W]{Work: w})
		return s, nil
	}
	o.open[s.number] = s
	fx.Frames = append(fx.Frames, Frame[W]{To: to, Verb: Ask, Number: s.number, Envelope: e})
	return s, nil
}

// Sent is the number of the last message to a rank.
func (c *Core[W]) Sent(to op.Rank) uint64 {
	if o := c.to[to]; o != nil {
		return o.last
	}
	return 0
}

// Credited: a rank has given back this many eager bytes in all. An error is a violation of the
// protocol.
func (c *Core[W]) Credited(from op.Rank, total uint64) error {
	o := c.outbound(from)
	if c.broken == nil && total > o.used {
		return violation(from, 0, "gives back %d eager bytes of %d", total, o.used)
	}
	o.returned = max(o.returned, total) // frames overtake each other
	return nil
}

// asked is the send that an answer is about; nil if that is over.
func (c *Core[W]) asked(from op.Rank, number uint64) (*Send[W], error) {
	o := c.outbound(from)
	s := o.open[number]
	switch {
	case c.broken != nil:
		return nil, nil
	case number == 0 || number > o.last:
		return nil, violation(from, number, "an answer to what was never sent")
	case s != nil && s.granted:
		return nil, violation(from, number, "answered twice")
	}
	return s, nil
}

// Granted: the receiver has a receive for the message. An error is a violation of the protocol.
func (c *Core[W]) Granted(from op.Rank, number uint64, fx *Effects[W]) error {
	s, err := c.asked(from, number)
	if s == nil {
		return err
	}
	s.granted = true
	if s.Envelope.Bytes() == 0 { // its only frame tells the receiver that the sender knows
		s.flying++
		fx.Frames = append(fx.Frames, Frame[W]{To: s.To, Verb: Part, Number: s.number,
			Envelope: s.Envelope, Last: true, Send: s})
		return nil
	}
	o := c.to[from]
	s.cut()
	o.ready = append(o.ready, s)
	c.pump(o, fx)
	return nil
}

// Refused: the message doesn't fit the receive that it met. An error is a violation of the
// protocol.
func (c *Core[W]) Refused(from op.Rank, number uint64, room Envelope, fx *Effects[W]) error {
	s, err := c.asked(from, number)
	if s == nil {
		return err
	}
	c.endSend(s, mismatch(from, false, s.Envelope, room), fx)
	return nil
}

// Dropped: the receive that the message met was given up. An error is a violation of the protocol.
func (c *Core[W]) Dropped(from op.Rank, number uint64, fx *Effects[W]) error {
	s, err := c.asked(from, number)
	if s != nil {
		c.endSend(s, nil, fx)
	}
	return err
}

// Bounds of a frame: small enough that rails can take parts off each other, large enough to be
// worth a header.
const (
	framesOfMessage = 32
	minFrame        = 64 << 10
)

// cut gives each rail its share of the message.
func (s *Send[W]) cut() {
	bytes := s.Envelope.Bytes()
	s.unsent = bytes
	s.frame = min(max(minFrame, up(bytes/framesOfMessage)), MaxFrame)
	s.spans = make([]span, len(s.weights))
	var total, sum uint64
	for _, w := range s.weights {
		total += uint64(w)
	}
	begin := 0
	for rail, w := range s.weights {
		sum += uint64(w)
		end := bytes
		if sum < total {
			end = min(bytes, up(int(float64(bytes)*float64(sum)/float64(total))))
		}
		s.spans[rail] = span{begin, end}
		begin = end
	}
}

// Carries reports whether a rail has a share of the message.
func (s *Send[W]) Carries(rail int) bool { return s.weights[rail] > 0 }

// up is the next multiple of Granule.
func up(n int) int { return (n + Granule - 1) / Granule * Granule }

// take cuts the next frame for a rail off the rail's own part or, if that is empty, off the end of
// the longest other one.
func (s *Send[W]) take(rail int) (offset, length int, last bool) {
	p := &s.spans[rail]
	if p.next < p.end {
		offset, length = p.next, min(s.frame, p.end-p.next)
		p.next += length
	} else {
		for i := range s.spans {
			if q := &s.spans[i]; q.end-q.next > p.end-p.next {
				p = q
			}
		}
		offset = max(p.next, up(p.end)-s.frame)
		length = p.end - offset
		p.end = offset
	}
	s.unsent -= length
	return offset, length, s.unsent == 0 || s.spans[rail].next == s.spans[rail].end
}

// pump hands out frames as far as the windows of the rails allow.
func (c *Core[W]) pump(o *outbound[W], fx *Effects[W]) {
	for rail := range o.inFlight {
		for o.inFlight[rail] < c.cfg.WindowBytes {
			s := c.next(o, rail)
			if s == nil {
				break
			}
			offset, length, last := s.take(rail)
			s.flying++
			o.inFlight[rail] += length
			fx.Frames = append(fx.Frames,
				Frame[W]{To: s.To, Verb: Part, Number: s.number, Envelope: s.Envelope,
					Offset: offset, Length: length, Rail: rail, Last: last, Send: s})
			if s.unsent == 0 {
				o.ready = slices.DeleteFunc(o.ready, func(x *Send[W]) bool { return x == s })
			}
		}
	}
}

// next is the send that a rail takes a frame of.
func (c *Core[W]) next(o *outbound[W], rail int) *Send[W] {
	for _, s := range o.ready {
		if s.spans[rail].next < s.spans[rail].end {
			return s
		}
	}
	if !c.cfg.Help || o.inFlight[rail] > c.cfg.WindowBytes/2 {
		return nil
	}
	for _, s := range o.ready {
		if s.weights[rail] > 0 {
			return s
		}
	}
	return nil
}

// Released: nobody reads a Part's memory any more. An error says that it will never arrive.
func (c *Core[W]) Released(s *Send[W], rail, length int, err error, fx *Effects[W]) {
	o := c.to[s.To]
	o.inFlight[rail] -= length
	s.flying--
	if err != nil && s.cause == nil {
		c.giveUp(s, err, fx)
	}
	if s.flying == 0 && (s.cause != nil || s.unsent == 0) {
		c.endSend(s, s.cause, fx)
	}
	if c.broken == nil {
		c.pump(o, fx)
	}
}

// CancelSend gives a message up. Its end follows when nobody reads its memory any more.
func (c *Core[W]) CancelSend(s *Send[W], cause error, fx *Effects[W]) {
	if o := c.to[s.To]; o.open[s.number] != s || s.cause != nil {
		return
	}
	c.giveUp(s, cause, fx)
	if s.flying == 0 {
		c.endSend(s, cause, fx)
	}
}

// giveUp stops a send, and tells the receiver.
func (c *Core[W]) giveUp(s *Send[W], cause error, fx *Effects[W]) {
	o := c.to[s.To]
	s.cause = cause
	o.ready = slices.DeleteFunc(o.ready, func(x *Send[W]) bool { return x == s })
	if s.noticed = c.broken == nil; s.noticed {
		fx.Frames = append(fx.Frames, Frame[W]{To: s.To, Verb: Cancel, Number: s.number, Send: s})
	}
	if s.flying > 0 {
		fx.Revoke = append(fx.Revoke, s.Work)
	}
}

// GivenUp reports whether frames of the send that were handed out meanwhile have to be revoked.
func (s *Send[W]) GivenUp() bool { return s.cause != nil }

func (c *Core[W]) endSend(s *Send[W], err error, fx *Effects[W]) {
	delete(c.to[s.To].open, s.number)
	fx.Done = append(fx.Done, Done[W]{Work: s.Work, Err: err, Noticed: s.noticed})
}
