package actors

import (
	"context"
	"sync"
)

// Work is the handle of an operation in flight.
type Work struct {
	group *group
	seq   uint64
	done  chan struct{}
	err   error
	slot  chan struct{} // the communicator's limit of operations in flight: a place is taken until the operation is forgotten

	mu    sync.Mutex
	ended bool
	stop  func() bool // ends the watch of a context
}

// Done is closed when the operation has ended, right or with an error.
func (w *Work) Done() <-chan struct{} { return w.done }

// Err is the operation's error once Done is closed, nil before.
func (w *Work) Err() error {
	select {
	case <-w.done:
		return w.err
	default:
		return nil
	}
}

// Wait waits for the end. A context that ends first ends the operation: the communicator breaks,
// and Wait returns when the runtime has let go of the caller's memory.
func (w *Work) Wait(ctx context.Context) error {
	select {
	case <-w.done:
		return w.err
	default:
	}
	select {
	case <-w.done:
	case <-ctx.Done():
		w.group.node.breakGroup(w.group, context.Cause(ctx), w.seq, true)
		<-w.done
	}
	return w.err
}

// finish resolves the work, once.
func (w *Work) finish(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ended {
		return
	}
	w.ended, w.err = true, err
	if w.stop != nil {
		w.stop()
	}
	close(w.done)
}
