// Package disk calls file systems that may not answer, as those of a dead file server.
package disk

import (
	"errors"
	"sync"
	"time"
)

// answerIn is how long a call may take. A handshake may take longer, and who closes a communicator
// waits for it.
const answerIn = time.Second

// ErrSilent is what a call ends with that was left behind.
var ErrSilent = errors.New("the file system does not answer")

// Calls are made one at a time. The zero value is ready.
type Calls struct {
	turn sync.Mutex
	left <-chan struct{} // closed when the call that was left behind has returned; nil: none was
}

// Do calls f, and leaves it behind where the file system does not answer: such a call cannot be
// interrupted. Until it has returned no other one is made.
func (c *Calls) Do(f func() error) error {
	c.turn.Lock()
	defer c.turn.Unlock()
	if c.left != nil {
		select {
		case <-c.left:
			c.left = nil
		default:
			return ErrSilent
		}
	}
	var err error
	returned := make(chan struct{})
	go func() {
		defer close(returned)
		err = f()
	}()
	timer := time.NewTimer(answerIn)
	defer timer.Stop()
	select {
	case <-returned:
		return err
	case <-timer.C:
		c.left = returned
		return ErrSilent
	}
}
