package railactors

import (
	"context"
	"log/slog"
	"net"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/polyrail/polyrail/railactors/transport"
	"github.com/polyrail/polyrail/railactors/transport/mem"
)

// fullTransport is of a process that has no descriptor left for what connects.
type fullTransport struct{ transport.Transport }

func (t fullTransport) Open(device string) (transport.Device, error) {
	d, err := t.Transport.Open(device)
	return fullDevice{d, make(chan struct{})}, err
}

type fullDevice struct {
	transport.Device
	closed chan struct{}
}

func (d fullDevice) Accept() (transport.Conn, error) {
	select {
	case <-d.closed:
		return nil, net.ErrClosed
	default:
		return nil, syscall.EMFILE
	}
}

func (d fullDevice) Close() error {
	close(d.closed)
	return d.Device.Close()
}

func (fullDevice) WatchLink(context.Context, func(up bool)) error { return syscall.EMFILE }

// A process can be without descriptors for days. Its rails try on each second.
func TestWhatARailCannotDoIsSaidOnceAMinute(t *testing.T) {
	for _, line := range []string{"rail can't accept", "the link isn't watched, trying on"} {
		virtual(t, 1, func(b *bed, net *mem.Network) {
			var said atomic.Int64
			b.open = func(node string) transport.Transport { return fullTransport{net.Transport(node)} }
			b.tune = func(c *Config) { c.Logger = slog.New(spoken{slog.DiscardHandler, line, &said}) }
			b.start("a")
			<-time.After(10*time.Minute + time.Second)
			if n := said.Load(); n < 5 || n > 11 {
				t.Errorf("%q: said %d times in ten minutes", line, n)
			}
		})
	}
}
