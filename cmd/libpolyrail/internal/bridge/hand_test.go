package bridge

import (
	"bytes"
	"context"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/polyrail/polyrail"
)

// told is how a call went that was handed over.
type told struct {
	Outcome
	err error
}

// hand makes a call for somebody else. What the channel has no room for fails the test.
func (p *pair) hand(t *testing.T, comm Handle, buf []byte, call Call) chan told {
	t.Helper()
	c := make(chan told, 1)
	blocks := func() { t.Error("it keeps others waiting") }
	p.Hand(comm, sum(buf), call, blocks, func(o Outcome, err error) {
		select {
		case c <- told{o, err}:
		default:
			t.Errorf("told twice: %+v, %v", o, err)
		}
	})
	return c
}

// idle fails the test if calls are still counted as in flight.
func (p *pair) idle(t *testing.T) {
	t.Helper()
	for rank, h := range p.comms {
		c, err := lookup[*comm](&p.Bridge, h)
		if err != nil {
			t.Fatal(err)
		}
		if n := c.inFlight.Load(); n != 0 {
			t.Errorf("rank %d: %d calls are in flight in the end", rank, n)
		}
	}
}

func TestAHandedCallIsToldItsEnd(t *testing.T) {
	p := newPair(t, "")
	before := p.last
	for _, call := range []Call{{}, patient} {
		var seq uint64
		for range 20 { // more than there may be in flight
			bufs := [2][]byte{bytes.Repeat([]byte{1}, 1<<20), bytes.Repeat([]byte{2}, 1<<20)}
			first := p.hand(t, p.comms[0], bufs[0], call)
			if len(first) != 0 {
				t.Fatal("it ended though the other rank had not called it")
			}
			for rank, c := range []chan told{first, p.hand(t, p.comms[1], bufs[1], call)} {
				if o := <-c; o.err != nil || o.Work != 0 || o.Seq < seq || bufs[rank][1<<19] != 3 {
					t.Fatalf("rank %d after seq %d: %+v, %v, or the sum is wrong", rank, seq, o.Outcome, o.err)
				} else if rank == 1 {
					seq = o.Seq + 1
				}
			}
		}
	}
	if p.last != before {
		t.Errorf("%d handles were given to calls that ended in time", p.last-before)
	}
	p.idle(t)
}

func TestAHandedCallThatOutlastsPatienceGetsAHandle(t *testing.T) {
	p := newPair(t, "")
	queue, err := p.OpenQueue()
	if err != nil {
		t.Fatal(err)
	}
	buf := []byte{1}
	o := <-p.hand(t, p.comms[0], buf, Call{Started: true, Patience: 1, Queue: queue, Tag: 7})
	if o.Work == 0 || o.err != nil {
		t.Fatalf("%+v", o)
	}
	if o := <-p.hand(t, p.comms[1], []byte{2}, patient); o.err != nil {
		t.Error(o.err)
	}
	if r, ended, err := p.Wait(o.Work, -1); !ended || err != nil || buf[0] != 3 || r.Seq == 0 {
		t.Errorf("%+v, ended %v, buffer %v: %v", r, ended, buf, err)
	}
	c := make([]Completion, 2)
	if n, err := p.TakeCompletions(queue, c); err != nil || n != 1 || c[0].Work != o.Work || c[0].Tag != 7 {
		t.Errorf("told of %v: %v", c[:n], err)
	}
	p.idle(t)
}

func TestPatienceAndTheEndMayComeTogether(t *testing.T) {
	p := newPair(t, "")
	var bufs [2][]byte
	for rank := range bufs {
		bufs[rank] = make([]byte, 100<<10)
	}
	for i := range 200 {
		var ends [2]chan told
		for rank, comm := range p.comms {
			ends[rank] = p.hand(t, comm, bufs[rank], Call{Started: true, Patience: time.Duration(i) * 2 * time.Microsecond})
		}
		for _, end := range ends {
			o := <-end
			if o.Work != 0 {
				_, _, o.err = p.Wait(o.Work, -1)
			}
			if o.err != nil {
				t.Fatal(o.err)
			}
		}
	}
	p.idle(t)
}

func TestAHandedCallFailsAsOthersDo(t *testing.T) {
	p := newPair(t, "")
	if o := <-p.hand(t, p.nodes[0], nil, Call{}); !errors.Is(o.err, ErrHandle) {
		t.Error("a node in place of a communicator:", o.err)
	}
	if o := <-p.hand(t, p.comms[0], nil, Call{Started: true, Queue: p.nodes[0]}); !errors.Is(o.err, ErrHandle) {
		t.Error("a node in place of a queue:", o.err)
	}
	flying := p.hand(t, p.comms[0], []byte{1}, Call{})
	if err := p.Abort(p.comms[0]); err != nil {
		t.Fatal(err)
	}
	var operation *polyrail.OperationError
	if o := <-flying; !errors.Is(o.err, context.Canceled) || !errors.As(o.err, &operation) {
		t.Error("the communicator was aborted:", o.err)
	}
	if o := <-p.hand(t, p.comms[0], []byte{1}, Call{}); !errors.Is(o.err, polyrail.ErrBroken) {
		t.Error("it is broken:", o.err)
	}
	p.idle(t)
}

// The goroutine that takes calls must not wait with one of them.
func TestAHandedCallThatWaitsForOthersReturns(t *testing.T) {
	p := newPair(t, "max-in-flight=1")
	for name, ahead := range map[string]func(Handle) (Outcome, error){
		"no room":     func(comm Handle) (Outcome, error) { return p.Collective(comm, sum([]byte{1}), Call{Started: true}) },
		"not in turn": func(comm Handle) (Outcome, error) { return p.Dup(comm, Call{Started: true}) },
	} {
		var ends [2]chan told
		var before [2]Outcome
		for rank, comm := range p.comms {
			var err error
			if before[rank], err = ahead(comm); err != nil {
				t.Fatal(err)
			}
			ends[rank] = p.hand(t, comm, []byte{1}, Call{})
			if rank == 0 && (before[rank].Work == 0 || len(ends[rank]) != 0) {
				t.Errorf("%s: it ended before the other rank had called it", name)
			}
		}
		for rank, end := range ends {
			if o := <-end; o.err != nil {
				t.Errorf("%s: %v", name, o.err)
			}
			if w := before[rank].Work; w != 0 {
				if _, _, err := p.Wait(w, -1); err != nil {
					t.Errorf("%s: %v", name, err)
				}
			}
		}
	}
	p.idle(t)
}

func TestCallsAreTakenWhileAStartBlocks(t *testing.T) {
	calls, again, goOn := make(chan func(func()), 2), make(chan struct{}), make(chan struct{})
	second := make(chan struct{})
	calls <- func(blocks func()) {
		blocks()
		blocks()
		<-goOn
	}
	calls <- func(func()) {
		close(goOn)
		close(second)
	}
	waits := make(chan struct{}, 10)
	TakeCalls(func() func(func()) {
		select {
		case c := <-calls:
			return c
		default:
			return nil
		}
	}, func() error {
		waits <- struct{}{}
		<-again
		return io.EOF
	})
	<-second
	<-waits
	if len(waits) != 0 {
		t.Error("two goroutines take calls")
	}
	close(again)
}
