package railactors

import "github.com/polyrail/polyrail/messages"

// maxLosses bounds the nodes of which it is remembered why they were lost. Others learn only that
// they were.
const maxLosses = 1024

// loss is why this node's dealings with another one ended. The other process may live: it was
// stopped, or cut off, for longer than the rank timeout. When it comes back it asks for the
// session, and is told.
type loss struct {
	session uint64
	cause   error
}

// remember keeps why a peer that was lost is gone. The caller holds Fabric.mu.
func (f *Fabric) remember(p *Peer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.loud {
		return
	}
	if _, known := f.losses[p.node]; !known && len(f.losses) >= maxLosses {
		for node := range f.losses {
			delete(f.losses, node)
			break
		}
	}
	f.losses[p.node] = loss{p.session, p.cause}
}

// whyLost is why the session with the node ended, as far as that is remembered.
func (f *Fabric) whyLost(node string, session uint64) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if p := f.peers[node]; p != nil && p.session == session { // it is about to be forgotten
		return p.Lost()
	}
	if l := f.losses[node]; l.session == session {
		return l.cause
	}
	return nil
}

// over is what a node is told that asks for a session of the past.
func (f *Fabric) over(session uint64, cause error) *refusal {
	if cause == nil {
		return refuse(messages.Refuse_GONE, "session %d of node %q has ended", session, f.cfg.Node)
	}
	return refuse(messages.Refuse_GONE, "session %d of node %q has ended: %v", session, f.cfg.Node, cause)
}

// parting is what a node is told that connects while a farewell is on its way on another connection:
// that is to end the session, not this.
func (p *Peer) parting() *refusal {
	return refuse(messages.Refuse_BUSY, "nodes %q and %q part", p.fabric.cfg.Node, p.node)
}
