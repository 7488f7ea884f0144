// Package memnet is a network for gossip in memory: for tests of whole clusters in one
// process, also in virtual time (testing/synctest). Packets get lost when nobody takes
// them, streams break, hosts can be parted, as on a real network.
//
// It implements cluster.Network. The payload's counterpart is railactors/transport/mem.
package memnet

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/hashicorp/memberlist"
)

const (
	packetQueue = 1024 // packets that wait for a host; more are lost
	streamQueue = 4096 // connections that wait to be accepted, as Linux has it; more are refused
	firstPort   = 40000
)

// Network connects the hosts that listen on it. Its zero value is ready.
type Network struct {
	mu       sync.Mutex
	hosts    map[netip.AddrPort]*host
	part     map[netip.AddrPort]int // which part a host is in; 0 for those not named
	streams  map[*stream]struct{}
	lastPort uint16
	parted   int64 // packets and dials that a partition stopped
}

// New makes a network without hosts.
func New() *Network { return &Network{} }

// Listen adds a host at ADDR:PORT; port 0 takes a free one. The address is free again after Shutdown.
func (n *Network) Listen(bind string) (memberlist.NodeAwareTransport, error) {
	addr, err := netip.ParseAddrPort(bind)
	if err != nil {
		return nil, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.hosts == nil {
		n.hosts, n.streams = map[netip.AddrPort]*host{}, map[*stream]struct{}{}
	}
	if addr.Port() == 0 {
		n.lastPort = max(n.lastPort+1, firstPort)
		addr = netip.AddrPortFrom(addr.Addr(), n.lastPort)
	}
	if n.hosts[addr] != nil {
		return nil, &net.OpError{Op: "listen", Net: "mem", Addr: net.TCPAddrFromAddrPort(addr), Err: syscall.EADDRINUSE}
	}
	h := &host{
		net: n, addr: addr, done: make(chan struct{}),
		packets: make(chan *memberlist.Packet, packetQueue), accepted: make(chan net.Conn, streamQueue),
	}
	n.hosts[addr] = h
	return h, nil
}

// Partition parts the network: hosts of different groups, given as ADDR:PORT, don't reach each other;
// those that no group names are together. Streams between parts break. It replaces an earlier partition.
func (n *Network) Partition(groups ...[]string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.part = map[netip.AddrPort]int{}
	for i, group := range groups {
		for _, addr := range group {
			n.part[netip.MustParseAddrPort(addr)] = 1 + i
		}
	}
	for s := range n.streams {
		if n.part[s.local] != n.part[s.remote] {
			s.Conn.Close()
			delete(n.streams, s)
			n.parted++
		}
	}
}

// Parted counts what a partition stopped: packets, streams and dials.
func (n *Network) Parted() int64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.parted
}

// Heal ends a partition.
func (n *Network) Heal() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.part = nil
}

// reach returns the host at addr; cut tells that a partition is in between. Call it with n.mu held.
func (n *Network) reach(from netip.AddrPort, addr string) (h *host, cut bool) {
	to, err := netip.ParseAddrPort(addr)
	if err != nil {
		return nil, false
	}
	if cut = n.part[from] != n.part[to]; cut {
		n.parted++
	}
	return n.hosts[to], cut
}

// host is one listener: a memberlist.Transport.
type host struct {
	net      *Network
	addr     netip.AddrPort
	packets  chan *memberlist.Packet
	accepted chan net.Conn
	done     chan struct{} // closed by Shutdown
	down     bool          // guarded by net.mu
}

func (h *host) FinalAdvertiseAddr(string, int) (net.IP, int, error) {
	return net.IP(h.addr.Addr().AsSlice()), int(h.addr.Port()), nil
}

func (h *host) WriteTo(b []byte, addr string) (time.Time, error) {
	h.net.mu.Lock()
	defer h.net.mu.Unlock()
	now := time.Now()
	if h.down {
		return now, net.ErrClosed
	}
	to, cut := h.net.reach(h.addr, addr)
	if to == nil || cut {
		return now, nil // lost, as a datagram is
	}
	p := &memberlist.Packet{Buf: append([]byte(nil), b...), From: net.UDPAddrFromAddrPort(h.addr), Timestamp: now}
	select {
	case to.packets <- p:
	default:
	}
	return now, nil
}

func (h *host) WriteToAddress(b []byte, a memberlist.Address) (time.Time, error) {
	return h.WriteTo(b, a.Addr)
}

func (h *host) PacketCh() <-chan *memberlist.Packet { return h.packets }
func (h *host) StreamCh() <-chan net.Conn           { return h.accepted }

func (h *host) DialAddressTimeout(a memberlist.Address, timeout time.Duration) (net.Conn, error) {
	return h.DialTimeout(a.Addr, timeout)
}

func (h *host) DialTimeout(addr string, timeout time.Duration) (net.Conn, error) {
	c, err := h.dial(addr)
	if err == errNoAnswer {
		t := time.NewTimer(timeout)
		defer t.Stop()
		select {
		case <-t.C:
			err = os.ErrDeadlineExceeded
		case <-h.done:
			err = net.ErrClosed
		}
	}
	if err != nil {
		return nil, fmt.Errorf("dial %s: %w", addr, err)
	}
	return c, nil
}

var errNoAnswer = fmt.Errorf("no answer")

func (h *host) dial(addr string) (net.Conn, error) {
	h.net.mu.Lock()
	defer h.net.mu.Unlock()
	if h.down {
		return nil, net.ErrClosed
	}
	to, cut := h.net.reach(h.addr, addr)
	switch {
	case cut:
		return nil, errNoAnswer
	case to == nil:
		return nil, syscall.ECONNREFUSED
	}
	near, far := net.Pipe()
	a := &stream{Conn: near, net: h.net, local: h.addr, remote: to.addr}
	b := &stream{Conn: far, net: h.net, local: to.addr, remote: h.addr}
	select {
	case to.accepted <- b:
	default:
		return nil, syscall.ECONNREFUSED
	}
	h.net.streams[a], h.net.streams[b] = struct{}{}, struct{}{}
	return a, nil
}

// Shutdown takes the host off the network and breaks its streams.
func (h *host) Shutdown() error {
	h.net.mu.Lock()
	defer h.net.mu.Unlock()
	if h.down {
		return nil
	}
	h.down = true
	close(h.done)
	delete(h.net.hosts, h.addr)
	for s := range h.net.streams {
		if s.local == h.addr || s.remote == h.addr {
			s.Conn.Close()
			delete(h.net.streams, s)
		}
	}
	return nil
}

// stream is one end of a connection.
type stream struct {
	net.Conn
	net           *Network
	local, remote netip.AddrPort
}

func (s *stream) LocalAddr() net.Addr  { return net.TCPAddrFromAddrPort(s.local) }
func (s *stream) RemoteAddr() net.Addr { return net.TCPAddrFromAddrPort(s.remote) }

func (s *stream) Close() error {
	s.net.mu.Lock()
	delete(s.net.streams, s)
	s.net.mu.Unlock()
	return s.Conn.Close()
}
