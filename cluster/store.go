package cluster

import (
	"context"
	"fmt"
	"time"

	"github.com/polyrail/polyrail/collective/fault"
)

// Store is a place that all nodes reach, where each leaves its gossip address for the others. It
// answers one question, which addresses are worth trying; who lives is for gossip to say.
//
// Each call returns soon after its context has ended. Nothing is kept open between calls. One
// goroutine at a time calls. cluster/redisstore and cluster/dirstore implement it.
type Store interface {
	// String names the store in logs and errors, without its secrets.
	fmt.Stringer
	// Put writes the entry, or renews it. A List that follows, by anyone, finds it. Put may
	// remove what is older than ttl.
	Put(ctx context.Context, e Entry, ttl time.Duration) error
	// List returns what was put for the cluster no longer than ttl ago by the store's
	// clock, in encoded form, the latest first. It returns at most MaxEntries values of at
	// most MaxEntryBytes and leaves out the others.
	List(ctx context.Context, cluster string, ttl time.Duration) ([][]byte, error)
	// Remove takes the entry out; none is there is fine.
	Remove(ctx context.Context, e Entry) error
}

// StoreError: the store of entries could not be used until the start was over. Matches
// fault.ErrTimeout.
type StoreError struct {
	Store string // its name
	After time.Duration
	Err   error // of the last try
}

func (e *StoreError) Error() string {
	return fmt.Sprintf("rendezvous store %s not usable within %v: %v", e.Store,
		e.After.Round(time.Millisecond), e.Err)
}

// Is makes errors.Is(err, fault.ErrTimeout) hold.
func (e *StoreError) Is(target error) bool { return target == fault.ErrTimeout }

// Unwrap is the error of the last try.
func (e *StoreError) Unwrap() error { return e.Err }
