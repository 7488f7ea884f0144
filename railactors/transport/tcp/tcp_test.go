package tcp_test

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"syscall"
	"testing"

	"github.com/polyrail/polyrail/railactors/transport"
	"github.com/polyrail/polyrail/railactors/transport/nic"
	"github.com/polyrail/polyrail/railactors/transport/tcp"
	"github.com/polyrail/polyrail/railactors/transport/transporttest"
)

func TestConformance(t *testing.T) {
	for name, o := range map[string]tcp.Options{
		"AsItComes":       {},
		"SmallBuffers":    {SendBuffer: 8 << 10, ReceiveBuffer: 8 << 10},
		"LowNotSentWater": {NotSentLowWater: 64 << 10},
	} {
		t.Run(name, func(t *testing.T) {
			transporttest.Run(t, func(t *testing.T) (a, b transport.Device) {
				return open(t, o, "127.0.0.2"), open(t, o, "127.0.0.3")
			})
		})
	}
}

// Two nodes on one host may be told to use its NIC by name: their sockets are bound to an
// interface through which packets of this host to itself never come.
func TestConformanceOnAnInterfaceOfThisHost(t *testing.T) {
	list, err := nic.Auto()
	if err != nil {
		t.Skip("this host has no interface but loopback: ", err)
	}
	transporttest.Run(t, func(t *testing.T) (a, b transport.Device) {
		return open(t, tcp.Options{}, list[0].Interface), open(t, tcp.Options{}, list[0].Interface)
	})
}

func open(t *testing.T, o tcp.Options, name string) transport.Device {
	t.Helper()
	d, err := tcp.New(o).Open(name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

func connect(t *testing.T, a, b transport.Device) (near, far transport.Conn) {
	t.Helper()
	near, err := a.Dial(t.Context(), b.Addr())
	if err != nil {
		t.Fatal(err)
	}
	if far, err = b.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { near.Close(); far.Close() })
	return near, far
}

func TestADeviceListensOnThePortItIsGiven(t *testing.T) {
	port := freePort(t)
	name := fmt.Sprintf("127.0.0.4:%d", port)
	d := open(t, tcp.Options{}, name)
	if d.Addr() != name {
		t.Errorf("listens on %s, want %s", d.Addr(), name)
	}
	if _, err := tcp.New(tcp.Options{}).Open(name); !errors.Is(err, syscall.EADDRINUSE) || !strings.Contains(err.Error(), name) {
		t.Errorf("the port is taken: %v", err)
	}
	d.Close()
	if d := open(t, tcp.Options{Port: port}, "127.0.0.4"); d.Addr() != name {
		t.Errorf("listens on %s, want the port of the options, %s", d.Addr(), name)
	}
}

func TestNobodyElseGetsThePortOfAnInterface(t *testing.T) {
	list, err := nic.Auto()
	if err != nil {
		t.Skip("this host has no interface but loopback: ", err)
	}
	d := open(t, tcp.Options{}, list[0].Interface)
	_, port, _ := net.SplitHostPort(d.Addr())
	if _, err := tcp.New(tcp.Options{}).Open(list[0].Interface + ":" + port); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("opened the same port again: %v", err)
	}
}

func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.4:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

func TestADeviceThatCannotBeOpenedIsNamed(t *testing.T) {
	for _, name := range []string{"", "nosuch0", "203.0.113.77", "203.0.113.0/24", "nosuch0:7000", "127.0.0.1:port", "127.0.0.1:70000", "[eth0"} {
		d, err := tcp.New(tcp.Options{}).Open(name)
		if err == nil {
			d.Close()
			t.Errorf("%q was opened", name)
		} else if !strings.Contains(err.Error(), strings.TrimSuffix(name, ":7000")) {
			t.Errorf("%q: the error doesn't name it: %v", name, err)
		}
	}
}

func TestIPv6(t *testing.T) {
	a, err := tcp.New(tcp.Options{}).Open("::1")
	if err != nil {
		t.Skipf("no IPv6 loopback here: %v", err)
	}
	defer a.Close()
	b := open(t, tcp.Options{}, "[::1]:0")
	near, far := connect(t, a, b)
	if _, err := near.Write([]byte("six")); err != nil {
		t.Fatal(err)
	}
	if _, err := far.ReadFull(make([]byte, 3)); err != nil {
		t.Error(err)
	}
}

// A rail is IPv4 on one node and IPv6 on another one.
func TestADialToTheOtherFamilyNamesBothAddresses(t *testing.T) {
	a, err := tcp.New(tcp.Options{}).Open("::1")
	if err != nil {
		t.Skipf("no IPv6 loopback here: %v", err)
	}
	defer a.Close()
	b := open(t, tcp.Options{}, "127.0.0.2")
	for _, ends := range [][2]transport.Device{{a, b}, {b, a}} {
		from, to := ends[0], ends[1]
		c, err := from.Dial(t.Context(), to.Addr())
		if err == nil {
			c.Close()
			t.Fatalf("%v reached %v", from.Addr(), to.Addr())
		}
		for _, want := range []string{to.Addr(), from.Chosen(), "IPv4", "IPv6"} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%q is not in: %v", want, err)
			}
		}
	}
}

func TestADialToNonsenseNamesIt(t *testing.T) {
	a := open(t, tcp.Options{}, "127.0.0.2")
	if _, err := a.Dial(t.Context(), "somewhere:http"); err == nil || !strings.Contains(err.Error(), "somewhere:http") {
		t.Error(err)
	}
}

func TestManySmallFramesCostOneSystemCall(t *testing.T) {
	near, far := connect(t, open(t, tcp.Options{}, "127.0.0.2"), open(t, tcp.Options{}, "127.0.0.3"))
	frames := make([]byte, 50*104)
	if _, err := near.Write(frames); err != nil {
		t.Fatal(err)
	}
	if _, err := far.ReadFull(make([]byte, 104)); err != nil {
		t.Fatal(err)
	}
	if got := far.Buffered(); got != 49*104 {
		t.Errorf("%d bytes at hand after the first of 50 frames, want the other 49", got)
	}
}

// An 8 KiB read of a payload finds the next header too, and little of what is behind it.
func TestALargeReadTakesTheNextHeaderAlong(t *testing.T) {
	near, far := connect(t, open(t, tcp.Options{}, "127.0.0.2"), open(t, tcp.Options{}, "127.0.0.3"))
	if _, err := near.Write(make([]byte, 40<<10)); err != nil {
		t.Fatal(err)
	}
	if _, err := far.ReadFull(make([]byte, 8<<10)); err != nil {
		t.Fatal(err)
	}
	if got := far.Buffered(); got < 96 || got > 1<<10 {
		t.Errorf("%d bytes at hand", got)
	}
}

func TestAFailedConnectionIsNamed(t *testing.T) {
	near, far := connect(t, open(t, tcp.Options{}, "127.0.0.2"), open(t, tcp.Options{}, "127.0.0.3"))
	if _, err := near.Write([]byte("never read")); err != nil {
		t.Fatal(err)
	}
	far.(interface{ AbortForTest() }).AbortForTest()
	_, err := near.ReadFull(make([]byte, 1))
	if !errors.Is(err, syscall.ECONNRESET) {
		t.Fatalf("got %v, want a reset", err)
	}
	for _, addr := range []string{near.LocalAddr().String(), near.RemoteAddr().String()} {
		if !strings.Contains(err.Error(), addr) {
			t.Errorf("%q does not name %s", err, addr)
		}
	}
}

func TestSteadyTrafficDoesNotAllocate(t *testing.T) {
	near, far := connect(t, open(t, tcp.Options{}, "127.0.0.2"), open(t, tcp.Options{}, "127.0.0.3"))
	head, body, got := make([]byte, 96), make([]byte, 8<<10), make([]byte, 8<<10)
	bufs := [][]byte{head, body}
	if n := testing.AllocsPerRun(200, func() {
		if _, err := near.Write(bufs...); err != nil {
			t.Fatal(err)
		}
		if _, err := far.ReadFull(got[:96]); err != nil {
			t.Fatal(err)
		}
		if _, err := far.ReadFull(got); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations per frame", n)
	}
}
