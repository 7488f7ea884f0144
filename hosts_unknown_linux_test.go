package polyrail_test

import (
	"bytes"
	"log/slog"
	"strings"
	"syscall"
	"testing"

	. "github.com/polyrail/polyrail"
	"github.com/polyrail/polyrail/test/program"
)

// TestANodeSaysThatItsHostIsNotKnown runs itself in a process that hides the boot's name.
func TestANodeSaysThatItsHostIsNotKnown(t *testing.T) {
	if !program.Inside(t, syscall.CLONE_NEWNS) {
		return
	}
	if err := syscall.Mount("none", "/proc/sys/kernel", "tmpfs", 0, ""); err != nil {
		t.Skipf("SKIPPED: %v", err)
	}
	var log bytes.Buffer
	cfg := DefaultConfig()
	cfg.Name, cfg.Logger = "a", slog.New(slog.NewTextHandler(&log, nil))
	cfg.Rails = []Rail{{Name: "a", Protocol: "tcp", Device: "127.0.0.1"}}
	node, err := Start(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := node.Close(t.Context()); err != nil {
		t.Error(err)
	}
	said := log.String()
	if !strings.Contains(said, "host not known") || !strings.Contains(said, "boot_id") {
		t.Errorf("the log doesn't say what hides the host:\n%s", said)
	}
}
