package railactors

import (
	"fmt"
	"time"

	"github.com/polyrail/polyrail/messages"
)

// awaiting are the handshakes that wait for Connect to be called for a node.
type awaiting struct {
	called chan struct{} // closed by Connect
	held   int
}

// expect finds the peer that a hello comes from, and waits for Connect if that was not called here yet.
func (f *Fabric) expect(h *messages.Hello, host string) (*Peer, error) {
	timeout := time.NewTimer(f.cfg.RankTimeout / 4) // the other side needs to hear from us
	defer timeout.Stop()
	for {
		p, w, err := f.lookup(h, host)
		if p != nil || err != nil {
			return p, err
		}
		select {
		case <-w.called:
		case <-timeout.C:
			f.unhold(h.Node, host, w)
			return nil, refuse(messages.Refuse_NOT_YET, "node %q has not asked for node %q yet", f.cfg.Node, h.Node)
		case <-f.done:
			f.unhold(h.Node, host, w)
			return nil, refuse(messages.Refuse_GONE, "node %q closes", f.cfg.Node)
		}
		f.unhold(h.Node, host, w)
	}
}

// lookup returns the peer, or what tells that Connect is called for the node; then unhold must be
// called.
func (f *Fabric) lookup(h *messages.Hello, host string) (*Peer, *awaiting, error) {
	f.mu.Lock()
	p := f.peers[h.Node]
	f.mu.Unlock()
	if p != nil {
		switch {
		case h.Incarnation < p.incarnation:
			return nil, nil, refuse(messages.Refuse_GONE, "incarnation %d of node %q is gone, there is %d", h.Incarnation, h.Node, p.incarnation)
		case h.Incarnation > p.incarnation:
			if r := p.contested(host, fmt.Sprintf("incarnation %d of it has come up", h.Incarnation)); r != nil {
				return nil, nil, r
			}
		case p.startedOver(h):
			if r := p.contested(host, "it has lost this node and started over"); r != nil {
				return nil, nil, r
			}
		}
		if p.usable() {
			return p, nil, nil
		}
		if h.ToSession == p.session && p.Lost() == nil {
			return nil, nil, p.parting()
		}
	}
	if h.ToSession != 0 {
		return nil, nil, f.over(h.ToSession, f.whyLost(h.Node, h.ToSession))
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if r := f.hold(host); r != nil {
		return nil, nil, r
	}
	if f.peers[h.Node] != p {
		w := &awaiting{called: make(chan struct{}), held: 1} // it was called meanwhile
		close(w.called)
		return nil, w, nil
	}
	w := f.awaited[h.Node]
	if w == nil {
		w = &awaiting{called: make(chan struct{})}
		f.awaited[h.Node] = w
	}
	w.held++
	return nil, w, nil
}

// hold lets one more handshake wait. Each ends with release. The caller holds mu, for both.
func (f *Fabric) hold(host string) *refusal {
	if f.held >= maxHeld || f.heldOf[host] >= maxHeldPerHost {
		return refuse(messages.Refuse_BUSY, "%d connections wait at node %q, %d of them from there",
			f.held, f.cfg.Node, f.heldOf[host])
	}
	f.held++
	f.heldOf[host]++
	return nil
}

func (f *Fabric) release(host string) {
	f.held--
	if f.heldOf[host]--; f.heldOf[host] <= 0 {
		delete(f.heldOf, host)
	}
}

// unhold: a handshake doesn't wait for Connect any more. The last one to leave takes the entry
// along: nodes that are never asked for must leave nothing behind.
func (f *Fabric) unhold(node, host string, w *awaiting) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.release(host)
	if w.held--; w.held == 0 && f.awaited[node] == w {
		delete(f.awaited, node)
	}
}
