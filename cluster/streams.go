package cluster

import (
	"net"
	"sync"

	"github.com/polyrail/polyrail/collective/lobby"
)

const (
	maxStreams        = 1024 // that others have opened
	maxStreamsPerHost = 256

	// longStream is what most streams are shorter than. memberlist takes memory for what the first
	// bytes of a stream say, so fewer may be longer.
	longStream     = 256 << 10
	maxLong        = 64
	maxLongPerHost = 16
)

// streams are those that other nodes have opened. An honest node takes no longer than StreamTimeout.
type streams struct {
	mu   sync.Mutex
	open lobby.Lobby[*guardedStream]
	long lobby.Lobby[*guardedStream] // of them
}

func (s *streams) add(c *guardedStream) net.Conn {
	c.host = lobby.HostOf(c.RemoteAddr().String())
	s.enter(&s.open, c, maxStreams, maxStreamsPerHost)
	return c
}

// lengthen is told of a stream that is going to be long. Those that this node has opened are few.
func (s *streams) lengthen(c *guardedStream) {
	if c.host != "" {
		s.enter(&s.long, c, maxLong, maxLongPerHost)
	}
}

func (s *streams) enter(to *lobby.Lobby[*guardedStream], c *guardedStream, most, perHost int) {
	s.mu.Lock()
	out, full := to.Enter(c, c.host, most, perHost)
	s.mu.Unlock()
	if full {
		out.Conn.Close()
	}
}

func (s *streams) remove(c *guardedStream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open.Leave(c)
	s.long.Leave(c)
}
