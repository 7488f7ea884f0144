package cluster

import (
	"context"
	"fmt"
	"sync"

	"github.com/polyrail/polyrail/collective/fault"
)

const (
	maxOutbox  = 256 // messages that wait for one destination
	maxSenders = 512 // streams being written at once …
	maxDoubted = 16  // … and to destinations that were not reached the last time
)

// outbox sends messages off the caller's goroutine, one after the other to each destination. A
// destination that hangs holds up its own queue only.
type outbox struct {
	send  func(to Member, message []byte) error
	lost  func(to Member, messages int, err error)
	slots chan struct{}
	slow  chan struct{} // slots for those in doubt: whoever hangs holds up nobody else

	mu     sync.Mutex
	queues map[string][][]byte // by process; present while its sender runs
	doubt  map[string]bool     // processes that were not reached the last time; at most maxLevels
	closed bool
	idle   []chan struct{} // closed when the last sender ends
	done   sync.WaitGroup
}

func newOutbox(send func(Member, []byte) error, lost func(Member, int, error)) *outbox {
	return &outbox{send: send, lost: lost, slots: make(chan struct{}, maxSenders),
		slow: make(chan struct{}, maxDoubted), queues: map[string][][]byte{}, doubt: map[string]bool{}}
}

// put queues a message. The error is fault.ErrClosed or matches fault.ErrLimit.
func (o *outbox) put(to Member, message []byte) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	queue, running := o.queues[to.process()]
	switch {
	case o.closed:
		return fault.ErrClosed
	case len(queue) >= maxOutbox:
		return fmt.Errorf("%w: %d messages wait for node %q", fault.ErrLimit, len(queue), to.Node)
	}
	o.queues[to.process()] = append(queue, message)
	if !running {
		o.done.Add(1)
		go o.drain(to)
	}
	return nil
}

// drain sends what is queued for one destination, and ends when nothing is.
func (o *outbox) drain(to Member) {
	defer o.done.Done()
	for {
		message, ok := o.next(to)
		if !ok {
			return
		}
		slots := o.lane(to)
		slots <- struct{}{}
		err := o.send(to, message)
		<-slots
		o.reached(to, err == nil)
		if err != nil {
			// The rest would wait just as long for the same end. Senders above repeat what matters.
			o.lost(to, 1+o.discard(to), err)
		}
	}
}

// lane is where a message to a process waits for its turn.
func (o *outbox) lane(to Member) chan struct{} {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.doubt[to.process()] {
		return o.slow
	}
	return o.slots
}

func (o *outbox) reached(to Member, ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if ok {
		delete(o.doubt, to.process())
		return
	}
	if len(o.doubt) >= maxLevels { // most are gone: a send can fail after forget
		clear(o.doubt)
	}
	o.doubt[to.process()] = true
}

// forget drops what is known of a process that is gone.
func (o *outbox) forget(m Member) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.doubt, m.process())
}

func (o *outbox) next(to Member) ([]byte, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	queue := o.queues[to.process()]
	if len(queue) > 0 {
		o.queues[to.process()] = queue[1:]
		return queue[0], true
	}
	delete(o.queues, to.process())
	if len(o.queues) == 0 {
		for _, c := range o.idle {
			close(c)
		}
		o.idle = nil
	}
	return nil, false
}

func (o *outbox) discard(to Member) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	n := len(o.queues[to.process()])
	o.queues[to.process()] = nil
	return n
}

// flush waits until everything queued so far has been sent or given up.
func (o *outbox) flush(ctx context.Context) error {
	o.mu.Lock()
	if len(o.queues) == 0 {
		o.mu.Unlock()
		return nil
	}
	c := make(chan struct{})
	o.idle = append(o.idle, c)
	o.mu.Unlock()
	select {
	case <-c:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// close refuses further messages, drops those that wait and returns when the senders have ended.
func (o *outbox) close() {
	o.mu.Lock()
	o.closed = true
	for process := range o.queues {
		o.queues[process] = nil
	}
	o.mu.Unlock()
	o.done.Wait()
}
