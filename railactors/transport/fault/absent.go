package fault

import (
	"fmt"
	"sync/atomic"

	"github.com/polyrail/polyrail/railactors/transport"
)

// Absent is a transport without devices while Now is set, as if interfaces were down. Transports of
// several nodes may share it.
type Absent struct {
	transport.Transport
	Now *atomic.Bool
}

// Open opens a device, or says that it is absent.
func (a Absent) Open(device string) (transport.Device, error) {
	if a.Now.Load() {
		return nil, fmt.Errorf("%w: %s is down", transport.ErrAbsent, device)
	}
	return a.Transport.Open(device)
}
