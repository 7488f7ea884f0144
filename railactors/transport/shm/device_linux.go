package shm

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/polyrail/polyrail/railactors/transport"
)

const (
	greetingTimeout = time.Second // for what both ends say first
	maxGreetings    = 64          // that are under way
)

var errOtherUser = errors.New("the process belongs to another user")

// device is this process's end: a socket in the abstract namespace.
type device struct {
	options  Options
	addr     Addr
	listener *net.UnixListener
	open     context.Context
	close    context.CancelFunc
	incoming chan *conn
	greeting sync.WaitGroup
	spins    atomic.Bool       // somebody looks for input without sleeping
	memory   *transport.Memory // what this process shows; nil: no memory was left for it
	knocked  waiter

	showing sync.RWMutex
	shown   *segment // of memory; nil: there is none, or the device is closed

	mu    sync.Mutex
	conns map[*conn]struct{}
	bytes int // of their rings, and of those that are about to be
}

// openDevice listens under a name that nobody else has.
func openDevice(o Options) (*device, error) {
	var random [12]byte
	rand.Read(random[:]) // never fails
	name := "polyrail-" + hex.EncodeToString(random[:])
	l, err := net.ListenUnix("unix", socketOf(name))
	if err != nil {
		return nil, err
	}
	// The user's number is part of it, so that nobody dials whom it can't be connected with.
	d := &device{options: o, addr: Addr(name + ":" + strconv.Itoa(os.Geteuid())), listener: l,
		incoming: make(chan *conn), conns: make(map[*conn]struct{}), knocked: newWaiter()}
	d.show()
	d.open, d.close = context.WithCancel(context.Background())
	d.greeting.Go(d.serve)
	return d, nil
}

// show makes the memory that this process shows, unless that would be much of what it may have.
func (d *device) show() {
	if d.options.MaxBytes < 8*transport.ShownBytes {
		return
	}
	s, err := newSegment(transport.ShownBytes)
	if err != nil {
		return // what it would show goes over connections
	}
	d.shown, d.memory = s, transport.NewMemory(s.memory, s.unmap)
	d.bytes += transport.ShownBytes
}

// Shown implements transport.Shower.
func (d *device) Shown() *transport.Memory { return d.memory }

// Knocks implements transport.Shower.
func (d *device) Knocks() <-chan struct{} { return d.knocked.woken }

// socketOf is the socket of a device: a name in the abstract namespace is no file.
func socketOf(name string) *net.UnixAddr { return &net.UnixAddr{Net: "unix", Name: "@" + name} }

// Chosen implements transport.Device.
func (d *device) Chosen() string {
	name, _, _ := strings.Cut(string(d.addr), ":")
	return "memory " + name
}

// Addr implements transport.Device.
func (d *device) Addr() string { return string(d.addr) }

// serve greets whoever dials, until the device is closed.
func (d *device) serve() {
	slots := make(chan struct{}, maxGreetings)
	for {
		slots <- struct{}{}
		socket, err := d.listener.AcceptUnix()
		if err != nil {
			if d.open.Err() != nil {
				return
			}
			select { // no descriptors are left, for example
			case <-time.After(100 * time.Millisecond):
			case <-d.open.Done():
				return
			}
			<-slots
			continue
		}
		d.greeting.Go(func() {
			defer func() { <-slots }()
			c, err := d.greet(d.open, socket, "")
			if err != nil {
				return // who dialed hears of the end, and says it
			}
			select {
			case d.incoming <- c:
			case <-d.open.Done():
				c.Close()
			}
		})
	}
}

// Accept implements transport.Device.
func (d *device) Accept() (transport.Conn, error) {
	select {
	case <-d.open.Done():
		return nil, d.closed("accept")
	default:
	}
	select {
	case c := <-d.incoming:
		return c, nil
	case <-d.open.Done():
		return nil, d.closed("accept")
	}
}

// Dial implements transport.Device.
func (d *device) Dial(ctx context.Context, addr string) (transport.Conn, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(d.open, cancel)()
	name, _, ok := strings.Cut(addr, ":")
	if !ok || name == "" || len(addr) > maxName {
		return nil, fmt.Errorf("dial %q over shared memory: not an address", addr)
	}
	c, err := d.dial(ctx, name, addr)
	if d.open.Err() != nil {
		if c != nil {
			c.Close()
		}
		return nil, d.closed("dial")
	}
	if err != nil {
		if ctx.Err() != nil && !errors.Is(err, ctx.Err()) {
			err = fmt.Errorf("%w (%w)", err, ctx.Err())
		}
		return nil, fmt.Errorf("dial %s over shared memory: %w", addr, err)
	}
	return c, nil
}

func (d *device) dial(ctx context.Context, name, addr string) (*conn, error) {
	socket, err := new(net.Dialer).DialContext(ctx, "unix", socketOf(name).Name)
	if err != nil {
		return nil, err
	}
	return d.greet(ctx, socket.(*net.UnixConn), addr)
}

// greet exchanges memory with the process at the other end of the socket, which it closes if that
// fails. Addr is the one that was dialed.
func (d *device) greet(ctx context.Context, socket *net.UnixConn, addr string) (c *conn, err error) {
	defer context.AfterFunc(ctx, func() { socket.Close() })()
	ring, err := d.reserve()
	if err != nil {
		socket.Close()
		return nil, err
	}
	var mine *segment
	var theirs others
	defer func() {
		if err == nil {
			return
		}
		socket.Close()
		for _, s := range []*segment{mine, theirs.ring, theirs.shown} {
			if s != nil {
				s.release()
			}
		}
		d.giveBack(ring)
	}()
	if err = sameUser(socket); err != nil {
		return nil, err
	}
	if err = socket.SetDeadline(time.Now().Add(greetingTimeout)); err != nil {
		return nil, err
	}
	if mine, err = newSegment(controlBytes + ring); err != nil {
		return nil, err
	}
	if err = d.say(socket, mine, ring); err != nil {
		return nil, err
	}
	if theirs, err = receiveMemory(socket); err != nil {
		return nil, err
	}
	if addr != "" && theirs.name != addr {
		return nil, fmt.Errorf("%q answers", theirs.name)
	}
	mine.file.Close()
	mine.file = nil
	if err = socket.SetDeadline(time.Time{}); err != nil {
		return nil, err
	}
	b, err := newBells(socket)
	if err != nil {
		return nil, err
	}
	c = newConn(d, mine, theirs, b, d.addr)
	d.mu.Lock()
	d.conns[c] = struct{}{}
	d.mu.Unlock()
	return c, nil
}

// say sends this end's greeting.
func (d *device) say(socket *net.UnixConn, mine *segment, ring int) error {
	d.showing.RLock() // so that nobody closes the descriptor meanwhile
	defer d.showing.RUnlock()
	fds := []int{int(mine.file.Fd())}
	if d.shown != nil {
		fds = append(fds, int(d.shown.file.Fd()))
	}
	greeting := hello{ring: ring, shows: d.shown != nil, name: string(d.addr)}.encode()
	_, _, err := socket.WriteMsgUnix(greeting, unix.UnixRights(fds...), nil)
	return err
}

// others is what the process at the other end has sent.
type others struct {
	name        string // of its device
	ring, shown *segment
}

// receiveMemory reads the other end's greeting, and maps its memory.
func receiveMemory(socket *net.UnixConn) (o others, err error) {
	b, oob := make([]byte, helloBytes), make([]byte, unix.CmsgSpace(2*4))
	n, oobn, flags, _, err := socket.ReadMsgUnix(b, oob)
	if err != nil {
		return o, err
	}
	fds, err := descriptors(oob[:oobn])
	defer func() {
		for _, fd := range fds {
			syscall.Close(fd)
		}
	}()
	switch {
	case err != nil:
		return o, err
	case n == 0:
		return o, io.EOF
	}
	h, err := decodeHello(b[:n])
	if err != nil {
		return o, fmt.Errorf("greeting: %w", err)
	}
	want := 1
	if h.shows {
		want++
	}
	if len(fds) != want || flags&unix.MSG_CTRUNC != 0 {
		return o, fmt.Errorf("greeting with %d descriptors, want %d", len(fds), want)
	}
	o.name = h.name
	if o.ring, err = adopt(fds[0], controlBytes+h.ring); err == nil && h.shows {
		o.shown, err = adopt(fds[1], transport.ShownBytes)
	}
	return o, err
}

// descriptors are those that came with a message.
func descriptors(oob []byte) (fds []int, err error) {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil, err
	}
	for i := range messages {
		if got, err := unix.ParseUnixRights(&messages[i]); err == nil {
			fds = append(fds, got...)
		}
	}
	return fds, nil
}

// sameUser turns processes of other users down: whoever reaches the socket is on this host.
func sameUser(socket *net.UnixConn) error {
	raw, err := socket.SyscallConn()
	if err != nil {
		return err
	}
	var user *unix.Ucred
	var failed error
	if err := raw.Control(func(fd uintptr) {
		user, failed = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); err != nil || failed != nil {
		return errors.Join(err, failed)
	}
	if int(user.Uid) != os.Geteuid() {
		return errOtherUser
	}
	return nil
}

// reserve takes memory for a ring: less where little is left.
func (d *device) reserve() (ring int, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	left := d.options.MaxBytes - d.bytes
	for ring = d.options.RingBytes; ring > MinRing && ring > left/8; ring /= 2 {
	}
	if ring > left {
		return 0, fmt.Errorf("%d of %d bytes of shared memory are taken", d.bytes, d.options.MaxBytes)
	}
	d.bytes += ring
	return ring, nil
}

func (d *device) giveBack(ring int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.bytes -= ring
}

// forget drops a connection whose memory nobody uses any more. False if that was done before.
func (d *device) forget(c *conn) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, there := d.conns[c]; !there {
		return false
	}
	delete(d.conns, c)
	d.bytes -= len(c.sink.data)
	return true
}

func (d *device) closed(op string) error {
	return &net.OpError{Op: op, Net: Protocol, Err: fmt.Errorf("device %s: %w", d.Chosen(), net.ErrClosed)}
}

// Close implements transport.Device.
func (d *device) Close() error {
	d.close()
	d.listener.Close() // the second time it only says that it was closed
	d.greeting.Wait()
	d.hide()
	return nil
}

// hide lets go of what this process shows. Who still shows something holds it, and the others have it
// mapped.
func (d *device) hide() {
	d.showing.Lock()
	s := d.shown
	d.shown = nil
	d.showing.Unlock()
	if s == nil {
		return
	}
	s.file.Close()
	d.memory.Release()
	d.giveBack(transport.ShownBytes)
}
