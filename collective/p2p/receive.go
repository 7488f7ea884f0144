package p2p

import (
	"container/list"

	"github.com/polyrail/polyrail/collective/fault"
	"github.com/polyrail/polyrail/collective/op"
)

// Recv is a receive.
type Recv[W any] struct {
	Work  W
	From  op.Rank  // or AnySource
	Room  Envelope // its Tag may be AnyTag
	Exact bool     // a shorter message is an error, too

	ticket   uint64
	element  *list.Element // in Core.posted
	message  *Message[W]   // that it was matched with
	placed   bitmap        // what of it has a place
	missing  int           // bytes to arrive
	landings int           // goroutines that write its memory
	cause    error         // why it was given up
	over     bool
}

func (r *Recv[W]) key() key { return key{r.From, r.Room.Tag} }

// Recv posts a receive, and matches it if its message is there.
func (c *Core[W]) Recv(r *Recv[W], fx *Effects[W]) error {
	if c.broken != nil {
		return c.broken
	}
	if m := c.waiting(r); m != nil {
		c.join(m, r, fx)
		return nil
	}
	if err := c.unreachable(r.From); err != nil {
		return err
	}
	c.post(r)
	return nil
}

// join matches a message and a receive.
func (c *Core[W]) join(m *Message[W], r *Recv[W], fx *Effects[W]) {
	r.message, m.recv = m, r
	if m.Envelope.Type != r.Room.Type || m.Envelope.Count > r.Room.Count ||
		r.Exact && m.Envelope.Count != r.Room.Count {
		if !m.eager {
			fx.Frames = append(fx.Frames,
				Frame[W]{To: m.From, Verb: Refuse, Number: m.Number, Envelope: r.room()})
			delete(c.from[m.From].messages, m.Number)
		}
		r.cause = mismatch(m.From, true, m.Envelope, r.Room)
		c.unjoin(m, fx)
		c.endRecv(r, fx)
		return
	}
	switch {
	case m.eager && m.whole:
		c.copyOut(m, fx)
	case m.eager: // its bytes are on their way
	default:
		r.missing = m.Envelope.Bytes()
		r.placed = newBitmap(granules(r.missing))
		c.offer(m, fx)
	}
}

// room is the envelope that a refusal shows.
func (r *Recv[W]) room() Envelope {
	e := r.Room
	e.Tag = 0
	return e
}

// unjoin gives an eager message up that was matched.
func (c *Core[W]) unjoin(m *Message[W], fx *Effects[W]) {
	if !m.eager {
		return
	}
	m.recv, m.drop = nil, true
	if m.whole {
		c.settle(m, fx)
	}
}

// CancelRecv gives a receive up. A message that it was matched with is lost. Its end follows when
// nobody writes its memory any more.
func (c *Core[W]) CancelRecv(r *Recv[W], cause error, fx *Effects[W]) {
	m := r.message
	if r.over || r.cause != nil {
		return
	}
	switch {
	case m == nil || c.broken != nil:
	case !m.eager:
		if !m.granted {
			fx.Frames = append(fx.Frames, Frame[W]{To: m.From, Verb: Drop, Number: m.Number})
		}
		c.leave(m, fx)
	case r.landings == 0: // in other cases its landing or its copy ends it
		c.unjoin(m, fx)
	}
	c.failRecv(r, cause, fx)
}

// failRecv ends a receive with an error.
func (c *Core[W]) failRecv(r *Recv[W], cause error, fx *Effects[W]) {
	r.cause = cause
	if r.element != nil {
		c.unpost(r)
	}
	if r.landings > 0 {
		fx.Revoke = append(fx.Revoke, r.Work)
		return
	}
	c.endRecv(r, fx)
}

func (c *Core[W]) endRecv(r *Recv[W], fx *Effects[W]) {
	if r.over {
		return
	}
	r.over = true
	d := Done[W]{Work: r.Work, Err: r.cause}
	if m := r.message; m != nil {
		d.Status = Status{Source: m.From, Tag: m.Envelope.Tag, Count: m.Envelope.Count}
	}
	fx.Done = append(fx.Done, d)
}

// Arrived: a Place in the receive's memory was filled.
func (c *Core[W]) Arrived(r *Recv[W], ref Ref, fx *Effects[W]) {
	r.landings--
	m := r.message
	switch {
	case m.eager:
		m.landing = false
		c.settle(m, fx)
	case r.cause == nil:
		if r.missing -= m.part(ref); r.missing > 0 {
			return
		}
		c.leave(m, fx)
	case r.landings > 0:
		return
	}
	c.endRecv(r, fx)
}

// part is the length of a part in bytes.
func (m *Message[W]) part(ref Ref) int {
	first, count := ref.granules()
	return min(count*Granule, m.Envelope.Bytes()-first*Granule)
}

// Torn: the reader has let go of a Place in the receive's memory. If it was revoked, the rest of
// the frame is dropped; otherwise the frame comes again, if at all.
func (c *Core[W]) Torn(r *Recv[W], ref Ref, revoked bool, fx *Effects[W]) {
	r.landings--
	m := r.message
	switch {
	case !m.eager:
		r.placed.free(ref)
	case revoked || c.broken != nil:
		m.landing = false
		c.settle(m, fx)
	default:
		m.landing = false
		if r.cause != nil {
			c.unjoin(m, fx)
		}
	}
	if r.cause != nil && r.landings == 0 {
		c.endRecv(r, fx)
	}
}

func canceledBy(from op.Rank) error {
	return &fault.AbortError{Rank: from, Code: fault.CodeCanceled, Reason: "it gave the message up"}
}
