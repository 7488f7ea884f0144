package cluster

import (
	"net/netip"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/polyrail/polyrail/test/program"
)

// TestWhoListensOnAllInterfacesTellsTheOneThatSeedsSee in a network of its own, which has a public
// address and no private one.
func TestWhoListensOnAllInterfacesTellsTheOneThatSeedsSee(t *testing.T) {
	if !program.Inside(t, syscall.CLONE_NEWNET) {
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
