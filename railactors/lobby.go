package railactors

import (
	"net"
	"strings"
	"sync"
	"time"

	"github.com/polyrail/polyrail/railactors/transport"
)

const (
	maxUnidentified = 512 // connections per rail whose Hello isn't in yet
	maxPerHost      = 256 // of them, from one address
)

// lobby holds the accepted connections of a rail that have not said yet who they are. There is
// always room for one more: the oldest goes, of the same address where that has too many. An honest
// node says who it is within a round trip.
type lobby struct {
	mu      sync.Mutex
	waiting []guest // oldest first
}

type guest struct {
	conn transport.Conn
	host string
}

// enter takes a connection in, whose deadline is set. The one whose place it takes reads no more:
// its handshake, which waits for that, refuses it.
func (l *lobby) enter(conn transport.Conn) {
	g := guest{conn, hostOf(conn.RemoteAddr())}
	l.mu.Lock()
	oldest, count := -1, 0
	for i, w := range l.waiting {
		if w.host == g.host {
			if oldest < 0 {
				oldest = i
			}
			count++
		}
	}
	var out transport.Conn
	switch {
	case count >= maxPerHost:
		out = l.remove(oldest)
	case len(l.waiting) >= maxUnidentified:
		out = l.remove(0)
	}
	l.waiting = append(l.waiting, g)
	l.mu.Unlock()
	if out != nil {
		_ = out.SetReadDeadline(time.Unix(1, 0)) // the error is that it is closed already
	}
}

// leave lets a connection go that has said who it is, or that ended. False: another one has its
// place.
func (l *lobby) leave(conn transport.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, w := range l.waiting {
		if w.conn == conn {
			l.remove(i)
			return true
		}
	}
	return false
}

// remove takes one out. Under mu.
func (l *lobby) remove(i int) transport.Conn {
	out := l.waiting[i].conn
	l.waiting = append(l.waiting[:i], l.waiting[i+1:]...)
	return out
}

// size is how many wait.
func (l *lobby) size() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.waiting)
}

// hostOf is an address without what tells apart the sockets of one host.
func hostOf(a net.Addr) string {
	s := a.String()
	if i := strings.LastIndexAny(s, ":#"); i > 0 {
		return s[:i]
	}
	return s
}
