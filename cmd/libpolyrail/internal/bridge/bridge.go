// Package bridge is what the C library does, in Go: it numbers what C holds, and runs calls for
// callers that cannot hold a Go value, a context or a channel.
//
// It owns the handles, the calls in flight and the queues that tell of their ends. How C calls it
// is package main's above; what a call does is package polyrail's. docs/c.md is for its users.
package bridge

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/polyrail/polyrail"
)

// Handle numbers something that C holds. 0 is none. No number is used twice, so a stale one is
// found out.
type Handle uint64

// maxHandles bounds what C can hold at once: a program that never releases its calls ends with an
// error, not without memory.
const maxHandles = 1 << 20

// Bridge holds everything that C has a handle of. The zero value is ready.
type Bridge struct {
	mu   sync.RWMutex
	all  map[Handle]any
	last Handle
}

// put gives v a handle.
func (b *Bridge) put(v any) (Handle, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.all) >= maxHandles {
		return 0, fmt.Errorf("%w: %d handles are in use; calls that were started must be waited for or forgotten",
			polyrail.ErrLimit, len(b.all))
	}
	if b.all == nil {
		b.all = make(map[Handle]any)
	}
	b.last++
	b.all[b.last] = v
	return b.last, nil
}

// drop ends a handle.
func (b *Bridge) drop(h Handle) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.all, h)
}

// Held is how many handles are in use.
func (b *Bridge) Held() int {
	b.mu.RLock()
	defer b.mu.RUnlock()
	return len(b.all)
}

// ErrHandle: a handle stands for nothing, or for something else.
var ErrHandle = fmt.Errorf("%w: no such handle", polyrail.ErrArgument)

// lookup finds what a handle stands for.
func lookup[T any](b *Bridge, h Handle) (T, error) {
	b.mu.RLock()
	v, found := b.all[h]
	b.mu.RUnlock()
	t, ok := v.(T)
	switch {
	case h == 0:
		return t, fmt.Errorf("%w: it is 0, as that of what was closed or never made", ErrHandle)
	case !found:
		return t, fmt.Errorf("%w: %d was never given, or has been released", ErrHandle, h)
	case !ok:
		return t, fmt.Errorf("%w: %d is %s, not %s", ErrHandle, h, nameOf(v), nameOf(t))
	}
	return t, nil
}

func nameOf(v any) string {
	switch v.(type) {
	case *node:
		return "a node"
	case *comm:
		return "a communicator"
	case *work:
		return "a call in flight"
	case *Queue:
		return "a queue"
	case *Events:
		return "a subscription of events"
	}
	return "nothing"
}

// Call says how a call is made. The zero value blocks until it has ended.
type Call struct {
	Started  bool          // it returns after Patience, with a handle if the call has not ended
	Patience time.Duration // at least 0
	Queue    Handle        // is told of the end, if it has returned with a handle; 0: none
	Tag      uint64        // told with it
}

// waits reports whether the caller waits for the end, for a bounded time.
func (c Call) waits() bool { return c.Started && c.Patience > 0 }

// Result is what a call leaves behind; each sets the fields that it has.
type Result struct {
	Handle      Handle // the node or communicator that was made; 0: this rank is no member
	Seq         uint64 // number of the collective in its communicator
	First, Last uint64 // Shrink: seqs of which some members have the results and others not; First > Last: none
	Source, Tag int    // of the message that was received
	Count       int    // its elements
}

// Outcome is what a call returned with. Of one that goes on Work is its handle, and the rest is
// empty.
type Outcome struct {
	Result
	Work Handle
}

// whole makes a call that needs a goroutine while it lasts, and whose context ends it.
func (b *Bridge) whole(call Call, f func(context.Context) (Result, error)) (Outcome, error) {
	if !call.Started {
		result, err := f(context.Background())
		return Outcome{Result: result}, err
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	w, err := b.newWork(call, cancel)
	if err != nil {
		cancel(nil)
		return Outcome{}, err
	}
	go func() {
		result, err := f(ctx)
		cancel(nil)
		w.settle(func() (Result, error) { return result, err })
	}()
	return b.outcome(w, call)
}

// outcome waits for a call that was started, for as long as its caller has patience, and releases it
// if it has ended. Without patience a queue tells of each end.
func (b *Bridge) outcome(w *work, call Call) (Outcome, error) {
	if (w.queue == nil || call.waits()) && w.waitFor(call.Patience) {
		b.drop(w.handle)
		return Outcome{Result: w.result}, w.err
	}
	w.tell()
	return Outcome{Work: w.handle}, nil
}

// Wait waits for a call in flight, for so long at most; d < 0: until its end. ended says whether the
// rest is its outcome; the handle is released then.
func (b *Bridge) Wait(h Handle, d time.Duration) (result Result, ended bool, err error) {
	w, err := lookup[*work](b, h)
	if err != nil {
		return Result{}, false, err
	}
	if !w.waitFor(d) {
		return Result{}, false, nil
	}
	b.drop(h)
	return w.result, true, w.err
}

// Cancel ends a call in flight. Its memory is the runtime's until it has ended: wait for it. A call
// that has ended has nothing left to cancel, and its communicator goes on.
func (b *Bridge) Cancel(h Handle) error { return b.end(h, nil) }

// Expire is Cancel for a caller who has waited for so long, and tells the other ranks so.
func (b *Bridge) Expire(h Handle, after time.Duration) error {
	return b.end(h, &polyrail.TimeoutError{What: "the timeout of its caller", After: after})
}

func (b *Bridge) end(h Handle, cause error) error {
	w, err := lookup[*work](b, h)
	if err == nil && !w.waitFor(0) {
		w.cancel(cause)
	}
	return err
}

// Forget releases a call's handle. The call goes on.
func (b *Bridge) Forget(h Handle) error {
	_, err := lookup[*work](b, h)
	if err == nil {
		b.drop(h)
	}
	return err
}
