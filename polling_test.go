package polyrail_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	. "github.com/polyrail/polyrail"
	"github.com/polyrail/polyrail/messages/wire"
	"github.com/polyrail/polyrail/railactors/transport"
	"github.com/polyrail/polyrail/test/testbed"
)

// attention is what is seen of a node's only connection.
type attention struct {
	hushed               atomic.Bool
	attended, unattended atomic.Int64  // data frames written while it was hushed, and while it was not
	roused               atomic.Int64  // how often its hush ended
	changed              chan struct{} // after a hush has ended; buffered
}

type watchedTransport struct {
	transport.Transport
	seen *attention
}

func (w watchedTransport) Open(device string) (transport.Device, error) {
	d, err := w.Transport.Open(device)
	return watchedDevice{d, w.seen}, err
}

type watchedDevice struct {
	transport.Device
	seen *attention
}

func (w watchedDevice) Accept() (transport.Conn, error) { return w.watch(w.Device.Accept()) }

func (w watchedDevice) Dial(ctx context.Context, addr string) (transport.Conn, error) {
	return w.watch(w.Device.Dial(ctx, addr))
}

func (w watchedDevice) watch(c transport.Conn, err error) (transport.Conn, error) {
	if err != nil {
		return nil, err
	}
	return &watchedConn{Conn: c, Poller: c.(transport.Poller), seen: w.seen}, nil
}

type watchedConn struct {
	transport.Conn
	transport.Poller
	seen *attention
}

func (w *watchedConn) Hush(on bool) {
	w.Poller.Hush(on)
	if w.seen.hushed.Swap(on) && !on {
		w.seen.roused.Add(1)
		select {
		case w.seen.changed <- struct{}{}:
		default:
		}
	}
}

func (w *watchedConn) TryWrite(bufs ...[]byte) (int64, error) {
	var h wire.Header
	if len(bufs[0]) >= wire.Size && wire.Decode(bufs[0][:wire.Size], &h) == nil && h.Kind == wire.KindData {
		if w.seen.hushed.Load() {
			w.seen.attended.Add(1)
		} else {
			w.seen.unattended.Add(1)
		}
	}
	return w.Conn.TryWrite(bufs...)
}

// watched is a cluster of two on loopback; what node 1 sends is seen.
func watched(t *testing.T, adapt ...func(*Config)) (*testbed.Cluster, []*Communicator, *attention) {
	t.Helper()
	seen := &attention{changed: make(chan struct{}, 1)}
	c, err := testbed.Start(t.Context(), testbed.Options{Nodes: 2, Rails: 1, Over: testbed.Loopback,
		Gossip: testbed.Loopback, Adapt: func(cfg *Config) {
			cfg.Probe = false
			for _, a := range adapt {
				a(cfg)
			}
		},
		Wrap: func(node, _ int, inner transport.Transport) transport.Transport {
			if node == 1 {
				return watchedTransport{inner, seen}
			}
			return inner
		}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	comms, err := c.Form(t.Context(), "train")
	if err != nil {
		t.Fatal(err)
	}
	return c, comms, seen
}

// sum has both ranks call an allreduce of one element so many times.
func sum(t *testing.T, c *testbed.Cluster, comms []*Communicator, calls int) {
	t.Helper()
	sumBy(t, c, comms, calls, run)
}

func run(t *testing.T, c *Communicator) error { return AllReduce(t.Context(), c, []int32{1}, Sum) }

// startAndWaitFor is the call of who must look at something else now and then.
func startAndWaitFor(t *testing.T, c *Communicator) error {
	w, err := StartAllReduce(t.Context(), c, []int32{1}, Sum, WithWait())
	for err == nil && !w.WaitFor(50*time.Millisecond) {
		err = t.Context().Err()
	}
	return errors.Join(err, w.Err())
}

func sumBy(t *testing.T, c *testbed.Cluster, comms []*Communicator, calls int,
	call func(*testing.T, *Communicator) error) {
	t.Helper()
	if err := c.Each(func(i int) error {
		for range calls {
			if err := call(t, comms[i]); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// Ranks that call together also send together: what a rank that waits sends first can be answered
// before it has come to wait.
func TestACallerThatWaitsAttendsToItsSourcesBeforeItSends(t *testing.T) {
	const calls = 200
	for name, call := range map[string]func(*testing.T, *Communicator) error{"Run": run, "WaitFor": startAndWaitFor} {
		t.Run(name, func(t *testing.T) { attends(t, calls, call) })
	}
}

func attends(t *testing.T, calls int64, call func(*testing.T, *Communicator) error) {
	c, comms, seen := watched(t)
	before := seen.unattended.Load() // forming ends with a barrier
	sumBy(t, c, comms, int(calls), call)
	// Rank 1 is the leaf of the tree: all it sends goes out at the launch. Now and then its reader has
	// the reading side just then.
	if n := seen.unattended.Load() - before; n > calls/2 {
		t.Errorf("%d of %d calls sent before they attended", n, calls)
	}
	if n := seen.attended.Load(); n < calls/2 {
		t.Errorf("%d of %d calls attended to what they sent", n, calls)
	}
}

// A wait that is in vain costs one budget of polling, not a second one that is half as long.
func TestABoundedWaitPollsOnce(t *testing.T) {
	const spin = 400 * time.Millisecond
	c, comms, _ := watched(t, func(cfg *Config) { cfg.WaitSpin = spin })
	sumBy(t, c, comms, 20, startAndWaitFor) // right at once: the budget is what it can be
	w, err := StartAllReduce(t.Context(), comms[0], []int32{1}, Sum, WithWait())
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if w.WaitFor(1) {
		t.Error("it ended though the other rank did nothing")
	}
	if took := time.Since(began); took < spin*9/10 || took > spin*13/10 {
		t.Errorf("polled for %v, want %v", took, spin)
	}
	if err := run(t, comms[1]); err != nil {
		t.Error(err)
	}
	if err := w.Wait(t.Context()); err != nil {
		t.Error(err)
	}
}

// However long a caller would poll, the end of its context ends its call.
func TestAContextEndsACallThatPolls(t *testing.T) {
	c, comms, _ := watched(t, func(cfg *Config) { cfg.WaitSpin = time.Hour })
	sum(t, c, comms, 1)
	for _, call := range []func(context.Context) error{
		func(ctx context.Context) error {
			_, err := Recv(ctx, comms[0], []int32{0}, 1, 0)
			return err
		},
		func(ctx context.Context) error { return AllReduce(ctx, comms[0], []int32{1}, Sum) },
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		ended := make(chan error, 1)
		go func() { ended <- call(ctx) }()
		select {
		case err := <-ended:
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Error(err)
			}
		case <-time.After(20 * time.Second):
			t.Fatal("it goes on polling")
		}
	}
}

// Between two calls the connection stays hushed, and not for longer than a moment.
func TestAConnectionStaysHushedFromCallToCall(t *testing.T) {
	const calls = 200
	c, comms, seen := watched(t)
	sum(t, c, comms, 1)
	before := seen.roused.Load()
	sum(t, c, comms, calls)
	if n := seen.roused.Load() - before; n > calls/2 {
		t.Errorf("woken %d times in %d calls", n, calls)
	}
	for seen.roused.Load() == before {
		select {
		case <-seen.changed:
		case <-t.Context().Done():
			t.Fatal("hushed for good")
		}
	}
}

// What is in flight while its caller does something else is listened for.
func TestWhatNobodyPollsForIsListenedFor(t *testing.T) {
	listens(t, func(*Work) {})
}

// The same where its caller has waited for a while, in vain.
func TestWhatWasWaitedForInVainIsListenedFor(t *testing.T) {
	listens(t, func(w *Work) {
		if w.WaitFor(0) {
			t.Error("it ended though the other rank did nothing")
		}
	}, WithWait())
}

func listens(t *testing.T, meanwhile func(*Work), opts ...Option) {
	const calls = 50
	c, comms, seen := watched(t)
	hushed := 0
	for range calls {
		sum(t, c, comms, 1)
		w, err := StartAllReduce(t.Context(), comms[1], []int32{1}, Sum, opts...)
		if err != nil {
			t.Fatal(err)
		}
		meanwhile(w)
		if seen.hushed.Load() { // or the reading side was taken just then: who has it sees to it
			hushed++
		}
		if err := AllReduce(t.Context(), comms[0], []int32{1}, Sum); err != nil {
			t.Fatal(err)
		}
		if err := w.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if hushed > calls/2 {
		t.Errorf("hushed in %d of %d calls that nobody waited for", hushed, calls)
	}
}
