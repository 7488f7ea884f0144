package engine

import (
	"time"

	"github.com/polyrail/polyrail/collective/sharp"
	"github.com/polyrail/polyrail/messages/wire"
	"github.com/polyrail/polyrail/railactors"
	"github.com/polyrail/polyrail/railactors/transport"
)

// This file is about responses that an aggregation node sends to many ranks at once, in datagrams
// that may be lost (docs/decisions/043).

// askDelay is how long a response may be missing until this rank asks for it, once or twice that long.
// Whoever asks too early, since another rank is late, gets the response twice.
const askDelay = 2 * time.Millisecond

// hear takes what is cast, until the tree is closed.
func (t *Tree) hear() {
	var datagram [transport.MaxCast]byte
	var h wire.Header
	for {
		n, err := t.Casts.Receive(datagram[:])
		if err != nil {
			return
		}
		payload, err := wire.DecodeCast(datagram[:n], &h)
		if err == nil && h.Group == t.Group && h.Comm == t.comm {
			t.heard(&h, payload)
		}
	}
}

// heard takes a response that was cast. One that is here, or that nobody waits for, changes nothing.
func (t *Tree) heard(h *wire.Header, payload []byte) {
	t.mu.Lock()
	t.leaf.Heard()
	t.mu.Unlock()
	landing, err := t.land(t.Node, t.Rail, h)
	if err != nil || landing.Receiver == nil {
		return
	}
	copy(landing.Dst, payload)
	landing.Receiver.Arrived(landing.Tag, nil)
}

// twice reports whether a response may have come before: in one way, and now in the other. Under mu.
func (t *Tree) twice(number uint64) bool {
	return t.Results != sharp.Unicast && number < t.leaf.Sent()
}

// castAlone reports whether the response to a fragment of so many bytes comes by a cast alone.
func (p *treePart) castAlone(bytes int) bool {
	t := p.tree
	return t.Results == sharp.Multicast && t.Casts != nil && sharp.Castable(p.operation.request.Kind, bytes)
}

// missed is the request for responses that are overdue; nil if none is. Under mu.
func (t *Tree) missed() *railactors.Frame {
	if !t.leaf.Awaits() || !t.asks.due(t) {
		return nil
	}
	to, ok := t.leaf.Overdue()
	if t.leaf.Awaits() {
		t.asks.due(t) // another look
	}
	if !ok {
		return nil
	}
	return t.ask(to)
}

// ask is the request for all responses below a number that are not here. Under mu.
func (t *Tree) ask(to uint64) *railactors.Frame {
	return &railactors.Frame{Rail: t.Rail, Header: wire.TreeAskNotice(t.comm, t.Group, t.leaf.Received(), to)}
}
