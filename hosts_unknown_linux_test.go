package polyrail_test

import (
	"bytes"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	. "github.com/polyrail/polyrail"
)

// TestANodeSaysThatItsHostIsNotKnown runs itself in a process that hides the boot's name.
func TestANodeSaysThatItsHostIsNotKnown(t *testing.T) {
	const hides = "HOST_IS_HIDDEN"
	if os.Getenv(hides) == "" {
		child := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
		child.Env = append(os.Environ(), hides+"=1")
		child.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
			UidMappings: []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}},
			GidMappings: []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}}}
		out, err := child.CombinedOutput()
		if child.Process == nil || bytes.Contains(out, []byte("SKIPPED")) {
			t.Skipf("SKIPPED: a namespace of mounts: %v %s", err, out)
		}
		if err != nil {
			t.Errorf("%v\n%s", err, out)
		}
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
