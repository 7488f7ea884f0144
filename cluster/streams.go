package cluster

import (
	"net"
	"sync"
)

const (
	maxStreams        = 1024 // that others have opened
	maxStreamsPerHost = 256
)

// streams are those that other nodes have opened. There is room for one more always: the oldest
// goes, of the same address where that has too many. An honest node takes no longer than
// StreamTimeout.
type streams struct {
	mu   sync.Mutex
	open []*guardedStream // oldest first
}

func (s *streams) add(c *guardedStream) net.Conn {
	c.host = hostOf(c.Conn)
	s.mu.Lock()
	oldest, count := 0, 0
	for i, o := range s.open {
		if o.host == c.host {
			if count == 0 {
				oldest = i
			}
			count++
		}
	}
	var out *guardedStream
	if count < maxStreamsPerHost {
		oldest = 0
	}
	if count >= maxStreamsPerHost || len(s.open) >= maxStreams {
		out = s.open[oldest]
		s.open = append(s.open[:oldest], s.open[oldest+1:]...)
	}
	s.open = append(s.open, c)
	s.mu.Unlock()
	if out != nil {
		out.Conn.Close()
	}
	return c
}

func (s *streams) remove(c *guardedStream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, o := range s.open {
		if o == c {
			s.open = append(s.open[:i], s.open[i+1:]...)
			return
		}
	}
}

func hostOf(c net.Conn) string {
	host, _, err := net.SplitHostPort(c.RemoteAddr().String())
	if err != nil {
		return c.RemoteAddr().String()
	}
	return host
}
