package bridge

import (
	"sync/atomic"
	"time"

	"github.com/polyrail/polyrail"
)

// Hand makes a collective call as Collective does, for a caller that waits outside of Go. It
// returns when the operation has been started, and calls blocks before it waits for that. told gets
// the outcome, once, and must not block.
func (b *Bridge) Hand(h Handle, op polyrail.Operation, call Call, blocks func(),
	told func(Outcome, error), opts ...polyrail.Option) {
	o := collective{Operation: op, opts: opts}
	c, err := lookup[*comm](b, h)
	if err == nil {
		_, err = b.queueOf(call)
	}
	if err != nil {
		told(Outcome{}, err)
		return
	}
	if c.inFlight.Add(1) > c.maxInFlight || c.line.ahead() != nil {
		c.inFlight.Add(-1)
		go func() { told(b.launch(h, o, call)) }() // it has to wait for others first
		return
	}
	o.opts = append(o.opts, polyrail.WithBlocks(blocks))
	w, err := o.start(c, false) // nobody polls for it
	if err != nil {
		c.inFlight.Add(-1)
		told(Outcome{}, err)
		return
	}
	var over atomic.Bool // the end and the end of patience may come together
	var patience *time.Timer
	if call.Started {
		patience = time.AfterFunc(call.Patience, func() {
			if over.CompareAndSwap(false, true) {
				told(b.adopt(call, c.cancel, c.flying(w)))
			}
		})
	}
	w.OnEnd(func() {
		if !over.CompareAndSwap(false, true) {
			return
		}
		if patience != nil {
			patience.Stop()
		}
		c.inFlight.Add(-1)
		told(ended(w))
	})
}

// TakeCalls starts each call that next returns, waits where that is nil, and returns when wait
// fails. Before a start blocks, another goroutine goes on with the others.
func TakeCalls(next func() func(blocks func()), wait func() error) {
	for {
		for start := next(); start != nil; start = next() {
			replaced := false
			start(func() {
				if !replaced {
					replaced = true
					go TakeCalls(next, wait)
				}
			})
			if replaced {
				return
			}
		}
		if wait() != nil {
			return
		}
	}
}
