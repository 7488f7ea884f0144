package railactors

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/polyrail/polyrail/messages"
)

// This file is about what is said in a hello and contradicts what is known. Anybody can say it:
// without keys a node's name is a claim. So a claim ends nothing. It makes this node look, and what
// it then sees counts: a connection that lives outweighs the claim (docs/decisions/041).

// contested looks whether the process that p deals with is gone, since another one speaks in its
// node's name. It returns nil once this node has found that out by itself, and otherwise the
// refusal of the claim.
func (p *Peer) contested(host, claim string) *refusal {
	began := p.fabric.now()
	p.challenge()
	heard := func() bool {
		for i := range p.signals {
			if p.signals[i].heardSince(began) {
				return true
			}
		}
		return false
	}
	return p.observe(host, heard, func() bool { return p.Lost() != nil },
		"%s, but node %q has not lost incarnation %d of node %q", claim, p.fabric.cfg.Node, p.incarnation, p.node)
}

// vacate waits for the end of a connection on a rail to which a second one was made: the other node
// closed it, and the news of that are on their way, or somebody else has made the second one.
func (p *Peer) vacate(host string, rail int) *refusal {
	if !p.connectedOn(rail) {
		return nil
	}
	began := p.fabric.now()
	p.Ping(rail)
	return p.observe(host, func() bool { return p.signals[rail].heardSince(began) },
		func() bool { return !p.connectedOn(rail) },
		"rail %q of node %q is connected to node %q", p.fabric.rails[rail].name, p.fabric.cfg.Node, p.node)
}

func (p *Peer) connectedOn(rail int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.conns[rail] != nil
}

func (s *signal) heardSince(t time.Duration) bool { return time.Duration(s.heard.Load()) > t }

// observe waits until gone holds. It refuses if heard holds before, or after a quarter of the rank
// timeout: the other side needs to hear from this one.
func (p *Peer) observe(host string, heard, gone func() bool, format string, args ...any) *refusal {
	f := p.fabric
	f.mu.Lock()
	r := f.hold(host)
	f.mu.Unlock()
	if r != nil {
		return r
	}
	defer func() {
		f.mu.Lock()
		f.release(host)
		f.mu.Unlock()
	}()
	r = refuse(messages.Refuse_BUSY, format, args...)
	limit := time.Now().Add(f.cfg.RankTimeout / 4)
	for pause := time.Millisecond / 4; !gone(); pause *= 2 {
		left := time.Until(limit)
		if heard() || left <= 0 {
			return r
		}
		select {
		case <-time.After(min(pause, left)):
		case <-p.ended:
		case <-f.done:
			return r
		}
	}
	return nil
}

// follows reports whether a generation of a rail can be the next one. Whoever could make it jump to
// the last number there is would end the rail.
func (p *Peer) follows(rail int, generation uint64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.core.Follows(rail, generation)
}

// doubted has the peer looked for, since another process of its node is to be connected to, and is
// the error of that. If the peer is gone it is lost within the rank timeout.
func (p *Peer) doubted(incarnation uint64) error {
	p.challenge()
	return fmt.Errorf("connection to node %q, incarnation %d: incarnation %d of it is not known to be gone",
		p.node, incarnation, p.incarnation)
}

// challenge asks the peer for a sign of life. One that is dormant, or has yet to dial, is watched from
// now on.
func (p *Peer) challenge() {
	p.Wake()
	for r := range p.fabric.rails {
		p.Ping(r)
		p.tellPair(r, &railBack{}) // where it isn't connected: whoever answers there is evidence
	}
}

// sessionBits is how many bits of a session's number are random: nobody can speak in another node's
// name on a rail that it has lost, unless it sees what the two say to each other. Only the other
// bits have an order: whoever could ask "higher or lower" would find the number.
const sessionBits = 40

// later reports whether a session follows another one of the same process. After the highest order
// comes the lowest, so the difference counts.
func later(session, than uint64) bool {
	return int64(session>>sessionBits<<sessionBits-than>>sessionBits<<sessionBits) > 0
}

// nextSession numbers this node's dealings with another one. The caller holds mu.
func (f *Fabric) nextSession() uint64 {
	f.sessions++
	var random [8]byte
	rand.Read(random[:]) // never fails
	return f.sessions<<sessionBits | binary.LittleEndian.Uint64(random[:])>>(64-sessionBits)
}
