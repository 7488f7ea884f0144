package tcp

import (
	"time"

	"github.com/polyrail/polyrail/railactors/transport"
)

// Progress implements transport.Confirmer by TCP_INFO. A receiver whose window is closed, because
// its process is slow or stopped, has nothing to confirm but the kernel's probes.
func (c *conn) Progress() (p transport.Progress, ok bool) {
	err := onDescriptor(c.raw, func(fd int) error {
		info, err := tcpInfo(fd)
		if err != nil {
			return err
		}
		p = transport.Progress{
			Awaiting: info.Unacked > 0 || info.Probes > 0,
			Acked:    info.Bytes_acked,
			LastAck:  time.Duration(info.Last_ack_recv) * time.Millisecond,
			RTT:      time.Duration(info.Rtt) * time.Microsecond,
		}
		return nil
	})
	return p, err == nil
}
