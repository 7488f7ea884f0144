package polyrail_test

import (
	"net/netip"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	. "github.com/polyrail/polyrail"
	"github.com/polyrail/polyrail/test/program"
)

// A host has a bridge of containers, whose address is every host's that has one. A node that listens
// on all interfaces and has no address to join tells the others its first rail's.
func TestWhoListensOnAllInterfacesTellsARailsAddress(t *testing.T) {
	if !program.Inside(t, syscall.CLONE_NEWNET) {
		return
	}
	for _, args := range []string{"link set lo up", "addr add 10.88.0.1/8 dev lo", "addr add 192.168.5.1/32 dev lo"} {
		if out, err := exec.Command("ip", strings.Fields(args)...).CombinedOutput(); err != nil {
			t.Skipf("SKIPPED: ip %s: %v %s", args, err, out)
		}
	}
	for _, join := range [][]string{nil, {"name.invalid:7946"}} {
		cfg := DefaultConfig()
		cfg.Name, cfg.Bind, cfg.Join = "a", "0.0.0.0:0", join
		cfg.Rails = []Rail{{Name: "b", Protocol: "tcp", Device: "127.0.0.1"},
			{Name: "c", Protocol: "tcp", Device: "192.168.5.1"}, {Name: "a", Protocol: "tcp", Device: "10.88.0.1"}}
		node, err := Start(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		if a := netip.MustParseAddrPort(node.GossipAddr()); a.Addr().String() != "192.168.5.1" || a.Port() == 0 {
			t.Errorf("join %v: others are to reach it at %v", join, a)
		}
		if err := node.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
}
