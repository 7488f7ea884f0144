package tcp_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/polyrail/polyrail/railactors/transport"
	"github.com/polyrail/polyrail/railactors/transport/tcp"
)

// Two hosts with two cables between them, all four NICs in one subnet: the routing table
// would send everything through the first.
func TestARailsTrafficLeavesThroughItsDeviceEvenInASharedSubnet(t *testing.T) {
	one, two := newHosts(t)
	near, far := dialBetween(t, one, two, "cable1")
	const size = 1 << 20
	for _, way := range [][2]transport.Conn{{near, far}, {far, near}} {
		done := make(chan error, 1)
		go func() {
			_, err := way[0].Write(make([]byte, size))
			done <- err
		}()
		if _, err := way[1].ReadFull(make([]byte, size)); err != nil {
			t.Fatal(err)
		}
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
	for _, h := range []string{one, two} {
		if used, other := sentBytes(t, h, "cable1"), sentBytes(t, h, "cable0"); used < size || other > size/100 {
			t.Errorf("host %s sent %d bytes through cable1, %d through cable0", h, used, other)
		}
	}
}

// An IPv6 address can't be used until the system has looked for its double.
func TestAnAddressThatCannotBeUsedYetMayComeLater(t *testing.T) {
	one, two := newHosts(t)
	ip(t, "-n", two, "link", "set", "cable0", "down") // without a carrier it doesn't look
	inside(t, one, func() {
		if err := os.WriteFile("/proc/sys/net/ipv6/conf/cable0/disable_ipv6", []byte("0"), 0); err != nil {
			t.Skip(err)
		}
		ip(t, "-n", one, "addr", "add", "fd00:213::1/64", "dev", "cable0")
		if !strings.Contains(ip(t, "-n", one, "addr", "show", "dev", "cable0"), "tentative") {
			t.Skip("the system does not look for doubles here")
		}
		if d, err := tcp.New(tcp.Options{}).Open("fd00:213::/64"); !errors.Is(err, transport.ErrAbsent) {
			t.Errorf("device %v, error %v", d, err)
		}
		ip(t, "-n", one, "addr", "del", "fd00:213::1/64", "dev", "cable0")
		ip(t, "-n", one, "addr", "add", "fd00:213::1/64", "dev", "cable0", "nodad")
		open(t, tcp.Options{}, "fd00:213::/64")
	})
}

// newHosts makes two network namespaces with addresses 10.213.0.1/2 on cable0 and
// 10.213.0.11/12 on cable1.
func newHosts(t *testing.T) (one, two string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root, for network namespaces")
	}
	if _, err := exec.LookPath("ip"); err != nil {
		t.Skip("needs the ip command")
	}
	prefix := "plr" + strconv.Itoa(os.Getpid())
	one, two = prefix+"a", prefix+"b"
	for _, h := range []string{one, two} {
		if out, err := exec.Command("ip", "netns", "add", h).CombinedOutput(); err != nil {
			t.Skipf("no network namespaces here: %v: %s", err, out)
		}
		t.Cleanup(func() { exec.Command("ip", "netns", "del", h).Run() })
		ip(t, "-n", h, "link", "set", "lo", "up")
	}
	for cable := range 2 {
		name := fmt.Sprintf("cable%d", cable)
		ip(t, "-n", one, "link", "add", name, "type", "veth", "peer", "name", name, "netns", two)
		for i, h := range []string{one, two} {
			ip(t, "-n", h, "addr", "add", fmt.Sprintf("10.213.0.%d/24", 10*cable+i+1), "dev", name)
			ip(t, "-n", h, "link", "set", name, "up")
		}
	}
	return one, two
}

func ip(t *testing.T, args ...string) string {
	t.Helper()
	out, err := exec.Command("ip", args...).CombinedOutput()
	if err != nil {
		t.Skipf("no such network here: ip %s: %v: %s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// dialBetween connects the hosts' devices of one name.
func dialBetween(t *testing.T, one, two, device string) (near, far transport.Conn) {
	t.Helper()
	var a, b transport.Device
	inside(t, one, func() { a = open(t, tcp.Options{}, device) })
	inside(t, two, func() { b = open(t, tcp.Options{}, device) })
	if strings.Contains(a.Chosen()+b.Chosen(), "address only") {
		t.Skipf("sockets cannot be bound to an interface here: %s, %s", a.Chosen(), b.Chosen())
	}
	var err error
	inside(t, one, func() { near, err = a.Dial(t.Context(), b.Addr()) })
	if err != nil {
		t.Fatal(err)
	}
	if far, err = b.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { near.Close(); far.Close() })
	return near, far
}

// inside runs f on a thread in the host's namespace: a socket stays where it was made.
func inside(t *testing.T, host string, f func()) {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	home, err := os.Open(fmt.Sprintf("/proc/self/task/%d/ns/net", unix.Gettid()))
	if err != nil {
		t.Fatal(err)
	}
	defer home.Close()
	away, err := os.Open("/var/run/netns/" + host)
	if err != nil {
		t.Skip(err)
	}
	defer away.Close()
	if err := unix.Setns(int(away.Fd()), unix.CLONE_NEWNET); err != nil {
		t.Skip(err)
	}
	defer func() {
		if err := unix.Setns(int(home.Fd()), unix.CLONE_NEWNET); err != nil {
			panic(fmt.Sprintf("a thread is lost in namespace %s: %v", host, err))
		}
	}()
	f()
}

func sentBytes(t *testing.T, host, device string) int {
	t.Helper()
	// The line after "TX: bytes …" begins with the number.
	_, tx, _ := strings.Cut(ip(t, "-n", host, "-s", "link", "show", device), "TX:")
	lines := strings.Split(tx, "\n")
	if len(lines) < 2 {
		t.Fatalf("no counters of %s", device)
	}
	n, err := strconv.Atoi(strings.Fields(lines[1])[0])
	if err != nil {
		t.Fatal(err)
	}
	return n
}
