package program

import (
	"bytes"
	"os"
	"os/exec"
	"syscall"
	"testing"
)

// insideVariable says that this process is within the namespaces that Inside has made.
const insideVariable = "POLYRAIL_TEST_INSIDE"

// Inside runs a test again, in a process with namespaces of its own (CLONE_NEWNET, CLONE_NEWNS, …),
// in which it is root. There it reports true; here it fails or skips as the test has, and reports
// false.
func Inside(t *testing.T, namespaces uintptr) bool {
	t.Helper()
	if os.Getenv(insideVariable) != "" {
		return true
	}
	child := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	child.Env = append(os.Environ(), insideVariable+"=1")
	child.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER | namespaces,
		UidMappings: []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}}}
	out, err := child.CombinedOutput()
	if child.Process == nil || bytes.Contains(out, []byte("SKIPPED")) {
		t.Skipf("SKIPPED: namespaces: %v %s", err, out)
	}
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	return false
}
