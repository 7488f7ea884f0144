package polyrail_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	. "github.com/polyrail/polyrail"
	"github.com/polyrail/polyrail/test/bubble"
	"github.com/polyrail/polyrail/test/testbed"
)

// wait asks for a communicator of three for so long, and returns the error.
func wait(b *bed, d time.Duration) (err error) {
	b.each(func(i int) error {
		ctx, cancel := context.WithTimeout(b.t.Context(), d+time.Duration(i)*time.Second)
		defer cancel()
		if i == 2 { // is there, and doesn't ask
			return nil
		}
		_, e := b.Nodes[i].Communicator(ctx, "train", 3)
		if i == 0 {
			err = e
		}
		if e == nil {
			return errors.New("formed")
		}
		return nil
	})
	return err
}

func TestWhoIsWaitedForIsLoggedAndInTheError(t *testing.T) {
	inBed(t, 3, 1, nil, func(b *bed) {
		err := wait(b, time.Minute)
		for _, want := range []string{"2 of 3 nodes have asked (node0, node1)", "not asking: node2"} {
			if !strings.Contains(err.Error(), want) {
				b.t.Errorf("%q is not in %v", want, err)
			}
			if n := b.reminders(want); n < 2*3 || n > 2*5 {
				b.t.Errorf("%q was logged %d times in a minute, by two nodes", want, n)
			}
		}
	})
}

// reminders counts the warnings that have a text.
func (b *bed) reminders(text string) (n int) {
	for line := range strings.Lines(b.log.String()) {
		if strings.Contains(line, "WARN") && strings.Contains(line, text) {
			n++
		}
	}
	return n
}

func TestANodeThatReachesNobodySaysWhichAddressDoesNotAnswer(t *testing.T) {
	bubble.Nodes(t, func(t *testing.T) {
		b := start(t, testbed.Options{Nodes: 1, Rails: 1, Adapt: func(c *Config) {
			c.Join = []string{"10.0.0.99:7946"}
		}})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err := b.Nodes[0].Communicator(ctx, "train", 2)
		for _, want := range []string{"1 of 2 nodes have asked (node0)", "no other node is known",
			"10.0.0.99:7946"} {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%q is not in %v", want, err)
			}
			if n := b.reminders(want); n < 3 || n > 10 {
				t.Errorf("%q was logged %d times in a minute:\n%s", want, n, b.log)
			}
		}
		b.close()
	})
}

func TestWaitForEndsNothingAndAbortEndsAll(t *testing.T) {
	inBed(t, 2, 1, nil, func(b *bed) {
		comms := b.form("train")
		w, err := StartAllReduce(b.t.Context(), comms[0], make([]float32, 10), Sum)
		if err != nil {
			b.t.Fatal(err)
		}
		r, err := StartRecv(b.t.Context(), comms[0], make([]float32, 10), 1, 0)
		if err != nil {
			b.t.Fatal(err)
		}
		if w.WaitFor(0) || w.WaitFor(time.Second) || r.WaitFor(time.Second) {
			b.t.Error("it ended though the other rank did nothing")
		}
		if err := AllReduce(b.t.Context(), comms[1], make([]float32, 10), Sum); err != nil {
			b.t.Error(err)
		}
		if !w.WaitFor(time.Minute) || w.Err() != nil {
			b.t.Error("it did not end right:", w.Err())
		}
		cause := errors.New("enough")
		comms[1].Abort(cause)
		if err := comms[1].Err(); !errors.Is(err, cause) || !errors.Is(err, ErrBroken) {
			b.t.Error(err)
		}
		if !r.WaitFor(time.Minute) || !errors.Is(r.Err(), ErrAborted) {
			b.t.Error("the receive of the other rank:", r.Err())
		}
		comms[1].Abort(nil) // again: nothing happens
		(*Communicator)(nil).Abort(nil)
	})
}

func TestABarrierThatIsStartedEndsWhenAllHaveCalledIt(t *testing.T) {
	inBed(t, 2, 1, nil, func(b *bed) {
		comms := b.form("train")
		start := func(c *Communicator) (barrier, sum *Work) {
			barrier, err := c.StartBarrier(b.t.Context())
			if err != nil {
				b.t.Fatal(err)
			}
			sum, err = StartAllReduce(b.t.Context(), c, []float32{1}, Sum) // it goes on meanwhile
			if err != nil {
				b.t.Fatal(err)
			}
			return barrier, sum
		}
		barrier, sum := start(comms[0])
		if barrier.WaitFor(time.Second) {
			b.t.Error("it ended though the other rank had not called it")
		}
		other, _ := start(comms[1])
		for _, w := range []*Work{barrier, sum, other} {
			if !w.WaitFor(time.Minute) || w.Err() != nil {
				b.t.Errorf("seq %d: %v", w.Seq(), w.Err())
			}
		}
		ctx, cancel := context.WithCancel(b.t.Context())
		barrier, err := comms[0].StartBarrier(ctx)
		if err != nil {
			b.t.Fatal(err)
		}
		cancel()
		if err := barrier.Wait(b.t.Context()); !errors.Is(err, context.Canceled) {
			b.t.Error("its context has ended:", err)
		}
	})
}

func TestAReleasedWorkStandsForNothing(t *testing.T) {
	inBed(t, 2, 1, nil, func(b *bed) {
		comms := b.form("train")
		start := func(ctx context.Context, rank int) *Work {
			w, err := StartAllReduce(ctx, comms[rank], []float32{1}, Sum)
			if err != nil {
				b.t.Fatal(err)
			}
			return w
		}
		ctx, cancel := context.WithCancel(b.t.Context())
		released, other := start(ctx, 0), start(ctx, 1)
		if !released.WaitFor(time.Minute) || !other.WaitFor(time.Minute) {
			b.t.Fatal("it did not end")
		}
		released.Release()
		released.Release()
		if err := released.Wait(b.t.Context()); !errors.Is(err, ErrArgument) {
			b.t.Error(err)
		}
		// The next operation may have the handle. The context of the one before is not its own.
		next := start(b.t.Context(), 0)
		cancel()
		early := start(b.t.Context(), 1)
		early.Release() // before its end, which comes all the same
		if !next.WaitFor(time.Minute) || next.Err() != nil {
			b.t.Error("the next operation:", next.Err())
		}
	})
}

// heedful is a context that tells when somebody stops to wait for its end.
type heedful struct {
	context.Context
	end     chan struct{}
	stopped func()
}

func (c *heedful) Done() <-chan struct{} { return c.end }

// AfterFunc is what the package context calls in place of its own.
func (c *heedful) AfterFunc(func()) (stop func() bool) {
	return func() bool { c.stopped(); return true }
}

// A caller that polls returns at once, and cancels the context of the operation that has ended.
func TestAnOperationThatHasEndedHeedsNoContext(t *testing.T) {
	inBed(t, 2, 1, nil, func(b *bed) {
		comms := b.form("train")
		var work atomic.Pointer[Work]
		stops := 0
		ctx := &heedful{b.t.Context(), make(chan struct{}), func() {
			if stops++; work.Load().WaitFor(0) {
				b.t.Error("it can be seen to have ended, and heeds its context still")
			}
		}}
		w, err := StartAllReduce(ctx, comms[0], []float32{1}, Sum)
		if err != nil {
			b.t.Fatal(err)
		}
		work.Store(w)
		if err := AllReduce(b.t.Context(), comms[1], []float32{1}, Sum); err != nil {
			b.t.Error(err)
		}
		if err := w.Wait(b.t.Context()); err != nil || stops != 1 {
			b.t.Errorf("%v; its context was let go %d times", err, stops)
		}
	})
}
