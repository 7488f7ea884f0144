package tcp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/polyrail/polyrail/railactors/transport"
	"github.com/polyrail/polyrail/railactors/transport/nic"
)

// device implements transport.Device.
type device struct {
	options   Options
	selector  string
	choice    atomic.Pointer[nic.Choice] // its interface may change, and its address does not
	unbound   error                      // why sockets are bound to the address only
	unlimited atomic.Pointer[error]      // why they take any amount of what is not sent yet; nil: they don't
	addr      string
	listeners []*net.TCPListener

	open      context.Context // ends with Close, and every dial with it
	close     context.CancelFunc
	incoming  chan incoming
	acceptors sync.WaitGroup
	unwatch   atomic.Pointer[context.CancelFunc] // ends the watch over the interface; nil: there was none
}

type incoming struct {
	conn *net.TCPConn
	err  error
}

// openDevice listens at the chosen address and, in a second listener, on its interface too.
//
// A socket that is bound to the interface sends through it even when several rails share a
// subnet, where the address alone leaves the choice to the routing table; but it hears
// nothing from this very host, whose packets come over the loopback. So there is one
// listener for each, on the same port: the kernel hands a connection to the closer match.
func openDevice(o Options, selector string, chosen nic.Choice, port int) (*device, error) {
	d := &device{options: o, selector: selector, incoming: make(chan incoming)}
	d.choice.Store(&chosen)
	byAddress, err := d.listen(port, d.control(""))
	if err != nil {
		return nil, err
	}
	d.addr = byAddress.Addr().String()
	d.listeners = append(d.listeners, byAddress)
	if !chosen.Loopback {
		byInterface, err := d.listenOnInterface(byAddress)
		if err == nil {
			d.listeners = append(d.listeners, byInterface)
		}
		d.unbound = err
	}
	d.open, d.close = context.WithCancel(context.Background())
	for _, l := range d.listeners {
		d.acceptors.Go(func() { d.acceptFrom(l) })
	}
	return d, nil
}

// chosen is the device's address, and the interface that it was last seen on.
func (d *device) chosen() nic.Choice { return *d.choice.Load() }

func (d *device) listen(port int, control controlFunc) (*net.TCPListener, error) {
	config := net.ListenConfig{Control: control, KeepAlive: -1} // the runtime has its own heartbeats
	config.SetMultipathTCP(false)                               // Go's default for listeners; but a rail is one path
	l, err := config.Listen(context.Background(), "tcp", netip.AddrPortFrom(d.chosen().Addr, uint16(port)).String())
	if err != nil {
		return nil, err
	}
	return l.(*net.TCPListener), nil
}

// listenOnInterface opens the second listener on the first one's port. They share it by
// SO_REUSEPORT, which is taken back at once lest another process joins them.
func (d *device) listenOnInterface(first *net.TCPListener) (*net.TCPListener, error) {
	raw, err := first.SyscallConn()
	if err != nil {
		return nil, err
	}
	if err := setReusePort(raw, true); err != nil {
		return nil, err
	}
	tune := d.control(d.chosen().Interface)
	second, err := d.listen(first.Addr().(*net.TCPAddr).Port, func(network, address string, raw syscall.RawConn) error {
		if err := setReusePort(raw, true); err != nil {
			return err
		}
		return tune(network, address, raw)
	})
	err = errors.Join(err, setReusePort(raw, false))
	if second == nil {
		return nil, err
	}
	if raw, errRaw := second.SyscallConn(); errRaw != nil {
		err = errors.Join(err, errRaw)
	} else {
		err = errors.Join(err, setReusePort(raw, false))
	}
	if err != nil {
		second.Close()
		return nil, err
	}
	return second, nil
}

// Chosen names the interface and the address, and what the system did not let the sockets have: their
// interface, and a limit of what waits in them.
func (d *device) Chosen() string {
	text := d.chosen().String()
	if d.unbound != nil {
		text += fmt.Sprintf(" (bound to the address only: %v)", d.unbound)
	}
	if err := d.unlimited.Load(); err != nil {
		text += fmt.Sprintf(" (sockets without a limit of unsent bytes: %v)", *err)
	}
	return text
}

func (d *device) Addr() string { return d.addr }

// acceptFrom passes on what one listener accepts until the device closes. A failure
// (no descriptors left) is handed to the caller of Accept, who decides when to go on.
func (d *device) acceptFrom(l *net.TCPListener) {
	for {
		c, err := l.AcceptTCP()
		select {
		case d.incoming <- incoming{c, err}:
		case <-d.open.Done():
			if c != nil {
				c.Close()
			}
			return
		}
	}
}

func (d *device) Accept() (transport.Conn, error) {
	if d.open.Err() != nil {
		return nil, d.closed("accept")
	}
	select {
	case in := <-d.incoming:
		if in.err == nil {
			return newConn(in.conn)
		}
		if d.open.Err() != nil {
			return nil, d.closed("accept")
		}
		return nil, in.err
	case <-d.open.Done():
		return nil, d.closed("accept")
	}
}

// Dial connects from the device's address and, unless the peer is on this host, through
// its interface.
func (d *device) Dial(ctx context.Context, addr string) (transport.Conn, error) {
	chosen := d.chosen()
	to, err := netip.ParseAddrPort(addr)
	if err != nil {
		return nil, fmt.Errorf("dial %q from %v: not an address and a port", addr, chosen)
	}
	if to.Addr().Unmap().Is4() != chosen.Addr.Is4() { // the net package names this end's address only
		return nil, fmt.Errorf("dial %q from %v: one address is IPv4, the other IPv6", addr, chosen)
	}
	through := ""
	if !chosen.Loopback && d.unbound == nil {
		local, err := nic.Local(to.Addr())
		if err != nil {
			return nil, fmt.Errorf("dial %q from %v: %w", addr, chosen, err)
		}
		if !local {
			through = chosen.Interface
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(d.open, cancel)()
	dialer := net.Dialer{
		LocalAddr: &net.TCPAddr{IP: chosen.Addr.AsSlice()},
		Control:   late(d.control(through)),
		KeepAlive: -1,
	}
	c, err := dialer.DialContext(ctx, "tcp", addr)
	if d.open.Err() != nil {
		if c != nil {
			c.Close()
		}
		return nil, d.closed("dial")
	}
	if err != nil {
		// The net package words the end of a context in its own way; callers ask for Go's.
		if ctx.Err() != nil && !errors.Is(err, ctx.Err()) {
			err = fmt.Errorf("%w (%w)", err, ctx.Err())
		}
		return nil, d.explain(err)
	}
	return newConn(c.(*net.TCPConn))
}

// explain returns why a dial failed: err, unless the device's address is gone. One that was refused
// got an answer. An address that is on another interface now is there for the next dial.
func (d *device) explain(err error) error {
	if errors.Is(err, syscall.ECONNREFUSED) {
		return err
	}
	chosen := d.chosen()
	if held, errHeld := nic.Holds(chosen); held || errHeld != nil || d.follow() {
		return err
	}
	return fmt.Errorf("%w: address %v is no longer on interface %s",
		transport.ErrAbsent, chosen.Addr, chosen.Interface)
}

// follow reports whether the selector finds the device's address on another interface. That one is
// the device's then.
func (d *device) follow() bool {
	now, err := nic.Select(d.selector)
	if err != nil || now.Addr != d.chosen().Addr {
		return false
	}
	d.choice.Store(&now)
	if stop := d.unwatch.Load(); stop != nil {
		(*stop)()
	}
	return true
}

// WatchLink implements transport.LinkWatcher. An interface that was made again has another number,
// to which the second listener is bound anew; where that fails the first one has all connections.
func (d *device) WatchLink(ctx context.Context, report func(up bool)) error {
	known := 0
	for {
		watching, stop := context.WithCancel(ctx)
		d.unwatch.Store(&stop)
		name := d.chosen().Interface
		err := nic.Watch(watching, name, func(up bool, index int) {
			if index != 0 && known != 0 && index != known && len(d.listeners) > 1 {
				if raw, err := d.listeners[1].SyscallConn(); err == nil {
					_ = onDescriptor(raw, func(fd int) error { return bindToDevice(fd, name) })
				}
			}
			if index != 0 {
				known = index
			}
			report(up)
		})
		followed := watching.Err() != nil && ctx.Err() == nil
		stop()
		if !followed {
			return err
		}
	}
}

func (d *device) closed(op string) error {
	return &net.OpError{Op: op, Net: "tcp", Err: fmt.Errorf("device %v: %w", d.chosen(), net.ErrClosed)}
}

func (d *device) Close() error {
	d.close()
	for _, l := range d.listeners {
		l.Close() // the second time it only says that it was closed
	}
	d.acceptors.Wait()
	return nil
}
