// Package fault wraps a transport so that it is slow, far away, stalls and fails, by
// options, by a script or by hand. What is done to it is counted, so that a
// test can tell that its fault happened.
//
// It waits by timers and channels only and so works in virtual time. It owns no bytes
// but those that a delay keeps under way.
package fault

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/polyrail/polyrail/railactors/transport"
)

// Options are what a wrapped transport starts with. The zero value changes nothing.
type Options struct {
	Rate   int64         // bytes per second that pass in each direction, over all connections together; 0: no limit
	Delay  time.Duration // from a write to the arrival of its bytes, added to the transport's own
	Script Script        // runs from the first Open
	Frames bool          // what is written is a stream of frames, which Tamper may change
	// CastLoss is how likely a datagram of a transport.Caster is lost, from 0 to 1, as CastSeed has it.
	CastLoss float64
	CastSeed uint64
}

// Counters say what was in fact done, since Wrap.
type Counters struct {
	BytesSent     int64
	BytesReceived int64
	Throttled     int64 // reads and writes that waited for the rate
	DelayedBytes  int64
	Stalled       int64 // reads and writes that were held by a stall
	Lost          int64 // connections that were broken
	Refused       int64 // dials and accepts that were turned away
	Steps         int64 // of the script that were taken
	Tampered      int64 // frames that were put in
	Casts         int64 // datagrams that came
	CastsLost     int64 // of these, and of those that were sent
}

// Transport is one rail with faults: wrap once per rail. All devices opened from it
// share its rate, its faults and its counters. It is also the handle by which they are
// changed, from any goroutine.
type Transport struct {
	inner  transport.Transport
	frames bool

	mu       sync.Mutex
	rate     int64
	delay    time.Duration
	cut      bool
	stalled  bool
	since    time.Time // the stall's begin
	unstall  *time.Timer
	changed  chan struct{} // closed, and made anew, by whatever lets a waiting read or write go on
	out, in  limiter
	conns    map[*conn]struct{}
	lines    []*line // that may still be at work though their connection was closed
	devices  int
	script   player
	counters Counters

	tampering Tampering // that is to be done; 0: none
	lastFrame []byte    // of any connection

	castLoss float64
	castRand *rand.Rand
}

// Wrap makes a transport with faults out of one without.
func Wrap(inner transport.Transport, o Options) *Transport {
	return &Transport{
		inner:   inner,
		frames:  o.Frames,
		rate:    o.Rate,
		delay:   o.Delay,
		changed: make(chan struct{}),
		conns:   make(map[*conn]struct{}),
		script:  newPlayer(o.Script),

		castLoss: o.CastLoss,
		castRand: rand.New(rand.NewPCG(o.CastSeed, 0)),
	}
}

// Protocol is that of the wrapped transport.
func (t *Transport) Protocol() string { return t.inner.Protocol() }

// Open opens a device of the wrapped transport. The first one starts the script, the
// Close of the last one ends it.
func (t *Transport) Open(name string) (transport.Device, error) {
	d, err := t.inner.Open(name)
	if err != nil {
		return nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.devices++
	t.script.start(t.apply)
	return &device{Device: d, t: t}, nil
}

// SetRate changes the limit in bytes per second in each direction; 0 lifts it.
func (t *Transport) SetRate(bytesPerSecond int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.rate = bytesPerSecond
	t.out.forget()
	t.in.forget()
	t.wake()
}

// SetDelay changes the delay of what is written from now on.
func (t *Transport) SetDelay(d time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.delay = d
}

// Stall holds back every read and write for d, or until Heal if d is 0. Connections live.
func (t *Transport) Stall(d time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.endStall()
	t.stalled, t.since = true, time.Now()
	if d <= 0 {
		return
	}
	var timer *time.Timer
	timer = time.AfterFunc(d, func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if t.unstall == timer { // or another stall, or Heal, came first
			t.endStall()
		}
	})
	t.unstall = timer
}

// Drop breaks the connections there are. New ones can be made.
func (t *Transport) Drop() {
	t.mu.Lock()
	conns := t.conns
	t.conns = make(map[*conn]struct{})
	t.counters.Lost += int64(len(conns))
	t.mu.Unlock()
	for c := range conns {
		c.end(syscall.ECONNRESET)
	}
}

// Cut breaks the connections there are and refuses new ones until Heal.
func (t *Transport) Cut() {
	t.mu.Lock()
	t.cut = true
	t.mu.Unlock()
	t.Drop()
}

// Heal ends a Cut or a Stall. Rate and delay stay.
func (t *Transport) Heal() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.cut = false
	t.endStall()
}

// Counters returns what was done so far.
func (t *Transport) Counters() Counters {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.counters
}

func (t *Transport) endStall() {
	if t.unstall != nil {
		t.unstall.Stop()
		t.unstall = nil
	}
	t.stalled = false
	t.wake()
}

func (t *Transport) wake() {
	close(t.changed)
	t.changed = make(chan struct{})
}

// adopt takes a new connection, or refuses it while the rail is cut.
func (t *Transport) adopt(inner transport.Conn) (*conn, bool) {
	c := newConn(t, inner)
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.cut {
		t.counters.Refused++
		return nil, false
	}
	c.before = t.lastFrame
	t.conns[c] = struct{}{}
	return c, true
}

func (t *Transport) release(c *conn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.conns, c)
}

// device decorates a device.
type device struct {
	transport.Device
	t      *Transport
	closed sync.Once
}

func (d *device) Accept() (transport.Conn, error) {
	for {
		inner, err := d.Device.Accept()
		if err != nil {
			return nil, err
		}
		if c, ok := d.t.adopt(inner); ok {
			return c, nil
		}
		inner.Close()
	}
}

func (d *device) Dial(ctx context.Context, addr string) (transport.Conn, error) {
	if d.t.refuses() {
		return nil, d.refusal(addr)
	}
	inner, err := d.Device.Dial(ctx, addr)
	if err != nil {
		return nil, err
	}
	c, ok := d.t.adopt(inner)
	if !ok { // cut while dialing
		inner.Close()
		return nil, d.refusal(addr)
	}
	return c, nil
}

func (t *Transport) refuses() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.cut {
		t.counters.Refused++
	}
	return t.cut
}

func (d *device) refusal(addr string) error {
	return &net.OpError{Op: "dial " + addr, Net: d.t.Protocol(), Err: syscall.ECONNREFUSED}
}

// WatchLink is the wrapped device's.
func (d *device) WatchLink(ctx context.Context, report func(up bool)) error {
	if w, ok := d.Device.(transport.LinkWatcher); ok {
		return w.WatchLink(ctx, report)
	}
	return errors.ErrUnsupported
}

// Close closes the device. The last one of the transport waits until the delayed bytes of
// closed connections are handed over, at most the delay and a second.
func (d *device) Close() error {
	err := d.Device.Close()
	d.closed.Do(func() {
		for _, l := range d.t.leave() {
			<-l.ended
		}
	})
	return err
}

// leave returns what the closing device has to wait for.
func (t *Transport) leave() []*line {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.devices--; t.devices > 0 {
		return nil
	}
	t.script.stop()
	lines := t.lines
	t.lines = nil
	return lines
}

// await notes that a connection was closed while its line may still be at work.
func (t *Transport) await(l *line) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.lines = slices.DeleteFunc(t.lines, (*line).hasEnded)
	t.lines = append(t.lines, l)
}
