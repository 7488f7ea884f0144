package tcp

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"net"
	"net/netip"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/polyrail/polyrail/railactors/transport"
)

// castAddress is where a device's datagrams to a group go: an address of 239.192.0.0/14, which is an
// organisation's own (RFC 2365), and a port, both drawn from group and sender. Where two share one,
// each receiver tells them apart by what the datagrams say.
func castAddress(group uint64, sender string) netip.AddrPort {
	h := fnv.New64a()
	binary.Write(h, binary.LittleEndian, group)
	h.Write([]byte(sender))
	sum := h.Sum64()
	host := 239<<24 | 192<<16 | uint32(sum)&(1<<18-1)
	port := 49152 + uint16(sum>>18)&(1<<14-1)
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte(binary.BigEndian.AppendUint32(nil, host))), port)
}

// castable says why a device can't cast.
func (d *device) castable() error {
	if !d.chosen().Addr.Is4() {
		return fmt.Errorf("multicast from %v, which is no IPv4 address: %w", d.chosen(), errors.ErrUnsupported)
	}
	return nil
}

// SendCasts implements transport.Caster. What it sends leaves by the device's interface, and stays on
// its network: its time to live is 1.
func (d *device) SendCasts(group uint64) (transport.CastSender, error) {
	if err := d.castable(); err != nil {
		return nil, err
	}
	dialer := net.Dialer{LocalAddr: &net.UDPAddr{IP: d.chosen().Addr.AsSlice()},
		Control: func(_, _ string, c syscall.RawConn) error {
			return onDescriptor(c, func(fd int) error {
				if err := unix.SetsockoptInet4Addr(fd, unix.IPPROTO_IP, unix.IP_MULTICAST_IF, d.chosen().Addr.As4()); err != nil {
					return fmt.Errorf("IP_MULTICAST_IF %v: %w", d.chosen().Addr, err)
				}
				return nil
			})
		}}
	c, err := dialer.DialContext(context.Background(), "udp4", castAddress(group, d.addr).String())
	if err != nil {
		return nil, err
	}
	raw, err := c.(*net.UDPConn).SyscallConn()
	if err != nil {
		c.Close()
		return nil, err
	}
	return &castSender{c, raw}, nil
}

type castSender struct {
	net.Conn
	raw syscall.RawConn
}

// Send tries once: who can't send a datagram now has no reason to wait for that.
func (s *castSender) Send(p []byte) error {
	var failed error
	err := s.raw.Write(func(fd uintptr) bool {
		_, failed = unix.Write(int(fd), p)
		return true
	})
	return errors.Join(err, failed)
}

// ReceiveCasts implements transport.Caster.
func (d *device) ReceiveCasts(group uint64, addr string) (transport.CastReceiver, error) {
	if err := d.castable(); err != nil {
		return nil, err
	}
	from, err := netip.ParseAddrPort(addr)
	if err != nil {
		return nil, err
	}
	through, err := net.InterfaceByName(d.chosen().Interface)
	if err != nil {
		return nil, err
	}
	c, err := net.ListenMulticastUDP("udp4", through, net.UDPAddrFromAddrPort(castAddress(group, addr)))
	if err != nil {
		return nil, err
	}
	return &castReceiver{c, from.Addr().Unmap()}, nil
}

type castReceiver struct {
	*net.UDPConn
	from netip.Addr
}

// Receive passes over what others send to the same address.
func (r *castReceiver) Receive(p []byte) (int, error) {
	for {
		n, from, err := r.ReadFromUDPAddrPort(p)
		if err != nil || from.Addr().Unmap() == r.from {
			return n, err
		}
	}
}
