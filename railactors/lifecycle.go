package railactors

import (
	"fmt"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"google.golang.org/protobuf/proto"

	"github.com/polyrail/polyrail/collective/fault"
	"github.com/polyrail/polyrail/collective/peer"
	"github.com/polyrail/polyrail/messages"
)

// maxUnsettled bounds the closed generations that wait for a statement. More mean that
// connections break faster than two nodes can tell each other.
const maxUnsettled = 64

// partTimeout is how long a farewell waits for the other side to close.
const partTimeout = 500 * time.Millisecond

// farewell is the payload of the last frame to a peer that nobody here uses any more.
var farewell = func() []byte {
	b, err := proto.Marshal(&messages.Refuse{Code: messages.Refuse_LEAVING, Reason: "disconnected"})
	if err != nil {
		panic(err)
	}
	return b
}()

// lose declares the node lost: everything is closed, and once it is quiet, all frames are
// released and Inbound is told.
func (p *Peer) lose(reason string) {
	p.end(&fault.RankLostError{Rank: -1, Node: p.node, Reason: reason}, true)
}

// end closes everything. Only the first cause counts. If loud, Inbound hears of it.
func (p *Peer) end(cause error, loud bool) {
	fx := newEffects()
	p.mu.Lock()
	p.endLocked(cause, loud, fx)
	p.unlock(fx)
}

func (p *Peer) endLocked(cause error, loud bool, fx *effects) {
	if p.cause != nil {
		return
	}
	p.cause, p.state, p.loud = cause, ending, loud
	p.watch.Stop()
	if p.grace != nil {
		p.grace.Stop()
	}
	for _, c := range p.conns {
		if c != nil {
			c.failLocked(cause, fx)
		}
	}
	p.quieter(fx)
}

// quieter looks whether the last goroutine that could hold memory has let go.
func (p *Peer) quieter(fx *effects) {
	if p.unquiet > 0 {
		return
	}
	switch {
	case p.state == ending:
		p.state = ended
		p.core.Lose(&fx.Effects)
		fx.finish = true
	case p.state == leaving && p.farewell:
		p.endLocked(p.closedError(), false, fx)
	case p.parted && p.state < ending:
		// No loss: it has delivered all that it sent. Whoever still needs it hears of PeerLeft.
		p.endLocked(&fault.RankLostError{Rank: -1, Node: p.node, Reason: "it disconnected"}, false, fx)
	}
}

func (p *Peer) closedError() error {
	return fmt.Errorf("connection to node %q: %w", p.node, fault.ErrClosed)
}

// finish runs once, when everything was released.
func (p *Peer) finish() {
	p.mu.Lock()
	p.stopParting()
	p.finished, p.predecessor = true, nil
	p.mu.Unlock()
	p.unview()
	p.tellEnd()
	p.fabric.forget(p)
	over := &shut{peer: p}
	p.fabric.tell(p.fabric.office, over)
	for _, r := range p.fabric.rails {
		p.fabric.tell(r.pid.Load(), over)
	}
	close(p.ended)
}

// tellEnd tells Inbound how the peer ended: of a loss once; of a node that has left again whenever
// something was to be sent to it since; of a peer that this node left if something was.
func (p *Peer) tellEnd() {
	p.mu.Lock()
	left := p.finished && p.parted && !p.loud && (!p.told || p.missed)
	lost := p.finished && !p.told && !left && (p.loud || p.missed)
	p.told = p.told || left || lost
	p.missed = p.missed && !left
	cause := p.cause
	p.mu.Unlock()
	if left {
		p.fabric.in.PeerLeft(p, cause)
	}
	if lost {
		p.fabric.log.Warn("peer lost", "peer", p.node, "incarnation", p.incarnation, "reason", cause)
		p.fabric.in.PeerLost(p, cause)
	}
}

// leave decides to say farewell as soon as everything is acknowledged. A node that never connected
// has the rank timeout for it: where it is the one to dial, nothing else shows that it is dead.
// look must follow.
func (p *Peer) leave() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.state != active {
		return
	}
	p.state = leaving
	if p.met == 0 {
		p.partTimer = time.AfterFunc(p.fabric.cfg.RankTimeout, p.unmet)
	}
}

// unmet gives up a node that has not connected since leave.
func (p *Peer) unmet() {
	fx := newEffects()
	p.mu.Lock()
	if p.state == leaving && p.met == 0 {
		p.endLocked(p.closedError(), false, fx)
	}
	p.unlock(fx)
}

// stopParting stops the clock of the farewell. The caller holds mu.
func (p *Peer) stopParting() {
	if p.partTimer != nil {
		p.partTimer.Stop()
	}
}

// look says farewell if it is time.
func (p *Peer) look() {
	fx := newEffects()
	p.mu.Lock()
	p.unlock(fx)
}

func (p *Peer) idle() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.core.Idle()
}

// stay takes leave back. It returns false where it is too late.
func (p *Peer) stay() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.state == leaving && !p.farewell && !p.parted {
		p.state = active
		p.stopParting()
	}
	return p.state == active && !p.parted
}

// mayPart says farewell if it is time. The caller holds mu.
func (p *Peer) mayPart(fx *effects) {
	if p.state != leaving || p.farewell || !p.core.Idle() {
		return
	}
	p.farewell = true
	p.stopParting()
	p.partTimer = time.AfterFunc(partTimeout, func() { p.end(p.closedError(), false) })
	for _, c := range p.conns {
		if c != nil {
			c.urgent |= urgentFarewell
			fx.kicks = append(fx.kicks, c)
		}
	}
	p.quieter(fx)
}

// tick judges the peer's liveness, shows ours and closes dead rails.
func (p *Peer) tick() {
	fx := newEffects()
	p.mu.Lock()
	signals := make([]peer.Signal, len(p.signals))
	for i := range p.signals {
		s := &p.signals[i]
		signals[i] = peer.Signal{Heard: time.Duration(s.heard.Load()), Sent: time.Duration(s.sent.Load()), Busy: s.busy.Load()}
	}
	if p.met == 0 {
		p.live.Others(time.Duration(p.fabric.lastMet.Load()))
	}
	v := p.live.Tick(p.fabric.now(), signals)
	for r := range v.Ping.All() {
		if c := p.conns[r]; c != nil {
			c.urgent |= urgentPing
			fx.kicks = append(fx.kicks, c)
		}
	}
	for r := range v.Fail.All() {
		if c := p.conns[r]; c != nil {
			c.failLocked(fmt.Errorf("unheard for half of the rank timeout, %v", p.fabric.cfg.RankTimeout), fx)
		}
	}
	if n := p.core.Unsettled(); n > maxUnsettled && v.Lost == "" {
		v.Lost = fmt.Sprintf("%d connections broke before the nodes could settle", n)
	}
	if v.Lost != "" {
		if p.met == 0 || p.unbelieved() {
			v.Lost += ": " + p.obstacles()
		}
		p.endLocked(&fault.RankLostError{Rank: -1, Node: p.node, Reason: v.Lost}, true, fx)
	}
	p.unlock(fx)
}

// unreachable takes the failure of an attempt to connect. Only one of a process that is gone
// has consequences here; for others there is the rank timeout.
func (p *Peer) unreachable(rail int, err error) {
	fx := newEffects()
	p.mu.Lock()
	p.attempts[rail] = err
	switch {
	case isNotYet(err):
		if !p.unknownThere(fx) {
			p.signals[rail].heard.Store(int64(p.fabric.now()))
		}
	case isBusy(err):
		p.signals[rail].heard.Store(int64(p.fabric.now()))
	case isGone(err):
		p.endLocked(&fault.RankLostError{Rank: -1, Node: p.node, Reason: err.Error()}, true, fx)
	case isRefused(err) && p.live.Refused(rail):
		p.endLocked(&fault.RankLostError{Rank: -1, Node: p.node, Reason: "its host refuses connections on all rails"}, true, fx)
	}
	p.unlock(fx)
}

// bind makes the pair actor known, which then hears of connections. One may be up already.
func (p *Peer) bind(rail int, pid *actor.PID) (up *connection) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pairs[rail] = pid
	return p.conns[rail]
}

// unbind: the pair actor stops, and its connection with it.
func (p *Peer) unbind(rail int, pid *actor.PID) {
	fx := newEffects()
	p.mu.Lock()
	if p.pairs[rail].Equal(pid) {
		p.pairs[rail] = nil
	}
	if c := p.conns[rail]; c != nil {
		c.failLocked(errPairStopped, fx)
	}
	p.unlock(fx)
}

// tellPair sends to the pair's actor, if it runs.
func (p *Peer) tellPair(rail int, message any) {
	p.mu.Lock()
	pid := p.pairs[rail]
	p.mu.Unlock()
	if pid != nil {
		p.fabric.tell(pid, message)
	}
}

// needs reports whether the rail lacks a connection that somebody wants. A node that is
// dialed misses one only after the first contact.
func (p *Peer) needs(rail int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cause == nil && !p.farewell && !p.parted && p.conns[rail] == nil &&
		(p.dials || p.calls || p.met != 0)
}

// reason is why the connection failed, and whether the peer was to go on without it.
func (c *connection) reason() (err error, goesOn bool) {
	c.peer.mu.Lock()
	defer c.peer.mu.Unlock()
	return c.err, c.peer.cause == nil && !c.peer.farewell && !c.peer.parted
}

// cut is what the connection had on its way when it failed.
func (c *connection) cut() (cut peer.Cut) {
	c.peer.mu.Lock()
	defer c.peer.mu.Unlock()
	if last := c.peer.core.LastCut(c.rail); last.Generation == c.generation {
		cut = last
	}
	return cut
}
