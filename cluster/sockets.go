package cluster

import (
	"context"
	"log"
	"net"
	"time"

	"github.com/hashicorp/memberlist"
)

// sockets are memberlist's own transport. In addition Shutdown ends the streams that this node has
// opened, also those that are being dialed: a host that is silent holds up no start and no close.
type sockets struct {
	*memberlist.NetTransport
	ctx    context.Context // ends with Shutdown
	cancel context.CancelFunc
}

func listenSockets(addr string, port int, log *log.Logger) (*sockets, error) {
	inner, err := memberlist.NewNetTransport(&memberlist.NetTransportConfig{
		BindAddrs: []string{addr}, BindPort: port, Logger: log})
	if err != nil {
		return nil, err
	}
	s := &sockets{NetTransport: inner}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s, nil
}

func (s *sockets) DialTimeout(addr string, timeout time.Duration) (net.Conn, error) {
	dialer := net.Dialer{Timeout: timeout}
	c, err := dialer.DialContext(s.ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	return &socket{Conn: c, stop: context.AfterFunc(s.ctx, func() { c.Close() })}, nil
}

func (s *sockets) DialAddressTimeout(a memberlist.Address, timeout time.Duration) (net.Conn, error) {
	return s.DialTimeout(a.Addr, timeout)
}

func (s *sockets) Shutdown() error {
	s.cancel()
	return s.NetTransport.Shutdown()
}

// socket is a stream that this node has opened.
type socket struct {
	net.Conn
	stop func() bool // Shutdown does not end it any more
}

func (s *socket) Close() error {
	s.stop()
	return s.Conn.Close()
}
