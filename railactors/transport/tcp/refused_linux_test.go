package tcp_test

import (
	"errors"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/polyrail/polyrail/railactors/transport/tcp"
	"github.com/polyrail/polyrail/test/program"
)

// A sandbox refuses the limit of unsent bytes. Nobody has asked for it: a rail works without, and says
// so. It is refused where somebody has asked.
func TestASystemWithoutALimitOfUnsentBytes(t *testing.T) {
	if !program.Inside(t, 0) {
		return
	}
	refuseOption(t, unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT)
	a, b := open(t, tcp.Options{}, "127.0.0.1"), open(t, tcp.Options{}, "127.0.0.1")
	connect(t, a, b)
	if said := a.Chosen(); !strings.Contains(said, "TCP_NOTSENT_LOWAT") {
		t.Errorf("the device says %q", said)
	}
	_, err := tcp.New(tcp.Options{NotSentLowWater: 1 << 20}).Open("127.0.0.1")
	if !errors.Is(err, syscall.ENOPROTOOPT) {
		t.Errorf("a limit that was asked for: %v", err)
	}
}

// refuseOption has the kernel refuse a socket option to this process from now on.
func refuseOption(t *testing.T, level, name uint32) {
	t.Helper()
	const (
		number, second, third = 0, 24, 32 // offsets of the call's number and arguments, little-endian
		load                  = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS
		equal                 = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
		answer                = unix.BPF_RET | unix.BPF_K
		refuse, allow         = 0x00050000, 0x7fff0000 // SECCOMP_RET_ERRNO, _ALLOW
		filterMode, allOfIt   = 1, 1                   // SECCOMP_SET_MODE_FILTER, _FILTER_FLAG_TSYNC
	)
	rules := []unix.SockFilter{
		{Code: load, K: number}, {Code: equal, K: unix.SYS_SETSOCKOPT, Jf: 5},
		{Code: load, K: second}, {Code: equal, K: level, Jf: 3},
		{Code: load, K: third}, {Code: equal, K: name, Jf: 1},
		{Code: answer, K: refuse | uint32(syscall.ENOPROTOOPT)},
		{Code: answer, K: allow},
	}
	program := unix.SockFprog{Len: uint16(len(rules)), Filter: &rules[0]}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		t.Skipf("SKIPPED: %v", err)
	}
	if r, _, errno := unix.Syscall(unix.SYS_SECCOMP, filterMode, allOfIt, uintptr(unsafe.Pointer(&program))); r != 0 || errno != 0 {
		t.Skipf("SKIPPED: a filter of system calls: %v %v", r, errno)
	}
}
