package railactors

import (
	"github.com/polyrail/polyrail/messages/wire"
	"github.com/polyrail/polyrail/railactors/transport"
)

// Batch makes one write of many frames. What is sent to a peer that it holds is queued at once, and
// written with Flush. A batch belongs to one goroutine; who sends, to a peer that is held, may be any.
// The zero value holds nobody.
type Batch struct {
	held []heldRail
	conn transport.Conn // of a reader: it holds while more is at hand there
}

// heldRail is a rail to a peer.
type heldRail struct {
	peer *Peer
	rail int
}

// Hold keeps what is sent to a peer by a rail until Flush, unless the writer of the connection is at
// work: who writes takes all there is. A nil Batch holds nothing, nor does a reader's that has no
// other frame at hand.
func (b *Batch) Hold(p *Peer, rail int) {
	if b == nil || b.conn != nil && b.conn.Buffered() < wire.Size {
		return
	}
	h := heldRail{p, rail}
	for i := range b.held {
		if b.held[i] == h {
			return
		}
	}
	b.held = append(b.held, h)
	p.mu.Lock()
	p.holds[rail]++
	p.mu.Unlock()
}

// Flush writes what was held, and holds nothing any more.
func (b *Batch) Flush() {
	for _, h := range b.held {
		if c := h.peer.unhold(h.rail); c != nil {
			c.pumpAll()
		}
	}
	clear(b.held)
	b.held = b.held[:0]
}

// unhold ends one hold, and returns the connection that has something to write.
func (p *Peer) unhold(rail int) *connection {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.holds[rail]--
	if c := p.conns[rail]; c != nil && p.holds[rail] == 0 && c.busy() {
		return c
	}
	return nil
}
