package bridge

import (
	"fmt"
	"sync"

	"github.com/polyrail/polyrail"
)

// mailbox is a list whose descriptor is readable while it is not empty.
type mailbox[T any] struct {
	mu     sync.Mutex
	fd     int
	ended  bool // there will be no other item; the descriptor stays readable
	closed bool
	items  []T
}

func newMailbox[T any]() (*mailbox[T], error) {
	fd, err := openEvent()
	if err != nil {
		return nil, fmt.Errorf("%w: a descriptor for events: %w", polyrail.ErrLimit, err)
	}
	return &mailbox[T]{fd: fd}, nil
}

// put appends an item, unless there are limit already or the mailbox is closed.
func (m *mailbox[T]) put(item T, limit int) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed || len(m.items) >= limit {
		return false
	}
	m.items = append(m.items, item)
	if len(m.items) == 1 {
		signal(m.fd)
	}
	return true
}

// take moves items into dst, oldest first, and returns how many.
func (m *mailbox[T]) take(dst []T) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := copy(dst, m.items)
	if n == 0 {
		return 0
	}
	left := copy(m.items, m.items[n:])
	clear(m.items[left:])
	m.items = m.items[:left]
	if left == 0 && !m.closed && !m.ended {
		drain(m.fd)
	}
	return n
}

// end notes that no item follows.
func (m *mailbox[T]) end() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ended = true
	if !m.closed && len(m.items) == 0 {
		signal(m.fd)
	}
}

// over reports whether all has been taken that there will be.
func (m *mailbox[T]) over() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.ended && len(m.items) == 0
}

// close ends the mailbox and its descriptor.
func (m *mailbox[T]) close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.closed {
		m.closed, m.items = true, nil
		closeEvent(m.fd)
	}
}

// Completion tells that a call has ended. Bridge.Wait has the rest of its outcome, at once.
type Completion struct {
	Work Handle
	Tag  uint64
	Err  error
}

// Queue collects the ends of calls.
type Queue struct{ *mailbox[Completion] }

// push is bounded by the handles that there can be, each of which ends once.
func (q *Queue) push(c Completion) { q.put(c, maxHandles) }

// OpenQueue makes a queue.
func (b *Bridge) OpenQueue() (Handle, error) {
	m, err := newMailbox[Completion]()
	if err != nil {
		return 0, err
	}
	h, err := b.put(&Queue{m})
	if err != nil {
		m.close()
	}
	return h, err
}

// TakeCompletions moves what has ended into dst, in the order in which it did.
func (b *Bridge) TakeCompletions(h Handle, dst []Completion) (int, error) {
	q, err := lookup[*Queue](b, h)
	if err != nil {
		return 0, err
	}
	return q.take(dst), nil
}

// Events collects what happens to a node.
type Events struct {
	*mailbox[polyrail.Event]
	cancel func()
}

// maxEvents wait for one subscriber here; as many again do in the runtime, which counts the rest.
const maxEvents = 256

// collect runs until the subscription or its node ends.
func (e *Events) collect(events <-chan polyrail.Event) {
	var missed uint64
	for v := range events {
		v.Missed += missed
		missed = 0
		if !e.put(v, maxEvents) {
			missed = v.Missed + 1
		}
	}
	e.end()
}

// TakeEvents moves what has happened into dst, oldest first. After the last event of a node that was
// closed it fails.
func (b *Bridge) TakeEvents(h Handle, dst []polyrail.Event) (int, error) {
	e, err := lookup[*Events](b, h)
	if err != nil {
		return 0, err
	}
	n := e.take(dst)
	if n == 0 && e.over() {
		return 0, fmt.Errorf("%w: there are no more events", polyrail.ErrClosed)
	}
	return n, nil
}

// QueueDescriptor is readable while a queue holds something.
func (b *Bridge) QueueDescriptor(h Handle) (int, error) {
	q, err := lookup[*Queue](b, h)
	if err != nil {
		return -1, err
	}
	return q.fd, nil
}

// EventsDescriptor is readable while a subscription holds something, or its node is closed.
func (b *Bridge) EventsDescriptor(h Handle) (int, error) {
	e, err := lookup[*Events](b, h)
	if err != nil {
		return -1, err
	}
	return e.fd, nil
}

// CloseQueue ends a queue.
func (b *Bridge) CloseQueue(h Handle) error {
	q, err := lookup[*Queue](b, h)
	if err != nil {
		return err
	}
	b.drop(h)
	q.close()
	return nil
}

// CloseEvents ends a subscription.
func (b *Bridge) CloseEvents(h Handle) error {
	e, err := lookup[*Events](b, h)
	if err != nil {
		return err
	}
	b.drop(h)
	e.cancel()
	e.close()
	return nil
}
