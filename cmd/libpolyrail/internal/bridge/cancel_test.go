package bridge

import (
	"context"
	"errors"
	"regexp"
	"testing"
	"time"

	"github.com/polyrail/polyrail"
)

// A caller whose wait timed out cancels, and the call may have ended between the two: before the
// library looks, and after it.
func TestToCancelACallThatHasEndedBreaksNothing(t *testing.T) {
	p := newPair(t, "max-in-flight=1")
	for what, call := range map[string]Call{
		"only started": {Started: true},
		"waited for":   {Started: true, Patience: 1},
		"in line":      {Started: true}, // behind a barrier
	} {
		for _, cancel := range []func(*work) error{
			func(w *work) error { return p.Cancel(w.handle) },
			func(w *work) error { w.cancel(nil); return nil },
		} {
			var first Handle
			if what == "in line" {
				first = started(t)(p.Barrier(p.comms[0], Call{Started: true}))
			}
			buf := []byte{1}
			handle := started(t)(p.Collective(p.comms[0], sum(buf), call))
			w, err := lookup[*work](&p.Bridge, handle)
			if err != nil {
				t.Fatal(err)
			}
			if first != 0 {
				if _, err := p.Barrier(p.comms[1], patient); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := p.Collective(p.comms[1], sum([]byte{2}), patient); err != nil {
				t.Fatal(err)
			}
			<-w.done // and nobody has waited for its handle
			if err := cancel(w); err != nil {
				t.Error(err)
			}
			if _, ended, err := p.Wait(handle, -1); !ended || err != nil || buf[0] != 3 {
				t.Errorf("%s: ended %v, buffer %v: %v", what, ended, buf, err)
			}
			if first != 0 {
				if _, ended, err := p.Wait(first, -1); !ended || err != nil {
					t.Error(ended, err)
				}
			}
			p.both(t, func(_ int, comm Handle) (Outcome, error) { return p.Barrier(comm, patient) })
		}
	}
}

func TestToCancelADupThatHasSucceededBreaksNothing(t *testing.T) {
	p := newPair(t, "")
	works := make(chan Handle, 1)
	dup := func(ctx context.Context, c *comm) (Result, error) {
		child, err := c.Dup(ctx)
		if err == nil {
			err = p.Cancel(<-works)
			<-ctx.Done()
		}
		r, _ := p.made(child, 1, err)
		return r, err
	}
	w := started(t)(p.ordered(p.comms[0], Call{Started: true}, dup))
	works <- w
	if _, err := p.Dup(p.comms[1], patient); err != nil {
		t.Fatal(err)
	}
	if r, ended, err := p.Wait(w, -1); !ended || err != nil || r.Handle == 0 {
		t.Errorf("%+v, ended %v: %v", r, ended, err)
	}
	p.both(t, func(_ int, comm Handle) (Outcome, error) { return p.Barrier(comm, patient) })
}

// The others must not take a deadline of this rank's caller for a mistake of theirs.
func TestACallThatTookTooLongIsATimeoutOnAllRanks(t *testing.T) {
	late := regexp.MustCompile(`timed out after 1s(, (nothing has come|waiting for more) from rank 1 \(node "[^"]+"\))?$`)
	for what, call := range map[string]Call{
		"only started": {Started: true},
		"waited for":   {Started: true, Patience: 1},
		"in line":      {Started: true}, // behind a barrier
	} {
		t.Run(what, func(t *testing.T) {
			p := newPair(t, "max-in-flight=1")
			if what == "in line" {
				started(t)(p.Barrier(p.comms[0], Call{Started: true}))
			}
			w := started(t)(p.Collective(p.comms[0], sum([]byte{1}), call))
			if err := p.Expire(w, time.Second); err != nil {
				t.Fatal(err)
			}
			_, _, mine := p.Wait(w, -1)
			if what == "in line" { // this and the next may still succeed
				_, _ = p.Barrier(p.comms[1], patient)
			}
			_, _ = p.Collective(p.comms[1], sum([]byte{2}), patient)
			_, theirs := p.Barrier(p.comms[1], patient)
			for rank, err := range []error{mine, theirs} {
				if !errors.Is(err, polyrail.ErrTimeout) || Describe(err).Code != Timeout ||
					!late.MatchString(err.Error()) {
					t.Errorf("rank %d: %v", rank, err)
				}
			}
		})
	}
}

func TestToFormACommunicatorMayTakeTooLong(t *testing.T) {
	p := newPair(t, "")
	w := started(t)(p.Form(p.nodes[0], "three", 3, Call{Started: true}))
	if err := p.Expire(w, time.Second); err != nil {
		t.Fatal(err)
	}
	if _, ended, err := p.Wait(w, -1); !ended || Describe(err).Code != Timeout {
		t.Errorf("ended %v: %v", ended, err)
	}
}
