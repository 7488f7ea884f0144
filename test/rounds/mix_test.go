package rounds

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/polyrail/polyrail"
)

// way is how a member ends what all are at.
type way string

const (
	closes  way = "close"  // the communicator
	leaves  way = "leave"  // closes its node
	cancels way = "cancel" // ends its operation's context
	dups    way = "dup"    // ends its operation's context while all are at Dups
	dies    way = "die"    // is killed
)

var ways = []way{closes, leaves, cancels, dups, dies}

const (
	// waitLimit is the promise: a rank timeout and a second after one has gone nobody waits for it.
	rankTimeout = 2 * time.Second
	waitLimit   = rankTimeout + time.Second
	// closeLimit is the context of those who close after an end.
	closeLimit = time.Second
	closeSlack = 500 * time.Millisecond
)

var errEnough = errors.New("has had enough")

// mixer is a member that runs operations of all kinds until one fails.
type mixer struct {
	node *polyrail.Node
	comm *polyrail.Communicator
	way  way
	// Of the one who ends it: when, and how it dies.
	victim bool
	after  time.Duration
	die    func()
}

// ending is what a member met.
type ending struct {
	Acted, At time.Time     // when it ended the others' operations, if it did; when its own failed
	Close     time.Duration // what closing took then
	Operation string        // that failed
	Error     string
}

// run returns when an operation has failed and the communicator is closed.
func (m *mixer) run(ctx context.Context) ending {
	var e ending
	mixing, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	over := make(chan struct{})
	if m.victim {
		go func() {
			defer close(over)
			<-time.After(m.after)
			e.Acted = time.Now()
			m.act(ctx, cancel)
		}()
	}
	var err error
	for k := 0; err == nil; k++ {
		e.Operation, err = m.operate(mixing, k)
		if err != nil {
			err = fmt.Errorf("operation %d, %s: %w", k, e.Operation, err)
		}
	}
	e.At, e.Error = time.Now(), err.Error()
	closing, cancelClose := context.WithTimeout(ctx, closeLimit)
	defer cancelClose()
	_ = m.comm.Close(closing) // some are gone without a farewell
	e.Close = time.Since(e.At)
	if m.victim {
		<-over
	}
	return e
}

func (m *mixer) act(ctx context.Context, cancel context.CancelCauseFunc) {
	ctx, done := context.WithTimeout(ctx, waitLimit)
	defer done()
	switch m.way {
	case closes:
		_ = m.comm.Close(ctx) // the loop closes it again, and may be first
	case leaves:
		_ = m.node.Close(ctx)
	case dies:
		m.die()
	default:
		cancel(fmt.Errorf("node %q: %w", m.node.Name(), errEnough))
	}
}

// operate is the k-th operation, the same on all members.
func (m *mixer) operate(ctx context.Context, k int) (what string, err error) {
	if m.way == dups && k%2 == 1 {
		return "dup", m.dup(ctx)
	}
	switch k % 5 {
	case 0:
		return "barrier", m.comm.Barrier(ctx)
	case 1:
		return "small", m.sum(ctx, m.comm, 1)
	case 2:
		return "medium", m.sum(ctx, m.comm, 10_000)
	case 3:
		return "together", m.together(ctx)
	default:
		return "large", m.sum(ctx, m.comm, 300_000)
	}
}

func (m *mixer) sum(ctx context.Context, c *polyrail.Communicator, n int) error {
	buf := make([]float32, n)
	for i := range buf {
		buf[i] = float32(c.Rank() + 1)
	}
	if err := polyrail.AllReduce(ctx, c, buf, polyrail.Sum); err != nil {
		return err
	}
	for _, v := range buf {
		if want := float32(c.Size()*(c.Size()+1)) / 2; v != want {
			return fmt.Errorf("wrong: %v, want %v", v, want)
		}
	}
	return nil
}

// together has several operations in flight.
func (m *mixer) together(ctx context.Context) error {
	var works [3]*polyrail.Work
	var errs []error
	for i := range works {
		var err error
		if works[i], err = polyrail.StartAllReduce(ctx, m.comm, make([]float32, 1+i*20_000),
			polyrail.Sum); err != nil {
			errs = append(errs, err)
			break
		}
	}
	for _, w := range works {
		if w != nil {
			errs = append(errs, w.Wait(ctx))
		}
	}
	return errors.Join(errs...)
}

// dup uses the second communicator once.
func (m *mixer) dup(ctx context.Context) error {
	child, err := m.comm.Dup(ctx)
	if err != nil {
		return fmt.Errorf("dup: %w", err)
	}
	err = m.sum(ctx, child, 1000)
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeLimit)
	defer cancel()
	_ = child.Close(closing) // where it failed, not all answer
	if err != nil {
		return fmt.Errorf("on the child: %w", err)
	}
	return nil
}
