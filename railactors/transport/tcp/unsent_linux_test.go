package tcp_test

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/polyrail/polyrail/railactors/transport/tcp"
)

// TestASocketTakesLittleBeyondWhatItSends: the other end reads nothing, and a grant that comes now
// waits behind what the socket has taken and not sent: a frame, and the segment that went over it.
func TestASocketTakesLittleBeyondWhatItSends(t *testing.T) {
	o := tcp.Options{}
	near, _ := connect(t, open(t, o, "127.0.0.1"), open(t, tcp.Options{ReceiveBuffer: 64 << 10}, "127.0.0.1"))
	for frame := make([]byte, 256<<10); ; {
		n, err := near.TryWrite(frame)
		if err != nil {
			t.Fatal(err)
		}
		if n < int64(len(frame)) {
			break
		}
	}
	if err := tcp.Raw(near).Control(func(fd uintptr) {
		unsent, err := unix.IoctlGetInt(int(fd), unix.SIOCOUTQNSD)
		if err != nil || unsent > 320<<10 {
			t.Errorf("%d bytes wait unsent, %v", unsent, err)
		}
	}); err != nil {
		t.Fatal(err)
	}
}
