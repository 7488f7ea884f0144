package bridge

import (
	"context"
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// flight is an operation or a transfer in the runtime.
type flight interface {
	Done() <-chan struct{}
	WaitFor(time.Duration) bool
}

// work is a call in flight that C has a handle of.
type work struct {
	handle Handle
	cancel context.CancelCauseFunc
	queue  *Queue // nil: nobody is told
	tag    uint64

	inside atomic.Pointer[inside] // what to poll, once there is something

	once   sync.Once
	done   chan struct{}
	result Result
	err    error

	tellable atomic.Int32 // 1: it has ended, or C has the handle; 2: both
}

// inside is the part of a call that the runtime has in flight.
type inside struct {
	flight
	end func() (Result, error) // called after the flight's end
}

// newWork registers a call, which cancel ends.
func (b *Bridge) newWork(call Call, cancel context.CancelCauseFunc) (*work, error) {
	q, err := b.queueOf(call)
	if err != nil {
		return nil, err
	}
	w := &work{cancel: cancel, queue: q, tag: call.Tag, done: make(chan struct{})}
	w.handle, err = b.put(w)
	return w, err
}

// queueOf is the queue that a call names, or nil.
func (b *Bridge) queueOf(call Call) (*Queue, error) {
	if call.Queue == 0 {
		return nil, nil
	}
	return lookup[*Queue](b, call.Queue)
}

// settle notes the outcome, once.
func (w *work) settle(end func() (Result, error)) {
	w.once.Do(func() {
		w.result, w.err = end()
		close(w.done)
		w.tell()
	})
}

// tell is called at the end, and where C gets the handle. The queue is told when both have been.
func (w *work) tell() {
	if w.tellable.Add(1) == 2 && w.queue != nil {
		w.queue.push(Completion{Work: w.handle, Tag: w.tag, Err: w.err})
	}
}

// fly watches a flight until its end.
func (w *work) fly(f *inside) {
	w.inside.Store(f)
	<-f.Done()
	w.settle(f.end)
}

// waitFor waits for the end for so long, d < 0: without limit, and reports whether it has come.
func (w *work) waitFor(d time.Duration) bool {
	if d < 0 {
		d = math.MaxInt64
	}
	if f := w.inside.Load(); f != nil {
		if !f.WaitFor(d) {
			return false
		}
		w.settle(f.end)
		return true
	}
	select {
	case <-w.done:
		return true
	default:
	}
	if d == 0 {
		return false
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-w.done:
		return true
	case <-timer.C:
		return false
	}
}

// line orders the collective calls of a communicator: each begins after those that returned before
// it was made, also where one of them had to wait for room. A call that begins before it returns
// needs no place: it only waits for those that have one.
type line struct {
	mu   sync.Mutex
	last chan struct{} // closed when the last call with a place has passed it on; nil: none has one
}

// turn is one call's place in a line.
type turn struct {
	before <-chan struct{} // nil: none is ahead
	passed chan struct{}
}

// join takes the next place.
func (l *line) join() *turn {
	l.mu.Lock()
	defer l.mu.Unlock()
	t := &turn{before: l.last, passed: make(chan struct{})}
	l.last = t.passed
	return t
}

// ahead is what a call without a place waits for; nil: nothing.
func (l *line) ahead() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-l.last:
		l.last = nil
	default:
	}
	return l.last
}

// wait waits for those that are ahead.
func (t *turn) wait() { await(t.before) }

// pass gives the turn to the next call.
func (t *turn) pass() { close(t.passed) }

// await waits for a place that is ahead.
func await(ahead <-chan struct{}) {
	if ahead != nil {
		<-ahead
	}
}
