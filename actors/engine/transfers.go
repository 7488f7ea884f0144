package engine

import (
	"sync"

	"github.com/polyrail/polyrail/collective/fault"
	"github.com/polyrail/polyrail/collective/op"
	"github.com/polyrail/polyrail/collective/p2p"
	"github.com/polyrail/polyrail/messages/wire"
	"github.com/polyrail/polyrail/railactors"
)

// Limits of the messages of one communicator. All nodes have the same.
const (
	transferEager   = 64 << 10  // the largest message that goes before a receive is there for it
	transferCredit  = 256 << 10 // of such messages, kept of each rank
	transferWindow  = 3 << 20   // queued per rank and rail; above what a pair has in flight
	transferGranted = 64        // messages of one rank whose bytes may be on their way at once
	maxTransfers    = 1 << 16   // sends that have not ended, and as many receives
)

// Transfers is the data path of a communicator's messages between two ranks: the core, and the
// memory that it speaks of. There is no actor: whoever brings an event takes mu for the core's
// step only, and carries out the answer itself.
//
// Lock order: group.mu and mu are never held together.
type Transfers struct {
	group        *Group
	id           uint64 // on the wire
	sends, recvs chan struct{}
	paces        paces

	mu     sync.Mutex
	core   *p2p.Core[*Transfer] // made when it is first needed
	closed bool                 // nothing is started any more
}

// TransferID is the wire id of a communicator's messages by its own, and the reverse. So it is
// registered with the communicator.
func TransferID(comm uint64) uint64 { return comm ^ 0x9e3779b97f4a7c15 }

func newTransfers(g *Group) *Transfers {
	return &Transfers{group: g, id: TransferID(g.ID), sends: make(chan struct{}, maxTransfers),
		recvs: make(chan struct{}, maxTransfers)}
}

// locked returns the core. Under mu.
func (x *Transfers) locked() *p2p.Core[*Transfer] {
	if x.core == nil {
		x.core = p2p.New[*Transfer](p2p.Config{
			Size: x.group.Size, Rails: x.group.engine.Rails,
			EagerBytes: transferEager, CreditBytes: transferCredit, WindowBytes: transferWindow,
			Granted: transferGranted, Open: maxTransfers,
			Help: !x.group.engine.Config.PinFrames,
		})
	}
	return x.core
}

// transferEffects is what an event leads to, worked off in order: the work on one item may add
// others.
type transferEffects struct {
	p2p.Effects[*Transfer]
	frame, freed, revoked, copied, done int // that many were worked off
}

var transferEffectsPool = sync.Pool{New: func() any { return new(transferEffects) }}

// do lets the core take a step, and carries out what it answers.
func (x *Transfers) do(step func(*p2p.Core[*Transfer], *p2p.Effects[*Transfer]) error) error {
	fx := transferEffectsPool.Get().(*transferEffects)
	err := x.step(fx, step)
	x.carry(fx)
	return err
}

func (x *Transfers) step(fx *transferEffects,
	step func(*p2p.Core[*Transfer], *p2p.Effects[*Transfer]) error) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	return step(x.locked(), &fx.Effects)
}

// carry works the effects off, and uses them up. Nothing is locked.
func (x *Transfers) carry(fx *transferEffects) {
	e := x.group.engine
	for {
		switch {
		case fx.frame < len(fx.Frames):
			fx.frame++
			x.transmit(&fx.Frames[fx.frame-1], fx)
		case fx.freed < len(fx.Free):
			fx.freed++
			if b := fx.Free[fx.freed-1]; !b.Own {
				e.Pool.Put(b.Bytes)
			}
		case fx.revoked < len(fx.Revoke):
			fx.revoked++
			e.Revoke(fx.Revoke[fx.revoked-1])
		case fx.copied < len(fx.Copies):
			fx.copied++
			c := &fx.Copies[fx.copied-1]
			copy(c.Recv.Work.buf, c.Message.Data.Bytes)
			x.mu.Lock()
			x.locked().Copied(c.Message, &fx.Effects)
			x.mu.Unlock()
		case fx.done < len(fx.Done):
			fx.done++
			d := &fx.Done[fx.done-1]
			d.Work.finish(d)
		default:
			fx.Reset()
			*fx = transferEffects{Effects: fx.Effects}
			transferEffectsPool.Put(fx)
			return
		}
	}
}

// transmit hands a frame to its peer.
func (x *Transfers) transmit(f *p2p.Frame[*Transfer], fx *transferEffects) {
	if f.To == x.group.Rank {
		x.loop(*f, fx) // a copy: fx.Frames may move
		return
	}
	e := x.group.engine
	to, work := x.group.Peers[f.To], f.Send
	fr := frames.Get().(*railactors.Frame)
	fr.Header, fr.Rail = x.header(f)
	fr.Owner = e.copies
	switch f.Verb {
	case p2p.Eager:
		fr.Payload = work.Data
	case p2p.Part:
		if !e.Config.PinFrames {
			for rail := range e.Rails {
				if work.Carries(rail) {
					fr.Rails.Add(rail)
				}
			}
		}
		fr.Payload, fr.Owner, fr.Tag = work.Work.buf[f.Offset:f.Offset+f.Length], work.Work, uint64(f.Rail)
	case p2p.Cancel:
		fr.Owner = (*cancelNotice)(work.Work)
	}
	part := f.Verb == p2p.Part
	to.Send(fr)
	if !part {
		return
	}
	x.mu.Lock()
	late := work.GivenUp()
	x.mu.Unlock()
	if late { // since the core said so: the revocation may have missed this frame
		e.Revoke(work.Work)
	}
}

// loop delivers a frame to this rank itself: as a reader does, without a wire.
func (x *Transfers) loop(f p2p.Frame[*Transfer], fx *transferEffects) {
	place, err := x.take(x.group.Rank, &f, fx)
	if err != nil {
		x.group.Fail(err, 0)
	}
	x.fill(&f, place, fx)
	switch f.Verb {
	case p2p.Eager:
		x.group.engine.Pool.Put(f.Send.Data)
	case p2p.Part:
		x.mu.Lock()
		defer x.mu.Unlock()
		x.locked().Released(f.Send, f.Rail, f.Length, nil, &fx.Effects)
	case p2p.Cancel:
		<-x.sends
	}
}

// fill copies a frame's payload to where it lands.
func (x *Transfers) fill(f *p2p.Frame[*Transfer], p p2p.Place[*Transfer], fx *transferEffects) {
	if p.Recv == nil && p.Message == nil {
		return
	}
	payload := []byte(nil)
	if f.Verb == p2p.Eager {
		payload = f.Send.Data
	} else {
		payload = f.Send.Work.buf[f.Offset : f.Offset+f.Length]
	}
	copy(x.memory(&p, f.Length), payload)
	x.mu.Lock()
	defer x.mu.Unlock()
	if p.Recv != nil {
		x.locked().Arrived(p.Recv, p.Ref, &fx.Effects)
	} else {
		x.locked().ArrivedHeld(p.Message, &fx.Effects)
	}
}

// memory is where a frame lands; never nil, so that a landing of no bytes is not taken for a sink.
func (x *Transfers) memory(p *p2p.Place[*Transfer], length int) []byte {
	if p.Recv != nil {
		if length == 0 {
			return nothing[:0]
		}
		return p.Recv.Work.buf[p.Offset : p.Offset+length]
	}
	d := &p.Message.Data
	if d.Bytes == nil {
		d.Bytes = x.group.engine.Pool.Get(length)
	}
	if d.Bytes == nil { // the pool is at its limit; the credit bounds what this can be
		d.Bytes, d.Own = make([]byte, length), true
	}
	return d.Bytes
}

// Land answers a reader: where does this data frame go?
func (x *Transfers) Land(from *railactors.Peer, h *wire.Header) (railactors.Landing, error) {
	rank, f, err := x.parse(from, h)
	if err != nil {
		return railactors.Landing{}, err
	}
	fx := transferEffectsPool.Get().(*transferEffects)
	defer x.carry(fx)
	place, err := x.take(rank, f, fx)
	switch {
	case err != nil:
	case place.Recv != nil:
		return railactors.Landing{Dst: x.memory(&place, f.Length), Receiver: place.Recv.Work,
			Tag: uint64(place.Ref)}, nil
	case place.Message != nil:
		return railactors.Landing{Dst: x.memory(&place, f.Length),
			Receiver: &heldMessage{x, place.Message}}, nil
	case f.Verb == p2p.Eager || f.Verb == p2p.Part:
		x.group.DroppedFrames.Add(1)
	}
	return railactors.Landing{}, err
}

// Answered takes a Grant or a Credit.
func (x *Transfers) Answered(from *railactors.Peer, h *wire.Header) error {
	rank, f, err := x.parse(from, h)
	if err != nil {
		return err
	}
	fx := transferEffectsPool.Get().(*transferEffects)
	defer x.carry(fx)
	_, err = x.take(rank, f, fx)
	return err
}

// take tells the core of a frame.
func (x *Transfers) take(from op.Rank, f *p2p.Frame[*Transfer],
	fx *transferEffects) (p p2p.Place[*Transfer], err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	core := x.locked()
	switch f.Verb {
	case p2p.Eager:
		return core.Eager(from, f.Number, f.Envelope, f.Length, &fx.Effects)
	case p2p.Part:
		return core.Part(from, f.Number, f.Offset, f.Length)
	case p2p.Ask:
		err = core.Asked(from, f.Number, f.Envelope, &fx.Effects)
	case p2p.Cancel:
		err = core.Canceled(from, f.Number, &fx.Effects)
	case p2p.Refuse:
		err = core.Refused(from, f.Number, f.Envelope, &fx.Effects)
	case p2p.Drop:
		err = core.Dropped(from, f.Number, &fx.Effects)
	case p2p.Grant, p2p.Credit:
		if err = core.Credited(from, f.Credit); err == nil && f.Verb == p2p.Grant {
			err = core.Granted(from, f.Number, &fx.Effects)
		}
	}
	return p, err
}

// heldMessage is an eager message whose frame goes to memory of the runtime.
type heldMessage struct {
	transfers *Transfers
	message   *p2p.Message[*Transfer]
}

// Arrived implements railactors.Receiver.
func (m *heldMessage) Arrived(uint64, *railactors.Batch) {
	_ = m.transfers.do(func(c *p2p.Core[*Transfer], fx *p2p.Effects[*Transfer]) error {
		c.ArrivedHeld(m.message, fx)
		return nil
	})
}

// Torn implements railactors.Receiver.
func (m *heldMessage) Torn(uint64, error) {
	_ = m.transfers.do(func(c *p2p.Core[*Transfer], fx *p2p.Effects[*Transfer]) error {
		c.TornHeld(m.message, fx)
		return nil
	})
}

// Break ends all transfers of a communicator that is broken.
func (x *Transfers) Break(cause error) {
	_ = x.do(func(c *p2p.Core[*Transfer], fx *p2p.Effects[*Transfer]) error {
		c.Break(cause, fx)
		return nil
	})
}

// Depart: a rank closes the communicator after so many messages to this one.
func (x *Transfers) Depart(rank op.Rank, sent uint64) {
	cause := &fault.AbortError{Rank: rank, Code: fault.CodeClosed, Reason: "it closed the communicator"}
	_ = x.do(func(c *p2p.Core[*Transfer], fx *p2p.Effects[*Transfer]) error {
		c.Departed(rank, sent, cause, fx)
		return nil
	})
}

// Leave ends the starting of transfers, and returns how many messages went to a rank.
func (x *Transfers) Leave(to op.Rank) (sent uint64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.closed = true
	return x.locked().Sent(to)
}

// weights are the rails' shares of a message.
func (x *Transfers) weights(bytes int) []uint32 {
	t := x.group.Table.Load()
	if t == nil { // the communicator is being formed
		t = x.group.First
	}
	return t.Lookup(int64(bytes)).Weights
}

// mainRail is the rail with the greatest share.
func mainRail(weights []uint32) (rail int) {
	for i, w := range weights {
		if w > weights[rail] {
			rail = i
		}
	}
	return rail
}
