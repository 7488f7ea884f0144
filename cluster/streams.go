package cluster

import (
	"net"
	"sync"

	"github.com/polyrail/polyrail/collective/lobby"
)

const (
	maxStreams        = 1024 // that others have opened
	maxStreamsPerHost = 256
)

// streams are those that other nodes have opened. An honest node takes no longer than StreamTimeout.
type streams struct {
	mu   sync.Mutex
	open lobby.Lobby[*guardedStream]
}

func (s *streams) add(c *guardedStream) net.Conn {
	c.host = lobby.HostOf(c.RemoteAddr().String())
	s.mu.Lock()
	out, full := s.open.Enter(c, c.host, maxStreams, maxStreamsPerHost)
	s.mu.Unlock()
	if full {
		out.Conn.Close()
	}
	return c
}

func (s *streams) remove(c *guardedStream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open.Leave(c)
}
