package nic

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/polyrail/polyrail/railactors/transport"
)

func addrs(list ...string) (out []netip.Addr) {
	for _, s := range list {
		out = append(out, netip.MustParseAddr(s))
	}
	return out
}

// host is a host with two rails that share a network, one with IPv6 only, and others
// that cannot be used.
var host = []card{
	{"lo", true, true, addrs("127.0.0.1", "::1")},
	{"eth0", true, false, addrs("fe80::1", "fd00::2", "10.1.0.7", "10.1.0.8")},
	{"eth1", true, false, addrs("10.1.0.9")},
	{"eth2", false, false, addrs("10.2.0.7")},
	{"eth3", true, false, addrs("fe80::3", "fd01::3")},
	{"eth4", true, false, addrs("fe80::4")},
}

func TestADeviceResolvesToOneAddress(t *testing.T) {
	for device, want := range map[string]string{
		"eth0":         "eth0 10.1.0.7",
		"eth3":         "eth3 fd01::3",
		"lo":           "lo 127.0.0.1",
		"10.1.0.8":     "eth0 10.1.0.8",
		"fd00::2":      "eth0 fd00::2",
		"127.0.0.1":    "lo 127.0.0.1",
		"127.0.0.3":    "lo 127.0.0.3",
		"10.1.0.9/32":  "eth1 10.1.0.9",
		"fd01::/16":    "eth3 fd01::3",
		"127.0.0.0/8":  "lo 127.0.0.1",
		"::ffff:a01:9": "eth1 10.1.0.9",
	} {
		c, err := choose(host, device)
		if err != nil || c.String() != want {
			t.Errorf("%s: %v, %v; want %s", device, c, err, want)
		}
	}
}

func TestADeviceThatCannotBeUsedIsAnErrorThatSaysWhy(t *testing.T) {
	for device, want := range map[string]string{
		"":            "no device given",
		"eth9":        "neither an interface",
		"auto":        "neither an interface",
		"eth2":        "is down",
		"eth4":        "no address to bind to",
		"10.1.0.77":   "no interface of this host has this address",
		"10.2.0.7":    "interface eth2, which has this address, is down",
		"10.1.0.0/16": "more than one address of this host is inside ([eth0 10.1.0.7 eth0 10.1.0.8 eth1 10.1.0.9])",
		"10.9.0.0/16": "no address of this host is inside",
		"10.2.0.0/16": "no address of this host is inside",
	} {
		c, err := choose(host, device)
		if err == nil || !strings.Contains(err.Error(), want) || device != "" && !strings.Contains(err.Error(), device) {
			t.Errorf("%s: %v, %v; want an error with %q", device, c, err, want)
		}
		later := device != "" && !strings.Contains(want, "more than one")
		if errors.Is(err, transport.ErrAbsent) != later {
			t.Errorf("%s may come later: %v, want %v", device, !later, later)
		}
	}
	_, err := choose(host, "eth9")
	if want := "(it has lo 127.0.0.1, eth0 10.1.0.7, eth1 10.1.0.9, eth2 (down), eth3 fd01::3, eth4 (no address))"; !strings.Contains(err.Error(), want) {
		t.Errorf("%v; want it to list %s", err, want)
	}
}

func TestAutoTakesEveryUsableInterfaceButLoopback(t *testing.T) {
	want := []Choice{
		{"eth0", netip.MustParseAddr("10.1.0.7"), false},
		{"eth1", netip.MustParseAddr("10.1.0.9"), false},
		{"eth3", netip.MustParseAddr("fd01::3"), false},
	}
	if got, err := usable(host); err != nil || !slices.Equal(got, want) {
		t.Errorf("got %v, %v; want %v", got, err, want)
	}
}

func TestAutoSaysWhatThereIsWhereNothingIsUsable(t *testing.T) {
	list, err := usable([]card{host[0], host[3], host[5]})
	want := "(this host has lo 127.0.0.1, eth2 (down), eth4 (no address))"
	if err == nil || !strings.Contains(err.Error(), `"auto"`) || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, %v; want an error that names auto, with %s", list, err, want)
	}
}

func TestThisHostsInterfaces(t *testing.T) {
	c, err := Select("127.0.0.2")
	if err != nil || !c.Loopback || c.Interface == "" {
		t.Errorf("127.0.0.2: %+v, %v", c, err)
	}
	list, err := Auto()
	if err != nil {
		t.Logf("no rail for auto: %v", err) // a host with a loopback only
	}
	for _, want := range list {
		got, err := Select(want.Interface)
		if err != nil || got != want {
			t.Errorf("auto lists %v, by name it is %v, %v", want, got, err)
		}
		if ok, err := Local(want.Addr); !ok || err != nil {
			t.Errorf("%v is not local: %v", want, err)
		}
	}
	if ok, _ := Local(netip.MustParseAddr("203.0.113.77")); ok {
		t.Error("a documentation address is local")
	}
}
