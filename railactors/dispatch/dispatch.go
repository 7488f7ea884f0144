// Package dispatch holds the dispatchers of the actors: they decide on which goroutine a
// mailbox is worked off, and with that what a message costs (docs/decisions/004 quotes the
// figures; the benchmarks here measure them).
//
//   - Warm, for control actors: a kept goroutine takes the mailbox. The receiver runs
//     beside the sender.
//   - Synchronized, for the actors of the data path (operation, worker, pair, peer): the
//     message is worked off on the sender's goroutine before its Send returns.
//
// It owns the goroutines of a Warm dispatcher and nothing else.
package dispatch

import (
	"sync"
	"sync/atomic"

	"github.com/asynkron/protoactor-go/actor"
)

// throughput is how many messages of one mailbox are worked off before its goroutine
// lets others run.
const throughput = 300

// Warm runs each mailbox on a goroutine that it keeps for the next one: a fresh
// goroutine would grow its stack again for every wake-up, which costs more than
// everything else in a hop. It has all that it keeps from the start, so that a node at rest has the same
// number of goroutines whatever it did before: one more is a leak.
type Warm struct {
	hand    chan func() // unbuffered: a send succeeds only into the hands of an idle worker
	stop    chan struct{}
	once    sync.Once
	idle    atomic.Int64
	maxIdle int64
}

var _ actor.Dispatcher = (*Warm)(nil)

// NewWarm returns a dispatcher that keeps maxIdle goroutines waiting for work
// (0 keeps none: every mailbox gets a goroutine of its own). Close ends them.
func NewWarm(maxIdle int) *Warm {
	w := &Warm{hand: make(chan func()), stop: make(chan struct{}), maxIdle: int64(maxIdle)}
	for range maxIdle {
		go func() { w.work(w.next()) }()
	}
	return w
}

// Schedule runs f on an idle worker, or on a new one. It never blocks, and works after Close too.
func (w *Warm) Schedule(f func()) {
	select {
	case w.hand <- f:
	default:
		go w.work(f)
	}
}

// Throughput is how many messages of one mailbox are worked off in a row.
func (w *Warm) Throughput() int { return throughput }

// Close ends the idle workers, and every busy one after what it does. It doesn't wait for
// them, so that an actor may call it. Calling it again does nothing.
func (w *Warm) Close() { w.once.Do(func() { close(w.stop) }) }

func (w *Warm) work(f func()) {
	for f != nil {
		f()
		f = w.next()
	}
}

// next waits for work; nil ends the worker. One that goes leaves maxIdle others, none of which has
// gone, whatever the order in which they count themselves.
func (w *Warm) next() (f func()) {
	if w.idle.Add(1) <= w.maxIdle {
		select {
		case f = <-w.hand:
		case <-w.stop:
		}
	}
	w.idle.Add(-1)
	return f
}

// Synchronized returns a dispatcher that works a mailbox off on the goroutine that sends to
// it, unless another goroutine is at it already. It is for actors whose Receive never
// blocks: one that does holds up its senders. A lock that a sender holds must not be taken
// in the receiver.
func Synchronized() actor.Dispatcher { return actor.NewSynchronizedDispatcher(throughput) }
