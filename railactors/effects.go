package railactors

import (
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/polyrail/polyrail/collective/peer"
	"github.com/polyrail/polyrail/messages"
	"github.com/polyrail/polyrail/messages/wire"
)

// effects collects under Peer.mu what is to be done without it.
type effects struct {
	peer.Effects[*Frame]
	failed []*connection // to be closed
	kicks  []*connection // to be pumped
	finish bool          // the peer has ended and is quiet
}

var effectsPool = sync.Pool{New: func() any { return new(effects) }}

// none reports whether there is nothing to do.
func (fx *effects) none() bool {
	return fx.None() && len(fx.failed)|len(fx.kicks) == 0 && !fx.finish
}

func newEffects() *effects { return effectsPool.Get().(*effects) }

func (fx *effects) free() {
	fx.Effects.Reset()
	clear(fx.failed)
	clear(fx.kicks)
	fx.failed, fx.kicks, fx.finish = fx.failed[:0], fx.kicks[:0], false
	effectsPool.Put(fx)
}

// unlock releases mu and carries out the effects; fx is used up.
func (p *Peer) unlock(fx *effects) {
	if p.state == leaving || !fx.none() {
		p.expand(fx)
	}
	p.count(p.cause == nil && p.core.Busy())
	if fx.none() { // of most events of small frames
		p.mu.Unlock()
		effectsPool.Put(fx)
		return
	}
	released := fx.Released
	cause := p.cause
	p.mu.Unlock()

	for _, c := range fx.failed {
		c.conn.Close()
		p.tellPair(c.rail, &connectionLost{conn: c})
	}
	// Before the owners' callbacks, which may run a kernel: the other side waits for this.
	for _, c := range fx.kicks {
		c.pump()
	}
	for _, r := range released {
		if r.Frame.Owner != nil {
			r.Frame.Owner.Released(r.Frame, outcomeError(r.Outcome, cause))
		}
	}
	for i := range fx.Moves {
		p.moved(&fx.Moves[i])
	}
	finish := fx.finish
	fx.free()
	if finish {
		p.finish()
	}
}

// at tells the core the time, and how many peers share the rails. Under mu.
func (p *Peer) at(now time.Duration) { p.core.At(now, int(p.fabric.busy.Load())) }

// count keeps the number of peers that are sent to. Under mu.
func (p *Peer) count(busy bool) {
	switch {
	case busy && !p.busy:
		p.fabric.busy.Add(1)
	case p.busy && !busy:
		p.fabric.busy.Add(-1)
	}
	p.busy = busy
}

func outcomeError(o peer.Outcome, cause error) error {
	switch o {
	case peer.Delivered:
		return nil
	case peer.Revoked:
		return ErrRevoked
	}
	return cause
}

// expand turns what the core asks for into frames and into connections to be pumped.
func (p *Peer) expand(fx *effects) {
	if p.cause != nil {
		return // nothing is sent any more
	}
	for i := 0; i < len(fx.Wants); i++ {
		h := fx.Wants[i].Frame.Header
		h.Kind, h.Flags, h.Length = wire.KindWant, wire.FlagEager, 0
		p.sendAhead(fx.Wants[i].Rail, h, nil, fx)
	}
	for r := range fx.Close.All() {
		if c := p.conns[r]; c != nil {
			c.failLocked(errClosedByPeer, fx)
		}
	}
	for i := 0; i < len(fx.Statements); i++ {
		s := fx.Statements[i]
		payload, err := proto.Marshal(&messages.Control{Body: &messages.Control_RailClosed{RailClosed: &messages.RailClosed{
			Rail: p.fabric.rails[s.Rail].name, Generation: s.Generation, Received: s.Received, Answer: s.Answer}}})
		if err != nil {
			panic(err) // a name that isn't UTF-8 was refused at Start
		}
		p.core.Send(peer.Item[*Frame]{
			Frame: &Frame{Header: wire.Header{Kind: wire.KindControl, Length: uint32(len(payload))}, Payload: payload},
			Bytes: wire.Size + len(payload), Ahead: true, Restated: true,
		}, &fx.Effects)
	}
	p.mayPart(fx)
	for r := range fx.Arm.All() {
		if c := p.conns[r]; c != nil {
			c.ackTimer.Reset(p.fabric.cfg.AckDelay)
		}
	}
	for r := range fx.Ack.All() {
		if c := p.conns[r]; c != nil {
			c.urgent |= urgentAck
		}
	}
	for r := range (fx.Wake | fx.Ack).All() {
		if c := p.conns[r]; c != nil && (p.holds[r] == 0 || fx.Ack.Has(r)) {
			fx.kicks = append(fx.kicks, c)
		}
	}
}
