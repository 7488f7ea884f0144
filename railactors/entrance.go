package railactors

import (
	"net"
	"sync"
	"time"

	"github.com/polyrail/polyrail/collective/lobby"
	"github.com/polyrail/polyrail/railactors/transport"
)

const (
	maxUnidentified = 512 // connections per rail whose Hello isn't in yet
	maxPerHost      = 256 // of them, from one address
)

// entrance holds the accepted connections of a rail that have not said yet who they are. An honest node
// says who it is within a round trip.
type entrance struct {
	mu      sync.Mutex
	waiting lobby.Lobby[transport.Conn]
}

// enter takes a connection in, whose deadline is set. The one whose place it takes reads no more:
// its handshake, which waits for that, refuses it.
func (e *entrance) enter(conn transport.Conn) {
	e.mu.Lock()
	out, full := e.waiting.Enter(conn, hostOf(conn.RemoteAddr()), maxUnidentified, maxPerHost)
	e.mu.Unlock()
	if full {
		_ = out.SetReadDeadline(time.Unix(1, 0)) // the error is that it is closed already
	}
}

// leave lets a connection go that has said who it is, or that ended. False: another one has its
// place.
func (e *entrance) leave(conn transport.Conn) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.waiting.Leave(conn)
}

// size is how many wait.
func (e *entrance) size() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.waiting.Len()
}

func hostOf(a net.Addr) string { return lobby.HostOf(a.String()) }
