package cluster

import (
	"bytes"
	"errors"
	"sync"
	"time"

	"github.com/polyrail/polyrail/messages"
)

const (
	maxInbox        = 4096     // messages that wait for the handler
	maxInboxBytes   = 16 << 20 // of them
	maxMessageBytes = 4 << 20  // of one message
)

var errTooLong = errors.New("it is too long")

// inbox holds messages for the dispatcher, as they came: one that is read takes up to 100 times as
// much memory. News of members wait in the roster.
type inbox struct {
	signal chan struct{}

	mu       sync.Mutex
	messages [][]byte
	bytes    int // of them
}

func newInbox() *inbox { return &inbox{signal: make(chan struct{}, 1)} }

// wake never blocks.
func (b *inbox) wake() {
	select {
	case b.signal <- struct{}{}:
	default:
	}
}

// put keeps a copy. It returns false when the inbox is full.
func (b *inbox) put(message []byte) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.messages) >= maxInbox || b.bytes+len(message) > maxInboxBytes {
		return false
	}
	b.messages = append(b.messages, bytes.Clone(message))
	b.bytes += len(message)
	b.wake()
	return true
}

func (b *inbox) take() [][]byte {
	b.mu.Lock()
	defer b.mu.Unlock()
	m := b.messages
	b.messages, b.bytes = nil, 0
	return m
}

// receive takes a message off memberlist's goroutine. The bytes are memberlist's.
func (g *Gossip) receive(b []byte) {
	if len(b) > maxMessageBytes {
		g.turnDown(b, nil, errTooLong)
		return
	}
	if !g.inbox.put(b) {
		if n := g.dropped.Add(1); n&(n-1) == 0 {
			g.log.Warn("rendezvous message dropped: too many wait", "count", n)
		}
	}
}

// read passes a message on, if it is one for this process. One is read at a time, on the
// dispatcher's goroutine: to check a signature may take a while.
func (g *Gossip) read(b []byte) {
	m, err := g.checked(b)
	if err != nil || m.Body == nil || !validNode(m.From) || m.Incarnation == 0 {
		g.turnDown(b, m, err)
		return
	}
	if m.ToIncarnation != g.self.Incarnation || m.From == g.self.Node {
		g.stale.Add(1)
		return
	}
	g.handler.ClusterMessage(m.From, m)
}

// turnDown notes a message that does not count, and why.
func (g *Gossip) turnDown(b []byte, m *messages.Rendezvous, err error) {
	if err != nil {
		g.refuse(m, err)
	}
	n := g.undecodable.Add(1)
	if n&(n-1) == 0 { // the 1st, 2nd, 4th …: a flood must not fill the log
		g.log.Warn("undecodable rendezvous message", "bytes", len(b), "from", clip(m.GetFrom()),
			"error", err, "count", n)
	}
}

// dispatch is the goroutine that calls the handler.
func (g *Gossip) dispatch() {
	defer g.running.Done()
	for {
		select {
		case <-g.inbox.signal:
		case <-g.ctx.Done():
			return
		}
		pending := g.inbox.take() // before the news: what they announce may already be known
		g.tell(g.roster.settle(time.Now()))
		for _, m := range pending {
			if g.ctx.Err() != nil {
				return
			}
			g.read(m)
		}
	}
}

func (g *Gossip) tell(events []Event) {
	for _, e := range events {
		if g.ctx.Err() != nil {
			return
		}
		if e.Kind != Joined {
			g.outbox.forget(e.Member)
		}
		g.handler.ClusterEvent(e)
	}
	g.wakeSeeker()
}
