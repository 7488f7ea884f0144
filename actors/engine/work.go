package engine

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Work is the handle of an operation in flight.
type Work struct {
	group     *Group
	seq       uint64
	request   *Request
	from      []source      // whom to look to for a small operation's frames
	attending atomic.Bool   // it attends to them already, till the first wait has polled
	boards    *boards       // where the others show their operands; nil: nothing of it is shown
	slot      chan struct{} // of the communicator; a place is taken until the operation is forgotten
	users     atomic.Int32  // the operation, and the caller

	ended atomic.Bool
	err   error // written before ended

	mu    sync.Mutex
	done  chan struct{} // nil until somebody wants to sleep
	heard bool          // the engine listens for it, till the end
	stop  func() bool   // ends the watch of a context
}

// NewWork makes the handle of a call that has taken a place in slot.
func (g *Group) NewWork(r *Request, slot chan struct{}) *Work {
	w := g.engine.works.Get().(*Work)
	w.group, w.request, w.slot = g, r, slot
	w.users.Store(2)
	return w
}

// Release is for a caller who was given the handle and has given it to nobody else: it isn't looked at
// again. Handle and request are pooled when the operation has done with them too.
func (w *Work) Release() {
	if w.users.Add(-1) > 0 {
		return
	}
	e := w.group.engine
	*w.request = Request{}
	requests.Put(w.request)
	w.group, w.seq, w.request, w.slot, w.err, w.done, w.heard, w.stop = nil, 0, nil, nil, nil, nil, false, nil
	w.boards = nil
	clear(w.from)
	w.from = w.from[:0]
	w.attending.Store(false)
	w.ended.Store(false)
	e.works.Put(w)
}

// Done is closed when the operation has ended, right or with an error.
func (w *Work) Done() <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.done == nil {
		w.done = make(chan struct{})
		if w.ended.Load() {
			close(w.done)
		}
	}
	return w.done
}

func (w *Work) over() bool { return w.ended.Load() }

func (w *Work) pace() *pace { return w.group.paces.of(w.request.bytes) }

// Err is the operation's error once Done is closed, nil before.
func (w *Work) Err() error {
	if w.over() {
		return w.err
	}
	return nil
}

// Seq is the operation's number in its communicator.
func (w *Work) Seq() uint64 { return w.seq }

// Wait waits for the end. A context that ends first ends the operation: the communicator breaks,
// and Wait returns when the runtime has let go of the caller's memory.
func (w *Work) Wait(ctx context.Context) error {
	if w.group.polls(ctx, w.from, w.attending.Swap(false), w) {
		return w.err
	}
	w.listening(1)
	defer w.listening(-1)
	if w.boards != nil {
		w.boards.look()
	}
	done := w.Done()
	select {
	case <-done:
	case <-ctx.Done():
		w.group.giveUp(w.seq, context.Cause(ctx))
		<-done
	}
	return w.err
}

// WaitFor waits for the end for so long at most, and reports whether it has come. Unlike Wait it
// ends nothing.
func (w *Work) WaitFor(d time.Duration) bool {
	if !w.attending.Swap(false) {
		return w.group.waitFor(w.from, w, d)
	}
	began := time.Now()
	if w.group.polls(context.Background(), w.from, true, w) {
		return true
	}
	w.listen() // it is in flight now like one whose caller does something else
	return sleeps(w, d-time.Since(began))
}

// awaited is what a caller waits for.
type awaited interface {
	over() bool
	Done() <-chan struct{} // closed then
	pace() *pace
}

func (g *Group) waitFor(from []source, w awaited, d time.Duration) bool {
	if w.over() {
		return true
	}
	if d <= 0 {
		return false
	}
	began := time.Now()
	return g.polls(context.Background(), from, false, w) || sleeps(w, d-time.Since(began))
}

// sleeps waits for the end without polling, for so long at most, and reports whether it has come.
func sleeps(w awaited, d time.Duration) bool {
	if d <= 0 {
		return w.over()
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-w.Done():
		return true
	case <-timer.C:
		return false
	}
}

// Watch ends the operation when the context ends, for a caller that may not Wait.
func (w *Work) Watch(ctx context.Context) {
	if ctx.Done() == nil {
		return
	}
	group, seq := w.group, w.seq // the handle may be another operation's when the context ends
	stop := context.AfterFunc(ctx, func() { group.giveUp(seq, context.Cause(ctx)) })
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stop = stop
	if w.over() {
		stop()
	}
}

// attend is for a caller that waits at once. Ranks that call together also send together: a frame
// that comes between this rank's first one and its Wait would wake the reader.
func (w *Work) attend() {
	if len(w.from) > 0 {
		w.attending.Store(true)
		attend(w.from)
	}
}

// listen is for an operation that is in flight while its caller does something else.
func (w *Work) listen() {
	if w.attending.Load() {
		return
	}
	if w.hear() && w.boards != nil {
		w.boards.look() // for what was shown before
	}
}

// hear has the engine listen for the operation, if it is not over.
func (w *Work) hear() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.over() {
		return false
	}
	w.heard = true
	w.listening(1)
	return true
}

// listening adds to the waits that nobody polls for.
func (w *Work) listening(n int32) {
	w.group.engine.Listening(n)
	if w.boards != nil {
		w.boards.listening(n)
	}
}

// finish resolves the work, and reports whether it had not before. A batch's results are in its
// buffers before anybody sees the end, and the context is not watched any more: whoever sees the end
// may cancel it at once.
func (w *Work) finish(err error, b *Batch) (first bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.over() {
		return false
	}
	if err == nil {
		b.scatter()
	}
	if w.stop != nil {
		w.stop()
	}
	w.err = err
	w.ended.Store(true)
	if w.heard {
		w.listening(-1)
	}
	if w.done != nil {
		close(w.done)
	}
	return true
}

// WaitAll waits for all works and returns the error of each communicator's first one that failed:
// what broke it has ended the others too.
func WaitAll(ctx context.Context, works []*Work) error {
	var failed []*Work
	for _, w := range works {
		if w.Wait(ctx) == nil {
			continue
		}
		i := slices.IndexFunc(failed, func(f *Work) bool { return f.group == w.group })
		if i < 0 {
			failed = append(failed, w)
		} else if w.seq < failed[i].seq {
			failed[i] = w
		}
	}
	errs := make([]error, len(failed))
	for i, w := range failed {
		errs[i] = w.err
	}
	return errors.Join(errs...)
}
