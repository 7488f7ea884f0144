package tcp

import (
	"net"
	"testing"
	"time"

	"github.com/polyrail/polyrail/railactors/transport"
)

// What a device sends to a group reaches who receives that group from it. What another device sends to
// the same address, or this one to another group, does not.
func TestCastsReachWhoReceivesThem(t *testing.T) {
	const group = 0x19a7d5783fded582
	open := func(address string) transport.Device {
		d, err := New(Options{}).Open(address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { d.Close() })
		return d
	}
	a, b, c := open("127.0.0.1"), open("127.0.0.2"), open("127.0.0.3")
	var receivers []transport.CastReceiver
	for _, d := range []transport.Device{b, c} {
		r, err := d.(transport.Caster).ReceiveCasts(group, a.Addr())
		if err != nil {
			t.Skipf("SKIPPED: no multicast here: %v", err)
		}
		t.Cleanup(func() { r.Close() })
		receivers = append(receivers, r)
	}
	sender := func(group uint64) transport.CastSender {
		s, err := a.(transport.Caster).SendCasts(group)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		return s
	}
	s, other := sender(group), sender(group+1)
	stranger, err := net.DialUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 3)},
		net.UDPAddrFromAddrPort(castAddress(group, a.Addr())))
	if err != nil {
		t.Fatal(err)
	}
	defer stranger.Close()
	for _, send := range []func() error{
		func() error { _, err := stranger.Write([]byte("forged")); return err },
		func() error { return other.Send([]byte("of another group")) },
		func() error { return s.Send([]byte("sum")) },
	} {
		if err := send(); err != nil {
			t.Skipf("SKIPPED: no multicast here: %v", err)
		}
	}
	for _, r := range receivers {
		hang := time.AfterFunc(10*time.Second, func() { r.Close() })
		p := make([]byte, transport.MaxCast)
		n, err := r.Receive(p)
		if hang.Stop(); err != nil || string(p[:n]) != "sum" {
			t.Errorf("received %q, %v", p[:n], err)
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
		if _, err := r.Receive(p); err == nil {
			t.Error("a closed receiver receives")
		}
	}
}

// Addresses are an organisation's own, and the ports nobody's.
func TestCastAddressesAreWithinTheirRange(t *testing.T) {
	for group := range uint64(1000) {
		a := castAddress(group, "10.0.0.9:40123")
		b := a.Addr().As4()
		if b[0] != 239 || b[1]&^3 != 192 || a.Port() < 49152 {
			t.Fatalf("group %d: %v", group, a)
		}
	}
}
