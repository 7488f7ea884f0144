//go:build !linux

package tcp

import "errors"

// bindToDevice is Linux's: elsewhere sockets are bound to the device's address only.
func bindToDevice(int, string) error { return errors.ErrUnsupported }
