package tcp_test

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/polyrail/polyrail/railactors/transport/tcp"
)

// Many connections from one address don't search for a port that none of the others has.
func TestThePortOfAConnectionIsChosenWhenItConnects(t *testing.T) {
	near, _ := connect(t, open(t, tcp.Options{}, "127.0.0.1"), open(t, tcp.Options{}, "127.0.0.1"))
	var late int
	var err error
	if failed := tcp.Raw(near).Control(func(fd uintptr) {
		late, err = unix.GetsockoptInt(int(fd), unix.SOL_IP, unix.IP_BIND_ADDRESS_NO_PORT)
	}); failed != nil || err != nil || late != 1 {
		t.Errorf("IP_BIND_ADDRESS_NO_PORT is %d: %v, %v", late, failed, err)
	}
}
