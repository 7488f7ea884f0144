package fault_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"reflect"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/polyrail/polyrail/railactors/transport"
	"github.com/polyrail/polyrail/railactors/transport/fault"
	"github.com/polyrail/polyrail/railactors/transport/mem"
	"github.com/polyrail/polyrail/railactors/transport/tcp"
	"github.com/polyrail/polyrail/railactors/transport/transporttest"
	"github.com/polyrail/polyrail/test/bubble"
)

func TestConformance(t *testing.T) {
	for name, o := range map[string]fault.Options{
		"WithoutFaults": {},
		"WithARate":     {Rate: 4 << 30},
		"WithADelay":    {Delay: time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			transporttest.Run(t, func(t *testing.T) (a, b transport.Device) {
				n := mem.NewNetwork()
				return open(t, fault.Wrap(n.Transport("alpha"), o)), open(t, fault.Wrap(n.Transport("beta"), o))
			})
		})
	}
}

func TestConformanceOverTCP(t *testing.T) {
	transporttest.Run(t, func(t *testing.T) (a, b transport.Device) {
		a, err := fault.Wrap(tcp.New(tcp.Options{}), fault.Options{Rate: 4 << 30}).Open("127.0.0.2")
		if err != nil {
			t.Fatal(err)
		}
		b, err = fault.Wrap(tcp.New(tcp.Options{}), fault.Options{}).Open("127.0.0.3")
		if err != nil {
			a.Close()
			t.Fatal(err)
		}
		return a, b
	})
}

func open(t *testing.T, tr transport.Transport) transport.Device {
	t.Helper()
	d, err := tr.Open("rail0")
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// bed is one faulty rail from alpha to beta, whose own end is without faults.
type bed struct {
	alpha     *fault.Transport
	a, b      transport.Device
	near, far transport.Conn
	start     time.Time
}

// inBubble runs a test on a bed in virtual time.
func inBubble(t *testing.T, o fault.Options, f func(*testing.T, *bed)) {
	t.Helper()
	bubble.Test(t, func(t *testing.T) {
		n := mem.NewNetwork()
		x := &bed{alpha: fault.Wrap(n.Transport("alpha"), o), start: time.Now()}
		x.a, x.b = open(t, x.alpha), open(t, n.Transport("beta"))
		x.near, x.far = x.connect(t)
		f(t, x)
		x.near.Close()
		x.a.Close() // while far doesn't read: a delayed connection has to end all the same
		x.far.Close()
	})
}

func (x *bed) connect(t *testing.T) (near, far transport.Conn) {
	t.Helper()
	near, err := x.a.Dial(t.Context(), x.b.Addr())
	if err != nil {
		t.Fatal(err)
	}
	if far, err = x.b.Accept(); err != nil {
		t.Fatal(err)
	}
	return near, far
}

func (x *bed) elapsed() time.Duration { return time.Since(x.start) }

// about compares a time with what the rate makes of it, less what a burst may save.
func (x *bed) about(t *testing.T, want time.Duration) {
	t.Helper()
	if got := x.elapsed(); got > want+time.Millisecond || got < want-10*time.Millisecond {
		t.Errorf("took %v, want %v less a burst of 4 ms", got, want)
	}
}

func send(t *testing.T, from, to transport.Conn, n int) {
	t.Helper()
	done := make(chan error, 1)
	data := bytes.Repeat([]byte{7, 9}, n/2)
	go func() {
		_, err := from.Write(data)
		done <- err
	}()
	got := make([]byte, n)
	if _, err := to.ReadFull(got); err != nil {
		t.Error(err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
	if !bytes.Equal(got, data) {
		t.Error("other bytes arrived")
	}
}

func TestTheRateHoldsInBothDirections(t *testing.T) {
	const rate, size = 100e6, 50e6
	inBubble(t, fault.Options{Rate: rate}, func(t *testing.T, x *bed) {
		send(t, x.near, x.far, size)
		x.about(t, 500*time.Millisecond)
		send(t, x.far, x.near, size)
		x.about(t, time.Second)
		c := x.alpha.Counters()
		if c.BytesSent != size || c.BytesReceived != size || c.Throttled == 0 {
			t.Errorf("counted %+v", c)
		}
	})
}

func TestConnectionsShareTheRateOfTheirRailFairly(t *testing.T) {
	inBubble(t, fault.Options{Rate: 100e6}, func(t *testing.T, x *bed) {
		done := make(chan time.Duration, 3)
		for range cap(done) {
			near, far := x.connect(t)
			go func() {
				send(t, near, far, 10e6)
				done <- x.elapsed()
				near.Close()
				far.Close()
			}()
		}
		first := <-done
		<-done
		<-done
		x.about(t, 300*time.Millisecond)
		if first < 280*time.Millisecond {
			t.Errorf("one of three equal transfers was done after %v, all after %v", first, x.elapsed())
		}
	})
}

func TestAChangeOfRateReachesWhoWaits(t *testing.T) {
	inBubble(t, fault.Options{Rate: 10}, func(t *testing.T, x *bed) { // 1 MB would take a day
		time.AfterFunc(time.Second, func() { x.alpha.SetRate(10e6) })
		time.AfterFunc(1050*time.Millisecond, func() { x.alpha.SetRate(0) })
		send(t, x.near, x.far, 1e6)
		if got := x.elapsed(); got != 1050*time.Millisecond {
			t.Errorf("took %v", got)
		}
	})
}

func TestATryWriteTakesWhatTheRateAllows(t *testing.T) {
	inBubble(t, fault.Options{Rate: 1e6}, func(t *testing.T, x *bed) {
		sent, data := int64(0), make([]byte, 100e3)
		for {
			n, err := x.near.TryWrite(data[sent:])
			if err != nil {
				t.Fatal(err)
			}
			if n == 0 {
				break
			}
			sent += n
		}
		if sent < 4000 || sent > 6000 || x.elapsed() != 0 {
			t.Errorf("%d bytes went within %v; a burst of 4 ms is 4000", sent, x.elapsed())
		}
	})
}

func TestADelayShiftsBytesAndKeepsTheirOrder(t *testing.T) {
	inBubble(t, fault.Options{Delay: 30 * time.Millisecond}, func(t *testing.T, x *bed) {
		send(t, x.near, x.far, 1000)
		if got := x.elapsed(); got != 30*time.Millisecond {
			t.Errorf("arrived after %v", got)
		}
		if _, err := x.near.Write([]byte("late")); err != nil {
			t.Fatal(err)
		}
		x.alpha.SetDelay(0)
		if _, err := x.near.Write([]byte("later")); err != nil {
			t.Fatal(err)
		}
		x.near.Close()
		got := make([]byte, 9)
		if _, err := x.far.ReadFull(got); err != nil || string(got) != "latelater" {
			t.Errorf("%q, %v", got, err)
		}
		if _, err := x.far.ReadFull(got); err != io.EOF {
			t.Errorf("at the end: %v", err)
		}
		if got := x.elapsed(); got != 60*time.Millisecond {
			t.Errorf("all arrived after %v", got)
		}
		if c := x.alpha.Counters(); c.DelayedBytes != 1009 {
			t.Errorf("%d bytes delayed", c.DelayedBytes)
		}
	})
}

func TestADelayedConnectionThatNobodyReadsStillCloses(t *testing.T) {
	inBubble(t, fault.Options{Delay: time.Millisecond}, func(t *testing.T, x *bed) {
		x.near.SetWriteDeadline(time.Now().Add(time.Second))
		if n, err := x.near.Write(make([]byte, 64<<20)); !errors.Is(err, os.ErrDeadlineExceeded) || n > 5<<20 {
			t.Errorf("%d bytes, %v", n, err)
		}
		start := x.elapsed()
		x.near.Close()
		if x.elapsed() != start {
			t.Error("Close waited")
		}
		x.a.Close() // waits for what is under way; the bubble would not end otherwise
		if took := x.elapsed() - start; took > 2*time.Second {
			t.Errorf("the device closed after %v", took)
		}
	})
}

func TestAStallHoldsBothDirectionsForItsTime(t *testing.T) {
	inBubble(t, fault.Options{}, func(t *testing.T, x *bed) {
		go x.far.Write([]byte("from afar"))
		time.AfterFunc(10*time.Millisecond, func() { x.far.Write([]byte("!")) })
		x.alpha.Stall(time.Second)
		if n, err := x.near.TryWrite([]byte("x")); n != 0 || err != nil {
			t.Errorf("went through the stall: %d, %v", n, err)
		}
		if _, err := x.near.ReadFull(make([]byte, 10)); err != nil || x.elapsed() != time.Second {
			t.Errorf("read after %v: %v", x.elapsed(), err)
		}
		x.alpha.Stall(0)
		time.AfterFunc(time.Hour, x.alpha.Heal)
		send(t, x.near, x.far, 10)
		if got := x.elapsed(); got != time.Second+time.Hour {
			t.Errorf("the endless stall ended at %v", got)
		}
		if c := x.alpha.Counters(); c.Stalled < 3 {
			t.Errorf("counted %+v", c)
		}
	})
}

func TestAStallHoldsAReadThatWasWaitingAlready(t *testing.T) {
	inBubble(t, fault.Options{}, func(t *testing.T, x *bed) {
		done := make(chan time.Duration)
		go func() {
			x.near.ReadFull(make([]byte, 2))
			done <- x.elapsed()
		}()
		synctest.Wait()
		x.alpha.Stall(time.Second)
		x.far.Write([]byte("hi"))
		if at := <-done; at != time.Second {
			t.Errorf("the read was done after %v", at)
		}
	})
}

func TestADeadlineEndsWaitingForRateAndStall(t *testing.T) {
	inBubble(t, fault.Options{Rate: 10}, func(t *testing.T, x *bed) {
		x.near.SetWriteDeadline(time.Now().Add(time.Second))
		if n, err := x.near.Write(make([]byte, 5000)); n > 1024 || !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%d bytes, %v", n, err)
		}
		x.alpha.Stall(0)
		x.near.SetReadDeadline(time.Now().Add(time.Second))
		if _, err := x.near.ReadFull(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Error(err)
		}
		if got := x.elapsed(); got != 2*time.Second {
			t.Errorf("took %v", got)
		}
		time.AfterFunc(time.Second, func() { x.near.Close() })
		x.near.SetReadDeadline(time.Time{})
		if _, err := x.near.ReadFull(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
			t.Errorf("closed in a stall: %v", err)
		}
	})
}

func TestACutBreaksConnectionsAndRefusesUntilHealed(t *testing.T) {
	inBubble(t, fault.Options{}, func(t *testing.T, x *bed) {
		broken := make(chan error)
		go func() {
			_, err := x.near.ReadFull(make([]byte, 1))
			broken <- err
		}()
		synctest.Wait()
		x.alpha.Cut()
		if err := <-broken; !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("the reader got %v", err)
		}
		if _, err := x.near.Write([]byte{1}); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("the writer got %v", err)
		}
		if _, err := x.far.ReadFull(make([]byte, 1)); err == nil {
			t.Error("the other end didn't notice")
		}
		if _, err := x.a.Dial(t.Context(), x.b.Addr()); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("dial: %v", err)
		}
		c, err := x.b.Dial(t.Context(), x.a.Addr())
		if err != nil {
			t.Fatal(err)
		}
		go x.a.Accept() // drops the one that comes while the rail is cut; ends with the device
		if _, err := c.ReadFull(make([]byte, 1)); err == nil {
			t.Error("a connection was accepted while the rail is cut")
		}
		c.Close()
		if got := x.alpha.Counters(); got.Lost != 1 || got.Refused != 2 {
			t.Errorf("counted %+v", got)
		}
		x.alpha.Heal()
		x.near.Close()
		x.far.Close()
		x.near, x.far = x.connect(t)
		send(t, x.near, x.far, 100)
	})
}

func TestAScriptCutsAtTheByteAndActsOnTime(t *testing.T) {
	script := fault.Script{
		{AfterBytes: 1000, Do: fault.Drop},
		{After: 5 * time.Second, Do: fault.Cut},
		{After: 6 * time.Second, Do: fault.Heal},
		{After: 7 * time.Second, Do: fault.SetRate, Rate: 1e6},
	}
	inBubble(t, fault.Options{Script: script}, func(t *testing.T, x *bed) {
		n, err := x.near.Write(make([]byte, 600), make([]byte, 600))
		if n != 1000 || !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("lost after %d bytes, %v", n, err)
		}
		dial := func(at time.Duration) error {
			<-time.After(at - x.elapsed())
			c, err := x.a.Dial(context.Background(), x.b.Addr())
			if err == nil {
				c.Close()
				c, _ = x.b.Accept()
				c.Close()
			}
			return err
		}
		if err := dial(4 * time.Second); err != nil {
			t.Error(err)
		}
		if err := dial(5500 * time.Millisecond); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Error(err)
		}
		if err := dial(6500 * time.Millisecond); err != nil {
			t.Error(err)
		}
		<-time.After(8*time.Second - x.elapsed())
		x.far.Close()
		x.near, x.far = x.connect(t)
		send(t, x.near, x.far, 2e6)
		x.about(t, 10*time.Second)
		if c := x.alpha.Counters(); c.Steps != 4 || c.Lost != 1 || c.Refused != 1 {
			t.Errorf("counted %+v", c)
		}
	})
}

func TestARandomScriptIsTheSameForTheSameSeedAndHealsInTime(t *testing.T) {
	for seed := range uint64(100) {
		s := fault.Random(seed, 7, time.Minute)
		if !reflect.DeepEqual(s, fault.Random(seed, 7, time.Minute)) {
			t.Fatalf("seed %d gives two scripts", seed)
		}
		broken := false
		for i, step := range s {
			if step.After < 0 || step.After > time.Minute || i > 0 && step.After < s[i-1].After {
				t.Errorf("seed %d: step %d is at %v", seed, i, step.After)
			}
			switch step.Do {
			case fault.Cut, fault.Stall:
				broken = true
			case fault.Heal:
				broken = false
			}
		}
		if broken {
			t.Errorf("seed %d leaves the rail broken", seed)
		}
	}
	if reflect.DeepEqual(fault.Random(1, 7, time.Minute), fault.Random(2, 7, time.Minute)) {
		t.Error("two seeds, one script")
	}
}
