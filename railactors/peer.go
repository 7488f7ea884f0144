package railactors

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"google.golang.org/protobuf/proto"

	"github.com/polyrail/polyrail/collective/fault"
	"github.com/polyrail/polyrail/collective/peer"
	"github.com/polyrail/polyrail/messages"
	"github.com/polyrail/polyrail/messages/wire"
	"github.com/polyrail/polyrail/railactors/transport"
)

// maxControlQueue bounds the control frames that wait for one peer.
const maxControlQueue = 4096

// Peer is a remote node as seen from here. It owns what must survive the loss of a
// connection and the restart of an actor: unacknowledged frames, queues, credits. All its
// methods may be called from any goroutine; none blocks but WaitReady.
//
// Its core is guarded by mu. Nobody calls out, writes or waits while holding mu: what an
// event leads to is collected as effects and carried out after mu is released. The
// only lock taken before mu is Fabric.mu.
type Peer struct {
	fabric      *Fabric
	node        string
	incarnation uint64
	session     uint64                       // this node's number for its dealings with that one
	addrs       []string                     // by rail index; empty: no device; under mu
	reach       peer.Rails                   // rails that can connect the two nodes; under mu
	dials       bool                         // this side dials
	calls       bool                         // the other side is to be asked to dial; under mu
	signals     []signal                     // by rail index
	pollable    []atomic.Pointer[connection] // by rail index; for Poll; set under mu
	attended    []atomic.Int32               // by rail index: callers between Attend and Leave
	quiets      []atomic.Bool                // by rail index: hushed though nobody attends
	left        []atomic.Bool                // by rail index: after Attend, since the last look at what is quiet
	users       int                          // Connect less Disconnect; guarded by fabric.mu
	awake       atomic.Bool                  // it is to be connected: dormant.go
	wanted      atomic.Bool                  // this node has called Wake
	lingers     *time.Timer                  // after the last Disconnect; guarded by fabric.mu

	ready chan struct{} // closed when the peer may be used: ready.go
	ended chan struct{} // closed when nothing of it is in use any more

	mu sync.Mutex
	// It has yet to say farewell to the same process; nil if none, and once this one is connected.
	predecessor   *Peer
	shown         *transport.Memory // what its process shows; nil: nothing that is known
	core          *peer.Core[*Frame]
	live          *peer.Liveness
	silence       *peer.Silence
	silentSince   []time.Duration // by rail index: when silence closed it; 0 if something else did, or it is up
	watch         *time.Timer     // of the next check for silence
	watching      bool            // it runs
	hasWritten    bool            // since the last check
	state         state
	cause         error         // why it ended
	loud          bool          // it was lost
	missed        bool          // something was to be sent after it ended, and Inbound does not know
	finished      bool          // all frames were released
	told          bool          // PeerLost or PeerLeft was called
	remoteSession uint64        // 0 until the first Hello
	conns         []*connection // by rail index; nil where there is none
	holds         []int         // by rail index: batches that hold what is sent
	proposed      []uint64      // by rail index: last generation that this side proposed
	met           peer.Rails    // rails that were connected once
	attempts      []error       // by rail index: what the last attempt to connect came to
	unquiet       int           // connections of which some goroutine may hold memory
	busy          bool          // counted in Fabric.busy
	parted        bool          // a farewell came in
	farewell      bool          // a farewell went out
	partTimer     *time.Timer   // until then the other side is to connect, or close after a farewell
	isReady       bool
	agreed        bool         // the other node knew this one: Agreed
	grace         *time.Timer  // of the rails that were connected later; nil before
	pairs         []*actor.PID // by rail index; nil where no actor runs
}

// signal is what the liveness of a rail is judged by. Times are since Fabric.start.
type signal struct {
	heard, sent atomic.Int64
	busy        atomic.Bool
}

// state is where a peer is in its life. It only goes forward, but for leaving → active.
type state uint8

const (
	active  state = iota
	leaving       // nobody uses it: farewell when everything is acknowledged
	ending        // its cause is known; goroutines are on their way out
	ended         // everything was released
)

func newPeer(f *Fabric, r Remote, addrs []string) *Peer {
	n := len(addrs)
	p := &Peer{
		fabric: f, node: r.Node, incarnation: r.Incarnation, session: f.nextSession(), addrs: addrs,
		dials: f.cfg.Node < r.Node, signals: make([]signal, n),
		pollable: make([]atomic.Pointer[connection], n), attended: make([]atomic.Int32, n),
		quiets: make([]atomic.Bool, n), left: make([]atomic.Bool, n),
		ready: make(chan struct{}), ended: make(chan struct{}),
		core: peer.New[*Frame](peer.Config{Rails: n, InFlightBytes: f.cfg.InFlightBytes, AckBytes: f.cfg.AckBytes,
			CreditBytes: max(1, f.cfg.CreditBytes/4), GivenBytes: f.cfg.CreditBytes,
			AckDelay: f.cfg.AckDelay, Preferred: f.within()}),
		reach: f.reach(addrs),
		live:  peer.NewLiveness(f.cfg.RankTimeout, n, f.now()),
		conns: make([]*connection, n), holds: make([]int, n), attempts: make([]error, n), proposed: make([]uint64, n), pairs: make([]*actor.PID, n),
	}
	p.silence, p.silentSince = peer.NewSilence(f.cfg.RailTimeout, n), make([]time.Duration, n)
	p.watch = time.AfterFunc(time.Hour, p.checkSilence)
	p.watch.Stop()
	p.live.Reach(p.reach)
	return p
}

// Node is the remote node's id.
func (p *Peer) Node() string { return p.node }

// Incarnation is that of the remote process.
func (p *Peer) Incarnation() uint64 { return p.incarnation }

// Lost is nil as long as the peer can be used, and otherwise why it can't.
func (p *Peer) Lost() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cause
}

// LastHeard is when the remote runtime was last heard on any rail; the zero time before that.
func (p *Peer) LastHeard() time.Time {
	var last int64
	for i := range p.signals {
		last = max(last, p.signals[i].heard.Load())
	}
	if last == 0 {
		return time.Time{}
	}
	return p.fabric.start.Add(time.Duration(last))
}

// HeardAt is when a rail last brought something of the remote runtime, counted from since. For
// Inbound.Land and a Receiver it is when the frame's header, or the rest of it, had come.
func (p *Peer) HeardAt(rail int, since time.Time) time.Duration {
	return p.fabric.start.Sub(since) + time.Duration(p.signals[rail].heard.Load())
}

// usable reports whether frames may still be exchanged.
func (p *Peer) usable() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cause == nil && !p.farewell && !p.parted
}

// Send takes a frame of kind Data or Grant for its rail, or for another one while that is
// down. It never blocks: a small frame is written at once if the rail is free, others
// are queued. The caller bounds how much it queues. When the peer has ended the frame is released
// with the reason before Send returns; so is one that is longer than wire.MaxPayload, which the
// other node would refuse each time that it came.
func (p *Peer) Send(fr *Frame) {
	if n := len(fr.Payload); n > wire.MaxPayload {
		if fr.Owner != nil {
			fr.Owner.Released(fr, fmt.Errorf("frame to node %q: %d bytes, the limit is %d: %w",
				p.node, n, wire.MaxPayload, fault.ErrLimit))
		}
		return
	}
	p.Wake()
	it := peer.Item[*Frame]{
		Frame: fr, Rail: fr.Rail, Rails: fr.Rails, Bytes: wire.Size + len(fr.Payload), Ahead: fr.Header.Kind != wire.KindData,
		Announced: fr.Announced,
		Op:        peer.Operation{Comm: fr.Header.Comm, Seq: fr.Header.Seq},
	}
	if !it.Ahead && fr.Header.Flags&(wire.FlagEager|wire.FlagUncredited) == wire.FlagEager {
		it.Credit = len(fr.Payload) + wire.EagerCost
	}
	fx := newEffects()
	p.mu.Lock()
	if p.cause != nil {
		cause := p.cause
		p.missed = true
		p.mu.Unlock()
		fx.free()
		if fr.Owner != nil {
			fr.Owner.Released(fr, cause)
		}
		p.tellEnd()
		return
	}
	if it.Rails != 0 {
		p.at(p.fabric.now())
	}
	p.core.Send(it, &fx.Effects)
	p.unlock(fx)
}

// Expect announces that Send will be given so many bytes more of data, with headers, for a rail.
// Frames that are Announced count as sent. A negative number takes back what won't be.
func (p *Peer) Expect(rail, bytes int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.core.Expect(rail, bytes)
}

// Expected is what was announced for a rail and has yet to be sent.
func (p *Peer) Expected(rail int) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.core.Expected(rail)
}

// SendControl sends a control message over whichever rail is up, ahead of data. It fails when the
// peer has ended, when the message is longer than wire.MaxControl, or when too many wait. Messages
// that end something (Abort, LeaveAck) have as much room again; a peer that takes none of those is
// lost.
func (p *Peer) SendControl(m *messages.Control) error {
	payload, err := proto.Marshal(m)
	if err != nil {
		return fmt.Errorf("control message to node %q: %w: %w", p.node, fault.ErrInternal, err)
	}
	if len(payload) > wire.MaxControl {
		return fmt.Errorf("control message to node %q: %d bytes, the limit is %d: %w", p.node, len(payload), wire.MaxControl, fault.ErrLimit)
	}
	p.Wake()
	fx := newEffects()
	p.mu.Lock()
	if p.cause != nil {
		cause := p.cause
		p.missed = true
		p.mu.Unlock()
		fx.free()
		p.tellEnd()
		return cause
	}
	if n := p.core.QueuedAhead(); n >= maxControlQueue && (!endsSomething(m) || n >= 2*maxControlQueue) {
		if endsSomething(m) {
			p.endLocked(&fault.RankLostError{Rank: -1, Node: p.node,
				Reason: fmt.Sprintf("%d control messages wait for it", n)}, true, fx)
		}
		p.unlock(fx)
		return fmt.Errorf("node %q: %d control messages wait: %w", p.node, n, fault.ErrLimit)
	}
	p.sendAhead(0, wire.Header{Kind: wire.KindControl, Comm: m.Comm}, payload, fx)
	p.unlock(fx)
	return nil
}

// endsSomething reports whether the other node would wait for ever without the message.
func endsSomething(m *messages.Control) bool {
	switch m.Body.(type) {
	case *messages.Control_Abort, *messages.Control_LeaveAck:
		return true
	}
	return false
}

// sendAhead queues a frame of the runtime's own, for a rail or for another one while that is down.
// The caller holds mu.
func (p *Peer) sendAhead(rail int, h wire.Header, payload []byte, fx *effects) {
	h.Length = uint32(len(payload))
	p.core.Send(peer.Item[*Frame]{Frame: &Frame{Header: h, Payload: payload, Rail: rail}, Rail: rail,
		Bytes: wire.Size + len(payload), Ahead: true}, &fx.Effects)
}

// GrantEager answers Inbound.Wanted: the remote node may send the operation's waiting frames
// without credit.
func (p *Peer) GrantEager(comm, seq uint64) {
	fx := newEffects()
	p.mu.Lock()
	if p.cause != nil {
		p.unlock(fx)
		return
	}
	p.sendAhead(0, wire.Header{Kind: wire.KindGrant, Flags: wire.FlagEager | wire.FlagUncredited,
		Comm: comm, Seq: seq}, nil, fx)
	p.unlock(fx)
}

// ReturnCredit gives the remote node credit back: the data of an eager, credited frame that
// arrived doesn't take up room here any more. Bytes is its Header.Length. It is
// called once for each such frame that Receiver.Arrived told of and whose Landing Keeps it.
func (p *Peer) ReturnCredit(bytes int) {
	fx := newEffects()
	p.mu.Lock()
	p.core.ReturnCredit(bytes+wire.EagerCost, &fx.Effects)
	p.unlock(fx)
}

// revoke is Fabric.Revoke for this peer.
func (p *Peer) revoke(owner any) {
	fx := newEffects()
	p.mu.Lock()
	held := p.core.Revoke(func(fr *Frame) bool { return fr.Owner != nil && any(fr.Owner) == owner }, &fx.Effects)
	for r, c := range p.conns {
		if c == nil {
			continue
		}
		if held.Has(r) {
			c.hurry()
		}
		c.landing.revoke(owner, c.conn)
	}
	p.unlock(fx)
}
