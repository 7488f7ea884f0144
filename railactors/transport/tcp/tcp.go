// Package tcp is the transport over TCP sockets that are bound to one NIC, with plain
// descriptor I/O: vectored, without copies for large payloads, and with polling
// beside a goroutine that waits (transport.Poller).
//
// It owns sockets and their options. Which device a name means is in transport/nic, what
// the bytes mean is the pair's (railactors).
package tcp

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"syscall"

	"github.com/polyrail/polyrail/railactors/transport"
	"github.com/polyrail/polyrail/railactors/transport/nic"
)

// Options tune the sockets. The zero value is good: any port, and buffers that the
// system sizes itself.
type Options struct {
	Port            int // that devices listen on unless their name ends in ":PORT"; 0: any
	SendBuffer      int // bytes, SO_SNDBUF; 0: the system tunes it
	ReceiveBuffer   int // bytes, SO_RCVBUF; 0: the system tunes it
	NotSentLowWater int // bytes, TCP_NOTSENT_LOWAT: what may wait unsent before a write blocks; 0: 256 KiB
	// Congestion is the congestion control ("cubic"); empty: the system's. One that paces in TCP
	// itself (bbr) sets a timer for each packet, which is a good part of a processor on a fast
	// network.
	Congestion string
}

// unsentBytes is the default of NotSentLowWater: one frame. What waits in a socket is ahead of
// every grant, so a slow rail's grants waited for as much as was in flight.
const unsentBytes = 256 << 10

// New makes a transport whose devices and connections have these options.
func New(o Options) transport.Transport { return &tcp{o} }

type tcp struct{ options Options }

func (t *tcp) Protocol() string { return "tcp" }

// Open takes what nic.Select takes, optionally followed by ":PORT"; an IPv6 address or network may
// stand in brackets, and must before a port.
func (t *tcp) Open(name string) (transport.Device, error) {
	selector, port, err := splitPort(name)
	if err != nil {
		return nil, err
	}
	if port == 0 {
		port = t.options.Port
	}
	chosen, err := nic.Select(selector)
	if err != nil {
		return nil, err
	}
	d, err := openDevice(t.options, selector, chosen, port)
	if errors.Is(err, syscall.EADDRNOTAVAIL) { // of IPv6, as long as the system looks for its double
		err = fmt.Errorf("%w: %w", transport.ErrAbsent, err)
	}
	if err != nil {
		return nil, fmt.Errorf("device %q: %w", name, err)
	}
	return d, nil
}

// splitPort cuts ":PORT" off a device's name. An IPv6 address or network before it stands in
// brackets, and may without it.
func splitPort(name string) (selector string, port int, err error) {
	selector, digits, hasPort := name, "", false
	if inside, ok := strings.CutPrefix(name, "["); ok {
		addr, rest, closed := strings.Cut(inside, "]")
		bits, digitsAfter, colon := strings.Cut(rest, ":")
		if !closed || bits != "" && bits[0] != '/' {
			return "", 0, fmt.Errorf(
				"device %q: want [ADDR], [ADDR]/BITS or [ADDR/BITS], and :PORT after it", name)
		}
		selector, digits, hasPort = addr+bits, digitsAfter, colon
	} else if !isAddress(name) { // or the last group of an IPv6 address would be a port
		if i := strings.LastIndexByte(name, ':'); i >= 0 {
			selector, digits, hasPort = name[:i], name[i+1:], true
		}
	}
	if !hasPort {
		return selector, 0, nil
	}
	p, err := strconv.ParseUint(digits, 10, 16)
	if err != nil {
		return "", 0, fmt.Errorf("device %q: %q is not a port", name, digits)
	}
	return selector, int(p), nil
}

func isAddress(s string) bool {
	_, errAddr := netip.ParseAddr(s)
	_, errPrefix := netip.ParsePrefix(s)
	return errAddr == nil || errPrefix == nil
}
