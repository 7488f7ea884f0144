package tcp

import (
	"cmp"
	"errors"
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"
)

// controlFunc is what the net package calls on a socket before it binds or connects.
type controlFunc = func(network, address string, c syscall.RawConn) error

// control sets the options, and binds the socket to an interface if one is given. That has
// to happen before the connection: buffers decide the window scale, the interface the route.
func (d *device) control(through string) controlFunc {
	o := d.options
	return func(_, _ string, c syscall.RawConn) error {
		return onDescriptor(c, func(fd int) error {
			for _, opt := range []struct {
				what               string
				value, level, name int
			}{
				{"SO_SNDBUF", o.SendBuffer, unix.SOL_SOCKET, unix.SO_SNDBUF},
				{"SO_RCVBUF", o.ReceiveBuffer, unix.SOL_SOCKET, unix.SO_RCVBUF},
				{"TCP_NOTSENT_LOWAT", cmp.Or(o.NotSentLowWater, unsentBytes), unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT},
			} {
				if opt.value == 0 {
					continue
				}
				err := unix.SetsockoptInt(fd, opt.level, opt.name, opt.value)
				if err == nil {
					continue
				}
				err = fmt.Errorf("%s to %d: %w", opt.what, opt.value, err)
				if opt.name != unix.TCP_NOTSENT_LOWAT || o.NotSentLowWater != 0 {
					return err
				}
				d.unlimited.Store(&err) // nobody has asked for it: grants wait longer, no more
			}
			if o.Congestion != "" {
				if err := setCongestion(fd, o.Congestion); err != nil {
					return fmt.Errorf("congestion control %q: %w", o.Congestion, err)
				}
			}
			if through == "" {
				return nil
			}
			if err := bindToDevice(fd, through); err != nil {
				return fmt.Errorf("binding a socket to interface %s: %w", through, err)
			}
			return nil
		})
	}
}

// late is a control of sockets that connect: their ports are chosen then.
func late(control controlFunc) controlFunc {
	return func(network, address string, c syscall.RawConn) error {
		return errors.Join(control(network, address, c), c.Control(func(fd uintptr) { choosePortLate(int(fd)) }))
	}
}

func setReusePort(c syscall.RawConn, on bool) error {
	value := 0
	if on {
		value = 1
	}
	return onDescriptor(c, func(fd int) error {
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEPORT, value); err != nil {
			return fmt.Errorf("SO_REUSEPORT: %w", err)
		}
		return nil
	})
}

func onDescriptor(c syscall.RawConn, f func(fd int) error) error {
	var failed error
	if err := c.Control(func(fd uintptr) { failed = f(int(fd)) }); err != nil {
		return err
	}
	return failed
}
