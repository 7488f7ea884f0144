package tcp_test

import (
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/polyrail/polyrail/railactors/transport/tcp"
)

func TestBothEndsUseTheCongestionControlAskedFor(t *testing.T) {
	o := tcp.Options{Congestion: "reno"} // every kernel has it
	near, far := connect(t, open(t, o, "127.0.0.1"), open(t, o, "127.0.0.1"))
	for _, c := range []any{near, far} {
		var name string
		var err error
		if failed := tcp.Raw(c).Control(func(fd uintptr) {
			name, err = unix.GetsockoptString(int(fd), unix.IPPROTO_TCP, unix.TCP_CONGESTION)
		}); failed != nil || err != nil {
			t.Fatal(failed, err)
		}
		if name = strings.TrimRight(name, "\x00"); name != "reno" {
			t.Errorf("congestion control %q", name)
		}
	}
}

func TestAnUnknownCongestionControlIsNamed(t *testing.T) {
	_, err := tcp.New(tcp.Options{Congestion: "nonesuch"}).Open("127.0.0.1")
	if err == nil || !strings.Contains(err.Error(), `"nonesuch"`) {
		t.Errorf("error %v", err)
	}
}
