// Package mem is a network in memory: hosts with devices, listeners and byte streams
// that behave like TCP's and can be cut, silenced and killed.
//
// It waits on condition variables and channels only and never polls, so that under
// testing/synctest a blocked stream counts as blocked and virtual time goes on. Make the
// Network inside the bubble. Slow, lossy and failing streams by script are the business
// of transport/fault, which can wrap it.
package mem

import (
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/polyrail/polyrail/railactors/transport"
)

// backlog is how many dialed connections wait for Accept; more are refused.
const backlog = 4096 // as on Linux

// Addr is an address in a Network: "mem:host/device#k", k counting what was opened.
type Addr string

// Network is always "mem".
func (a Addr) Network() string { return "mem" }

func (a Addr) String() string { return string(a) }

// Network connects hosts.
type Network struct {
	mu       sync.Mutex
	opened   int
	devices  map[Addr]*device // open ones
	killed   map[string]bool
	cut      map[link]bool
	silenced map[link]bool
	unplug   map[link]bool
	held     map[link]*atomic.Int64
	casts    map[castGroup]map[*castReceiver]struct{}
	conns    map[*conn]struct{} // dialing ends of connections that are not closed at both ends
	changed  chan struct{}      // closed, and made anew, by whatever may end the waiting of a dial
}

// link is one host's device by name: faults stay with it when it is opened again.
type link struct{ host, device string }

// NewNetwork makes a network without hosts.
func NewNetwork() *Network {
	return &Network{
		devices:  make(map[Addr]*device),
		killed:   make(map[string]bool),
		cut:      make(map[link]bool),
		silenced: make(map[link]bool),
		unplug:   make(map[link]bool),
		held:     make(map[link]*atomic.Int64),
		casts:    make(map[castGroup]map[*castReceiver]struct{}),
		conns:    make(map[*conn]struct{}),
		changed:  make(chan struct{}),
	}
}

// Transport is the network as one host sees it. Any device name can be opened on it.
func (n *Network) Transport(host string) transport.Transport { return &hostTransport{n, host} }

type hostTransport struct {
	network *Network
	host    string
}

func (t *hostTransport) Protocol() string { return "mem" }

func (t *hostTransport) Open(name string) (transport.Device, error) {
	n := t.network
	n.mu.Lock()
	defer n.mu.Unlock()
	if name == "" {
		return nil, fmt.Errorf("mem: host %q: a device needs a name", t.host)
	}
	if n.killed[t.host] {
		return nil, fmt.Errorf("mem: device %q: host %q was killed", name, t.host)
	}
	n.opened++
	d := &device{
		network: n,
		link:    link{t.host, name},
		addr:    Addr(fmt.Sprintf("mem:%s/%s#%d", t.host, name, n.opened)),
		backlog: make(chan *conn, backlog),
		closed:  make(chan struct{}),
	}
	n.devices[d.addr] = d
	return d, nil
}

// Cut pulls a device's cable in the way that both sides notice: its connections are
// reset, dials from and to it are refused until Heal.
func (n *Network) Cut(host, device string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	l := link{host, device}
	n.cut[l] = true
	n.resetWhere(func(c *conn) bool { return c.device.link == l || c.peer.device.link == l })
	n.wakeDials()
}

// Silence makes a device a black hole: what is written fills the buffers and stays there, dials
// hang, nobody is told anything, not even of a Close at the other end. What had arrived can be
// read. After Heal what waited arrives, as TCP would send it again.
func (n *Network) Silence(host, device string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.silenced[link{host, device}] = true
	n.holdConns()
}

// Unplug pulls a device's cable as hosts see it: nothing passes, as with Silence, and the host itself
// is told that the link is down (transport.LinkWatcher); the others are not.
func (n *Network) Unplug(host, device string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	l := link{host, device}
	n.silenced[l], n.unplug[l] = true, true
	n.holdConns()
	n.wakeDials()
}

// Heal ends a Cut, a Silence or an Unplug of the device.
func (n *Network) Heal(host, device string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.cut, link{host, device})
	delete(n.silenced, link{host, device})
	delete(n.unplug, link{host, device})
	n.holdConns()
	n.wakeDials()
}

// Kill ends a host as SIGKILL ends a process: all its connections are reset, all its
// devices close, dials to them are refused, and it can open no device until Revive.
func (n *Network) Kill(host string) {
	var waiting []*conn
	n.mu.Lock()
	n.killed[host] = true
	for _, d := range n.devices {
		if d.link.host == host {
			waiting = append(waiting, d.closeLocked()...)
		}
	}
	n.resetWhere(func(c *conn) bool { return c.device.link.host == host || c.peer.device.link.host == host })
	n.wakeDials()
	n.mu.Unlock()
	closeAll(waiting)
}

// Revive lets a killed host open devices again, as a restarted process would; they get
// new addresses.
func (n *Network) Revive(host string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.killed, host)
}

// Held counts the writes and dials of or to the device that met a Silence or an Unplug.
func (n *Network) Held(host, device string) int64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.holder(link{host, device}).Load()
}

func (n *Network) holder(l link) *atomic.Int64 {
	if n.held[l] == nil {
		n.held[l] = new(atomic.Int64)
	}
	return n.held[l]
}

// Connections counts the connections that are open at one end at least.
func (n *Network) Connections() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.conns)
}

func (n *Network) resetWhere(match func(*conn) bool) {
	for c := range n.conns {
		if match(c) {
			c.in.reset()
			c.out.reset()
		}
	}
}

func (n *Network) holdConns() {
	for c := range n.conns {
		held := n.silenced[c.device.link] || n.silenced[c.peer.device.link]
		c.in.hold(held)
		c.out.hold(held)
	}
}

func (n *Network) wakeDials() {
	close(n.changed)
	n.changed = make(chan struct{})
}

// forget is called by each end that closes.
func (n *Network) forget(c *conn) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !c.dialed {
		c = c.peer
	}
	if c.closed.Load() && c.peer.closed.Load() {
		delete(n.conns, c)
	}
}

// device implements transport.Device.
type device struct {
	network *Network
	link    link
	addr    Addr
	backlog chan *conn
	closed  chan struct{} // closed under network.mu
}

func (d *device) Chosen() string { return fmt.Sprintf("%s %s", d.link.device, d.addr) }
func (d *device) Addr() string   { return string(d.addr) }

func (d *device) Accept() (transport.Conn, error) {
	select {
	case <-d.closed:
		return nil, opError("accept", d.addr, nil, net.ErrClosed)
	default:
	}
	select {
	case c := <-d.backlog:
		return c, nil
	case <-d.closed:
		return nil, opError("accept", d.addr, nil, net.ErrClosed)
	}
}

func (d *device) Dial(ctx context.Context, addr string) (transport.Conn, error) {
	for {
		if err := ctx.Err(); err != nil {
			return nil, opError("dial", d.addr, Addr(addr), err)
		}
		c, changed, err := d.connect(Addr(addr))
		if err != nil {
			return nil, opError("dial", d.addr, Addr(addr), err)
		}
		if c != nil {
			return c, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
		case <-d.closed:
			return nil, opError("dial", d.addr, Addr(addr), net.ErrClosed)
		}
	}
}

// WatchLink implements transport.LinkWatcher.
func (d *device) WatchLink(ctx context.Context, report func(up bool)) error {
	for first, was := true, false; ; first = false {
		d.network.mu.Lock()
		up, changed := !d.network.unplug[d.link], d.network.changed
		d.network.mu.Unlock()
		if first || up != was {
			was = up
			report(up)
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// connect makes a connection, or says why it is refused, or (nil, changed, nil) when the
// dial has to wait for a change of the network.
func (d *device) connect(addr Addr) (*conn, <-chan struct{}, error) {
	n := d.network
	n.mu.Lock()
	defer n.mu.Unlock()
	if d.isClosed() {
		return nil, nil, net.ErrClosed
	}
	to, found := n.devices[addr]
	switch {
	case n.silenced[d.link], found && n.silenced[to.link]:
		n.holder(d.link).Add(1)
		if found {
			n.holder(to.link).Add(1)
		}
		return nil, n.changed, nil
	case !found, n.cut[d.link], n.cut[to.link]:
		return nil, nil, syscall.ECONNREFUSED
	case len(to.backlog) == cap(to.backlog):
		// As with tcp_abort_on_overflow.
		return nil, nil, syscall.ECONNREFUSED
	}
	n.opened++
	near, far := newConnPair(d, to, Addr(fmt.Sprintf("mem:%s/%s#%d", d.link.host, d.link.device, n.opened)))
	ends := [2]*atomic.Int64{n.holder(d.link), n.holder(to.link)}
	near.out.holders, far.out.holders = ends, ends
	n.conns[near] = struct{}{}
	to.backlog <- far
	return near, nil, nil
}

func (d *device) isClosed() bool {
	select {
	case <-d.closed:
		return true
	default:
		return false
	}
}

func (d *device) Close() error {
	d.network.mu.Lock()
	waiting := d.closeLocked()
	d.network.wakeDials()
	d.network.mu.Unlock()
	closeAll(waiting)
	return nil
}

// closeAll needs the network unlocked: closing takes its lock.
func closeAll(conns []*conn) {
	for _, c := range conns {
		c.Close()
	}
}

// closeLocked returns the connections that nobody accepted and nobody will.
func (d *device) closeLocked() (waiting []*conn) {
	if d.isClosed() {
		return nil
	}
	close(d.closed)
	delete(d.network.devices, d.addr)
	for {
		select {
		case c := <-d.backlog:
			c.in.reset()
			c.out.reset()
			waiting = append(waiting, c)
		default:
			return waiting
		}
	}
}

func opError(op string, local, remote net.Addr, err error) error {
	return &net.OpError{Op: op, Net: "mem", Source: local, Addr: remote, Err: err}
}
