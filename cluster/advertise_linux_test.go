package cluster

import (
	"bytes"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// TestWhoListensOnAllInterfacesTellsTheOneThatSeedsSee in a network of its own, which has a public
// address and no private one.
func TestWhoListensOnAllInterfacesTellsTheOneThatSeedsSee(t *testing.T) {
	const inside = "OWN_NETWORK"
	if os.Getenv(inside) == "" {
		child := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
		child.Env = append(os.Environ(), inside+"=1")
		child.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER | syscall.CLONE_NEWNET,
			UidMappings: []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}},
			GidMappings: []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}}}
		out, err := child.CombinedOutput()
		if child.Process == nil || bytes.Contains(out, []byte("SKIPPED")) {
			t.Skipf("SKIPPED: a namespace of networks: %v %s", err, out)
		}
		if err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	for _, args := range []string{"link set lo up", "addr add 8.9.0.1/32 dev lo"} {
		if out, err := exec.Command("ip", strings.Fields(args)...).CombinedOutput(); err != nil {
			t.Skipf("SKIPPED: ip %s: %v %s", args, err, out)
		}
	}
	own := "8.9.0.1:7946"
	others := []string{"name.invalid:7946", "127.0.0.1:7946", "10.9.9.9:7946"}
	for _, seeds := range [][]string{{own}, append(others, own)} {
		c := config(nil, "a", 7, "0.0.0.0:0", seeds...)
		g, err := Start(t.Context(), c, newEar())
		if err != nil {
			t.Fatalf("seeds %v: %v", seeds, err)
		}
		if a := netip.MustParseAddrPort(g.Addr()); a.Addr().String() != "8.9.0.1" || a.Port() == 0 {
			t.Errorf("seeds %v: others are to reach it at %v", seeds, a)
		}
		if err := g.Close(); err != nil {
			t.Error(err)
		}
	}
	_, err := Start(t.Context(), config(nil, "a", 7, "0.0.0.0:0"), newEar())
	if err == nil || !strings.Contains(err.Error(), "or advertise one") {
		t.Errorf("no address to tell the others: %v", err)
	}
}
