package cluster

import (
	"context"
	"fmt"
	"log"
	"net"
	"net/netip"
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

// towards is this host's address on the way to the first seed that a network leads to. Empty: there
// is none, or seeds have names, which are not looked up here.
func towards(seeds []string) string {
	for _, seed := range seeds {
		to, err := netip.ParseAddrPort(seed)
		if err != nil {
			continue
		}
		c, err := net.Dial("udp", to.String()) // sends nothing
		if err != nil {
			continue
		}
		from := c.LocalAddr().(*net.UDPAddr).AddrPort().Addr().Unmap()
		c.Close()
		if from.IsGlobalUnicast() {
			return from.String()
		}
	}
	return ""
}

// routed is the first of the addresses that other hosts may reach. Empty: there is none.
func routed(addrs []string) string {
	for _, addr := range addrs {
		ap, err := netip.ParseAddrPort(addr)
		if err == nil && ap.Addr().IsGlobalUnicast() {
			return ap.Addr().Unmap().String()
		}
	}
	return ""
}

// FinalAdvertiseAddr implements memberlist.Transport. The error says what helps.
func (s *sockets) FinalAdvertiseAddr(ip string, port int) (net.IP, int, error) {
	addr, port, err := s.NetTransport.FinalAdvertiseAddr(ip, port)
	if err != nil {
		err = fmt.Errorf("%w: bind to an address of this host, or advertise one", err)
	}
	return addr, port, err
}
