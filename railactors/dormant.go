package railactors

import "github.com/polyrail/polyrail/collective/fault"

// This file is about peers that are known and not connected: of a large communicator a node needs
// connections to few members (docs/decisions/037). A dormant peer has no actor, no timer and no
// connection. What is sent to it wakes it, and waits until it is connected.

// Introduce is Connect without connections: they are made when something is sent to the peer here
// or there, or by Wake.
func (f *Fabric) Introduce(r Remote) (*Peer, error) {
	p, _, err := f.introduce(r)
	return p, err
}

// Awake reports whether the peer is connected, or about to be.
func (p *Peer) Awake() bool { return p.awake.Load() }

// Wake has a dormant peer connected, and from now on notices if the other node is lost. Only one of
// the two nodes needs to call it.
func (p *Peer) Wake() {
	if !p.wanted.Load() && !p.wanted.Swap(true) {
		p.rouse(true)
	}
}

// rouse starts the peer's actors. With calls the other node may not know that it is to dial.
func (p *Peer) rouse(calls bool) {
	again := p.awake.Swap(true)
	if again && !calls {
		return
	}
	f := p.fabric
	p.mu.Lock()
	if again && (p.dials || p.met != 0 || p.cause != nil) {
		p.mu.Unlock()
		return
	}
	// Again: a hello woke it, and no connection came of that. It was a probe, or its node died.
	p.calls = calls && !p.dials
	p.live.Resume(f.now())
	if p.dials || p.calls {
		p.live.Expect()
	}
	p.mu.Unlock()
	if again {
		for rail := range f.rails {
			p.tellPair(rail, &railBack{})
		}
		return
	}
	f.mu.Lock()
	late := append([]int(nil), f.late...)
	f.mu.Unlock()
	p.tellOpened(late)
	f.sys.Root.Send(f.office, &open{peer: p})
}

// Agreed tells that the other node knows this one: each of the two is in a view that the other one
// has committed to. From then on a node that does not know this one has given it up.
func (p *Peer) Agreed() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.agreed = true
}

// unknownThere takes the other node's word that it has not asked for this one, under mu. It
// reports whether that ends the peer.
func (p *Peer) unknownThere(fx *effects) bool {
	if !p.agreed || p.met != 0 {
		return false
	}
	p.endLocked(&fault.RankLostError{Rank: -1, Node: p.node,
		Reason: "it has closed what the two nodes had in common"}, true, fx)
	return true
}
