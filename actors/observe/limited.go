package observe

import (
	"net"
	"slices"
	"sync"
	"time"
)

// limited bounds the connections that are open at once. There is room for one more always: of the
// address that has the most, the oldest goes.
type limited struct {
	net.Listener
	mu   sync.Mutex
	open []*limitedConn // oldest first
}

// Accept implements net.Listener.
func (l *limited) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	host, _, err := net.SplitHostPort(c.RemoteAddr().String())
	if err != nil {
		host = c.RemoteAddr().String()
	}
	in := &limitedConn{Conn: c, all: l, host: host}
	if out := l.enter(in); out != nil {
		_ = out.Conn.Close() // its server finds that out
	}
	return in, nil
}

// enter returns the connection whose place the new one takes, if any.
func (l *limited) enter(in *limitedConn) (out *limitedConn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open = append(l.open, in)
	if len(l.open) <= maxConnections {
		return nil
	}
	oldest, count := make(map[string]int), make(map[string]int)
	most := in.host
	for i, c := range l.open {
		if count[c.host]++; count[c.host] == 1 {
			oldest[c.host] = i
		}
		if count[c.host] > count[most] {
			most = c.host
		}
	}
	out = l.open[oldest[most]]
	l.open = slices.Delete(l.open, oldest[most], oldest[most]+1)
	return out
}

type limitedConn struct {
	net.Conn
	all  *limited
	host string
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
	c.all.open = slices.DeleteFunc(c.all.open, func(o *limitedConn) bool { return o == c })
	c.all.mu.Unlock()
	return c.Conn.Close()
}
