//go:build !linux

package shm

import (
	"errors"

	"github.com/polyrail/polyrail/railactors/transport"
)

// openDevice: sealed memory is Linux's.
func openDevice(Options) (transport.Device, error) { return nil, errors.ErrUnsupported }
