// Package nic selects the device of a rail: Nezha's NIC Selector (§III-B). It turns the
// name of an interface, an address or a network in CIDR notation into one address of
// this host, and lists what "auto" means.
package nic

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/polyrail/polyrail/railactors/transport"
)

// absent marks an error of a device that may come later.
type absent struct{ error }

// Is makes errors.Is(err, transport.ErrAbsent) hold.
func (absent) Is(target error) bool { return target == transport.ErrAbsent }

// Choice is the address that a rail's sockets are bound to.
type Choice struct {
	Interface string // that holds the address; the loopback's for any other address of 127.0.0.0/8
	Addr      netip.Addr
	Loopback  bool
}

func (c Choice) String() string { return c.Interface + " " + c.Addr.String() }

// Select resolves a device: an interface that is up (its first global address, IPv4 before IPv6),
// an address of this host (any of 127.0.0.0/8 is), or a network that holds exactly one address of
// this host. The error names the device and what there is instead; it matches transport.ErrAbsent
// where the device may come later.
func Select(device string) (Choice, error) {
	nics, err := interfaces()
	if err != nil {
		return Choice{}, fmt.Errorf("device %q: %w", device, err)
	}
	return choose(nics, device)
}

// Auto lists a choice for every usable interface: up, not loopback, with a global address. Where
// there is none, the error says what there is.
func Auto() ([]Choice, error) {
	nics, err := interfaces()
	if err != nil {
		return nil, err
	}
	return usable(nics)
}

// Local reports whether addr is an address of this host, so that what is sent to it
// never leaves through a NIC.
func Local(addr netip.Addr) (bool, error) {
	nics, err := interfaces()
	if err != nil {
		return false, err
	}
	_, ok := holder(nics, addr.Unmap())
	return ok, nil
}

// Holds reports whether the choice's interface still has its address.
func Holds(c Choice) (bool, error) {
	nics, err := interfaces()
	return slices.ContainsFunc(nics, func(n card) bool {
		return n.name == c.Interface && (n.loopback || slices.Contains(n.addrs, c.Addr))
	}), err
}

// card is what the selection needs to know of an interface.
type card struct {
	name         string
	up, loopback bool
	addrs        []netip.Addr // in the system's order
}

func interfaces() ([]card, error) {
	list, err := net.Interfaces()
	if err != nil {
		return nil, fmt.Errorf("listing the interfaces: %w", err)
	}
	cards := make([]card, 0, len(list))
	for _, i := range list {
		c := card{name: i.Name, up: i.Flags&net.FlagUp != 0, loopback: i.Flags&net.FlagLoopback != 0}
		addrs, err := i.Addrs()
		if err != nil {
			return nil, fmt.Errorf("listing the addresses of %s: %w", i.Name, err)
		}
		for _, a := range addrs {
			if n, ok := a.(*net.IPNet); ok {
				if addr, ok := netip.AddrFromSlice(n.IP); ok {
					c.addrs = append(c.addrs, addr.Unmap())
				}
			}
		}
		cards = append(cards, c)
	}
	return cards, nil
}

func choose(nics []card, device string) (Choice, error) {
	if device == "" {
		return Choice{}, fmt.Errorf("no device given (want an interface, an address or a network such as 10.1.0.0/16; this host has %s)", have(nics))
	}
	if addr, err := netip.ParseAddr(device); err == nil {
		return chooseAddr(nics, device, addr)
	}
	if network, err := netip.ParsePrefix(device); err == nil {
		return chooseInside(nics, device, network)
	}
	return chooseNamed(nics, device)
}

func chooseAddr(nics []card, device string, addr netip.Addr) (Choice, error) {
	addr = addr.Unmap()
	n, ok := holder(nics, addr)
	switch {
	case !ok:
		return Choice{}, absent{fmt.Errorf(
			"device %q: no interface of this host has this address (it has %s)", device, have(nics))}
	case !n.up:
		return Choice{}, absent{fmt.Errorf(
			"device %q: interface %s, which has this address, is down", device, n.name)}
	}
	return Choice{n.name, addr, n.loopback}, nil
}

func chooseInside(nics []card, device string, network netip.Prefix) (Choice, error) {
	var found []Choice
	for _, n := range nics {
		for _, a := range n.addrs {
			if n.up && network.Contains(a) {
				found = append(found, Choice{n.name, a, n.loopback})
			}
		}
	}
	switch len(found) {
	case 0:
		return Choice{}, absent{fmt.Errorf(
			"device %q: no address of this host is inside (it has %s)", device, have(nics))}
	case 1:
		return found[0], nil
	}
	return Choice{}, fmt.Errorf("device %q: more than one address of this host is inside (%v): name one of them", device, found)
}

func chooseNamed(nics []card, device string) (Choice, error) {
	i := slices.IndexFunc(nics, func(n card) bool { return n.name == device })
	if i < 0 {
		return Choice{}, absent{fmt.Errorf("device %q: neither an interface of this host, nor an address, nor a network (it has %s)", device, have(nics))}
	}
	n := nics[i]
	if !n.up {
		return Choice{}, absent{fmt.Errorf("device %q: the interface is down", device)}
	}
	addr, ok := n.first()
	if !ok {
		return Choice{}, absent{fmt.Errorf("device %q: the interface has no address to bind to", device)}
	}
	return Choice{n.name, addr, n.loopback}, nil
}

func usable(nics []card) (list []Choice, err error) {
	for _, n := range nics {
		if addr, ok := n.first(); ok && n.up && !n.loopback {
			list = append(list, Choice{Interface: n.name, Addr: addr})
		}
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("device \"auto\": loopback apart, no interface is up with an address "+
			"(this host has %s)", have(nics))
	}
	return list, nil
}

// first is the address that stands for the interface. Link-local addresses don't: they
// need a zone, which means nothing to the other hosts.
func (c card) first() (netip.Addr, bool) {
	var v6 netip.Addr
	for _, a := range c.addrs {
		switch {
		case !a.IsGlobalUnicast() && !(c.loopback && a.IsLoopback()):
		case a.Is4():
			return a, true
		case !v6.IsValid():
			v6 = a
		}
	}
	return v6, v6.IsValid()
}

// holder finds the interface that has the address. The whole of 127.0.0.0/8 is on the
// loopback, though only 127.0.0.1 is listed.
func holder(nics []card, addr netip.Addr) (card, bool) {
	for _, n := range nics {
		if slices.Contains(n.addrs, addr) || n.loopback && addr.Is4() && addr.IsLoopback() {
			return n, true
		}
	}
	return card{}, false
}

// have lists the interfaces for an error message.
func have(nics []card) string {
	var parts []string
	for _, n := range nics {
		switch addr, ok := n.first(); {
		case !n.up:
			parts = append(parts, n.name+" (down)")
		case ok:
			parts = append(parts, n.name+" "+addr.String())
		default:
			parts = append(parts, n.name+" (no address)")
		}
	}
	if len(parts) == 0 {
		return "none"
	}
	return strings.Join(parts, ", ")
}
