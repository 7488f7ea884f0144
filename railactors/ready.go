package railactors

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/polyrail/polyrail/collective/peer"
	"github.com/polyrail/polyrail/railactors/transport/secure"
	"github.com/polyrail/polyrail/railactors/transport/secure/keys"
)

// formGrace is how long the other rails have, after the first one connected two nodes, before the
// peer is used without them. They are dialed on, and used once they are connected.
const formGrace = 500 * time.Millisecond

// Ready is closed when the peer may be used: all rails were connected, or one was and the others
// have had their grace. It stays open if the peer ends before.
func (p *Peer) Ready() <-chan struct{} { return p.ready }

// Whole reports whether every rail that can connects the two nodes.
func (p *Peer) Whole() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.missing() == 0
}

// Missing are the rails that can connect the two nodes, and don't now. Before the peer may be used
// nothing is missing yet.
func (p *Peer) Missing() peer.Rails {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.isReady {
		return 0
	}
	return p.missing()
}

// reached are the rails that can connect the two nodes.
func (p *Peer) reached() peer.Rails {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.reach
}

// missing is Missing for who holds mu.
func (p *Peer) missing() (missing peer.Rails) {
	for r, c := range p.conns {
		if c == nil && p.reach.Has(r) {
			missing.Add(r)
		}
	}
	return missing
}

// WaitReady waits until the peer may be used: see Ready. The error says why the peer ended, or
// wraps the context's, and names the node, and each rail with what keeps it.
func (p *Peer) WaitReady(ctx context.Context) error {
	select {
	case <-p.ready:
		return nil
	case <-p.ended:
	case <-ctx.Done():
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.isReady:
		return nil
	case p.cause != nil: // it names the node, and the rails if none was ever connected
		return p.cause
	}
	return fmt.Errorf("node %q: not connected on %s: %w", p.node, p.obstacles(), context.Cause(ctx))
}

// obstacles names the rails that aren't connected, with what keeps each. The caller holds mu.
func (p *Peer) obstacles() string {
	var list []string
	for r := range p.missing().All() {
		list = append(list, fmt.Sprintf("rail %s (%v)", p.fabric.rails[r].name, p.obstacle(r)))
	}
	return strings.Join(list, ", ")
}

// unbelieved reports whether one of the two nodes does not believe the other one's certificate, so that a
// rail that is down can't be connected: no fault of a network. The caller holds mu.
func (p *Peer) unbelieved() bool {
	for r := range p.missing().All() {
		if err := p.attempts[r]; errors.Is(err, keys.ErrKeys) || errors.Is(err, secure.ErrUnbelieved) {
			return true
		}
	}
	return false
}

var (
	errNotDialed   = errors.New("it has not dialed")
	errNotAnswered = errors.New("it has not answered yet")
	errNotHere     = errors.New("both nodes are said to be on one host: if they are not, give each host " +
		"another name (--host), or rails stay unused")
)

// obstacle is what keeps a rail from being connected, as far as it is known here. The caller holds
// mu.
func (p *Peer) obstacle(rail int) error {
	err := errNotDialed
	switch {
	case p.attempts[rail] != nil:
		err = p.attempts[rail]
	case p.dials:
		err = errNotAnswered
	}
	if rail == p.fabric.memory {
		return fmt.Errorf("%w: %w", errNotHere, err)
	}
	return err
}

// nearReady is called when a rail was connected. The caller holds mu.
func (p *Peer) nearReady() {
	switch {
	case p.isReady:
	case p.missing() == 0:
		p.setReady()
	case p.grace == nil:
		p.grace = time.AfterFunc(formGrace, p.graceEnded)
	}
}

func (p *Peer) setReady() {
	p.isReady = true
	if p.grace != nil {
		p.grace.Stop()
	}
	close(p.ready)
}

// graceEnded lets the peer be used with the rails that there are, and tells of those that are
// missing.
func (p *Peer) graceEnded() {
	p.mu.Lock()
	missing := p.missing()
	if p.isReady || p.cause != nil || missing == p.reach {
		p.grace = nil // begins again with the next connection
		p.mu.Unlock()
		return
	}
	var events []PairEvent
	for r := range missing.All() {
		events = append(events, PairEvent{Kind: PairDown, Node: p.node,
			Rail: p.fabric.rails[r].name, Err: p.obstacle(r)})
	}
	p.setReady()
	p.mu.Unlock()
	for _, e := range events {
		p.fabric.log.Warn("pair isn't connected, going on without it", "peer", e.Node,
			"rail", e.Rail, "reason", e.Err)
		p.fabric.report(e)
	}
}
