package railactors

import (
	"errors"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/polyrail/polyrail/collective/fault"
)

// Remote is a node to connect to, as the rendezvous told of it.
type Remote struct {
	Node        string
	Incarnation uint64
	Rails       []RailAddress
	Memory      string // where it is reached on MemoryRail; empty: nowhere
}

// RailAddress is where a node listens on a rail; Addr is empty while its device is absent.
type RailAddress struct{ Name, Addr string }

// Connect returns the peer for a node, which is shared by all who ask for the same
// incarnation; each of them calls Disconnect once. Both nodes call Connect: the lower id dials. The
// connections are made in the background (WaitReady). The error names a rail that
// one of the two nodes lacks, and the node.
func (f *Fabric) Connect(r Remote) (*Peer, error) {
	p, fresh, err := f.introduce(r)
	if err == nil {
		p.rouse(!fresh) // both nodes call Connect, unless one of them has introduced itself before
	}
	return p, err
}

// introduce returns the peer for a node, dormant if it is fresh.
func (f *Fabric) introduce(r Remote) (p *Peer, fresh bool, err error) {
	addrs, err := f.match(r)
	if err != nil {
		return nil, false, err
	}
	f.mu.Lock()
	if f.closed {
		f.mu.Unlock()
		return nil, false, fmt.Errorf("connection to node %q: %w", r.Node, fault.ErrClosed)
	}
	if f.failed != nil {
		f.mu.Unlock()
		return nil, false, fmt.Errorf("connection to node %q: %w", r.Node, f.failed)
	}
	old := f.peers[r.Node]
	if old != nil && old.incarnation != r.Incarnation && old.Lost() == nil {
		f.mu.Unlock()
		return nil, false, old.doubted(r.Incarnation)
	}
	if old != nil && old.stay() { // it is this very process: another one is lost, and stays no more
		old.users++
		if old.lingers != nil {
			old.lingers.Stop()
		}
		old.mu.Lock()
		another := old.learn(addrs)
		old.mu.Unlock()
		f.mu.Unlock()
		if another && old.Awake() {
			f.tell(f.rails[f.memory].pid.Load(), &open{peer: old})
		}
		return old, false, nil
	}
	p = newPeer(f, r, addrs)
	p.users = 1
	if old != nil && old.Lost() == nil {
		p.predecessor = old // its farewell is still on the way
	}
	f.peers[r.Node] = p
	f.all[p] = struct{}{}
	if w := f.awaited[r.Node]; w != nil {
		close(w.called)
		delete(f.awaited, r.Node)
	}
	f.mu.Unlock()
	return p, true, nil
}

// match finds the remote addresses by rail index.
func (f *Fabric) match(r Remote) ([]string, error) {
	if r.Node == "" || r.Node == f.cfg.Node || !utf8.ValidString(r.Node) {
		return nil, fmt.Errorf("rails: node %q can't be connected to node %q", r.Node, f.cfg.Node)
	}
	addrs, found := make([]string, len(f.rails)), make([]bool, len(f.rails))
	for _, a := range r.Rails {
		i := f.RailIndex(a.Name)
		if i < 0 || i == f.memory {
			return nil, &fault.RailError{Rail: a.Name, Node: f.cfg.Node, Err: fmt.Errorf("node %q has this rail, this node lacks it", r.Node)}
		}
		addrs[i], found[i] = a.Addr, true
	}
	for i, ok := range found {
		if i == f.memory {
			addrs[i] = r.Memory
		} else if !ok {
			return nil, &fault.RailError{Rail: f.rails[i].name, Node: r.Node, Err: errors.New("this node has the rail, the other one lacks it")}
		}
	}
	return addrs, nil
}

// Retain adds a use to a peer that is in use; it ends with another Disconnect.
func (f *Fabric) Retain(p *Peer) {
	f.mu.Lock()
	p.users++
	f.mu.Unlock()
}

// Disconnect ends one use of a peer. After the last one it stays connected for
// Config.Linger, and then says farewell when everything is acknowledged.
func (f *Fabric) Disconnect(p *Peer) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if p.users--; p.users > 0 || f.closed || p.Lost() != nil {
		return
	}
	p.lingers = time.AfterFunc(f.cfg.Linger, func() { f.lingered(p) })
}

// lingered: nobody has used the peer for a while.
func (f *Fabric) lingered(p *Peer) {
	f.mu.Lock()
	unused := p.users == 0
	if unused {
		// Under the lock: a Connect that comes next must see it.
		p.leave()
	}
	f.mu.Unlock()
	if unused {
		p.look()
	}
}

// forget drops a finished peer.
func (f *Fabric) forget(p *Peer) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.all, p)
	if f.peers[p.node] == p {
		delete(f.peers, p.node)
	}
	f.remember(p)
	if p.lingers != nil {
		p.lingers.Stop()
	}
}
