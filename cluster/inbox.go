package cluster

import (
	"errors"
	"sync"
	"time"

	"github.com/polyrail/polyrail/messages"
)

const (
	maxInbox        = 4096    // messages that wait for the handler
	maxMessageBytes = 4 << 20 // of one message
)

var errTooLong = errors.New("it is too long")

// inbox holds messages for the dispatcher. News of members wait in the roster.
type inbox struct {
	signal chan struct{}

	mu       sync.Mutex
	messages []*messages.Rendezvous
}

func newInbox() *inbox { return &inbox{signal: make(chan struct{}, 1)} }

// wake never blocks.
func (b *inbox) wake() {
	select {
	case b.signal <- struct{}{}:
	default:
	}
}

// put returns false when the inbox is full.
func (b *inbox) put(m *messages.Rendezvous) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.messages) >= maxInbox {
		return false
	}
	b.messages = append(b.messages, m)
	b.wake()
	return true
}

func (b *inbox) take() []*messages.Rendezvous {
	b.mu.Lock()
	defer b.mu.Unlock()
	m := b.messages
	b.messages = nil
	return m
}

// receive takes a message off memberlist's goroutine. The bytes are memberlist's.
func (g *Gossip) receive(b []byte) {
	var m *messages.Rendezvous
	err := errTooLong
	if len(b) <= maxMessageBytes {
		m, err = g.checked(b)
	}
	if err != nil || m.Body == nil || !validNode(m.From) || m.Incarnation == 0 {
		if err != nil {
			g.refuse(m, err)
		}
		if n := g.undecodable.Add(1); n&(n-1) == 0 { // the 1st, 2nd, 4th …: a flood must not fill the log
			g.log.Warn("undecodable rendezvous message", "bytes", len(b), "from", clip(m.GetFrom()), "error", err, "count", n)
		}
		return
	}
	if m.ToIncarnation != g.self.Incarnation || m.From == g.self.Node {
		g.stale.Add(1)
		return
	}
	if !g.inbox.put(m) {
		if n := g.dropped.Add(1); n&(n-1) == 0 {
			g.log.Warn("rendezvous message dropped: too many wait", "from", m.From, "count", n)
		}
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
			g.handler.ClusterMessage(m.From, m)
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
