package railactors

import (
	"context"
	"runtime"
)

// attemptsPerProcessor is how many attempts to connect a process makes at once for each processor
// that Go uses. An attempt takes some 100 µs of it, and at most the time that it waits for a host
// that is dead.
const attemptsPerProcessor = 32

// Attempts has attempts to connect take turns. Where many nodes share a process and begin with
// each other at once, their attempts would time out for each other, and be made again.
type Attempts chan struct{}

// NewAttempts returns the turns of a process.
func NewAttempts() Attempts { return make(Attempts, attemptsPerProcessor*runtime.GOMAXPROCS(0)) }

// begin waits for the turn of an attempt, which end ends.
func (a Attempts) begin(ctx context.Context) error {
	select {
	case a <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (a Attempts) end() { <-a }
