package observe

import (
	"net"
	"sync"
	"time"

	"github.com/polyrail/polyrail/collective/lobby"
)

// limited bounds the connections that are open at once. A browser opens several.
type limited struct {
	net.Listener
	mu   sync.Mutex
	open lobby.Lobby[*limitedConn]
}

// Accept implements net.Listener.
func (l *limited) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	in := &limitedConn{Conn: c, all: l}
	l.mu.Lock()
	out, full := l.open.Enter(in, lobby.HostOf(c.RemoteAddr().String()), maxConnections, maxConnections)
	l.mu.Unlock()
	if full {
		_ = out.Conn.Close() // its server finds that out
	}
	return in, nil
}

type limitedConn struct {
	net.Conn
	all *limited
}

// Write implements net.Conn. Who takes nothing loses the connection: it would keep its place for ever.
func (c *limitedConn) Write(b []byte) (int, error) {
	if err := c.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
		return 0, err
	}
	return c.Conn.Write(b)
}

// Close implements net.Conn.
func (c *limitedConn) Close() error {
	c.all.mu.Lock()
	c.all.open.Leave(c)
	c.all.mu.Unlock()
	return c.Conn.Close()
}
