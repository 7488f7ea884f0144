package tcp_test

import (
	"strings"
	"testing"

	"github.com/polyrail/polyrail/railactors/transport/tcp"
)

func TestADevicesNameMayEndInAPort(t *testing.T) {
	for name, want := range map[string]struct {
		selector string
		port     int
	}{
		"eth0":               {"eth0", 0},
		"eth0:7000":          {"eth0", 7000},
		"10.1.0.7":           {"10.1.0.7", 0},
		"10.1.0.7:7000":      {"10.1.0.7", 7000},
		"10.1.0.0/16":        {"10.1.0.0/16", 0},
		"10.1.0.0/16:7000":   {"10.1.0.0/16", 7000},
		"fd00::1":            {"fd00::1", 0},
		"[fd00::1]":          {"fd00::1", 0},
		"[fd00::1]:7000":     {"fd00::1", 7000},
		"fd00::/64":          {"fd00::/64", 0},
		"[fd00::]/64":        {"fd00::/64", 0},
		"[fd00::]/64:7000":   {"fd00::/64", 7000},
		"[fd00::/64]:7000":   {"fd00::/64", 7000},
		"[::ffff:10.1.0.7]":  {"::ffff:10.1.0.7", 0},
		"[fe80::1%eth0]:700": {"fe80::1%eth0", 700},
	} {
		selector, port, err := tcp.SplitPort(name)
		if err != nil || selector != want.selector || port != want.port {
			t.Errorf("%s: %q and %d, %v; want %q and %d", name, selector, port, err, want.selector, want.port)
		}
	}
	for name, want := range map[string]string{
		"eth0:":           `"" is not a port`,
		"eth0:x":          `"x" is not a port`,
		"[fd00::1]:99999": `"99999" is not a port`,
		"[fd00::1]:":      `"" is not a port`,
		"[fd00::1":        "want [ADDR]",
		"[fd00::1]7000":   "want [ADDR]",
	} {
		if _, _, err := tcp.SplitPort(name); err == nil || !strings.Contains(err.Error(), want) ||
			!strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v; want an error with %s", name, err, want)
		}
	}
}
