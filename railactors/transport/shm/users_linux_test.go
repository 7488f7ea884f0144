package shm

import (
	"errors"
	"io"
	"net"
	"os"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

const nobody = 65534

// A process of another user shares no memory, whoever dials: it is told nothing, and its own end
// refuses as well.
func TestProcessesOfOtherUsersShareNoMemory(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED: only root can be another user")
	}
	var devices [2]*device
	for i := range devices {
		d, err := New(Options{}).Open("")
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		devices[i] = d.(*device)
	}
	addr := devices[0].Addr()
	name, _, _ := strings.Cut(addr, ":")
	var skipped, dialed, told error
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // and never unlocked: the thread, which is nobody's, ends with it
		if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, nobody, nobody, nobody); errno != 0 {
			skipped = errno
			return
		}
		c, err := devices[1].Dial(t.Context(), addr)
		if dialed = err; err == nil {
			c.Close()
		}
		told = heard(socketOf(name))
	}()
	<-done
	if skipped != nil {
		t.Skipf("SKIPPED: another user: %v", skipped)
	}
	if !errors.Is(dialed, errOtherUser) {
		t.Errorf("another user dials: %v", dialed)
	}
	if told == nil {
		t.Error("another user is greeted")
	}
}

// heard is nil where a process at the other end greets whoever dials.
func heard(to *net.UnixAddr) error {
	socket, err := net.DialUnix("unix", nil, to)
	if err != nil {
		return err
	}
	defer socket.Close()
	n, _, _, _, err := socket.ReadMsgUnix(make([]byte, helloBytes), make([]byte, 100))
	if err == nil && n == 0 {
		return io.EOF
	}
	return err
}
