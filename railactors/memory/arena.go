package memory

import (
	"fmt"

	"github.com/polyrail/polyrail/collective/fault"
)

// Arena holds the scratch of one operation: buffers that come and go together. Where a
// copy of a small send can do without the pool, scratch cannot, so an Arena's
// failure is an error. An Arena is not safe for concurrent use.
type Arena struct {
	pool *Pool
	held [][]byte
}

// NewArena returns an empty arena on the pool.
func NewArena(pool *Pool) *Arena { return &Arena{pool: pool} }

// Alloc returns n bytes of arbitrary contents, aligned to 64 bytes, which live until Free. The error
// is a *LimitError.
func (a *Arena) Alloc(n int) ([]byte, error) {
	b := a.pool.Get(n)
	if b == nil {
		s := a.pool.Stats()
		return nil, &LimitError{Need: int64(n), InUse: s.InUse, Limit: s.Limit}
	}
	if n > 0 {
		a.held = append(a.held, b)
	}
	return b, nil
}

// Free puts back all that was allocated. The arena can be used again.
func (a *Arena) Free() {
	for i, b := range a.held {
		a.held[i] = nil
		a.pool.Put(b)
	}
	a.held = a.held[:0]
}

// LimitError says why scratch could not be had. It matches fault.ErrLimit. All figures are bytes.
type LimitError struct {
	Need, InUse, Limit int64
}

func (e *LimitError) Error() string {
	if e.Need > MaxBuffer {
		return fmt.Sprintf("scratch of %d bytes: more than the largest buffer, %d bytes", e.Need, MaxBuffer)
	}
	return fmt.Sprintf("scratch of %d bytes: the memory limit is %d bytes, %d are in use", e.Need, e.Limit, e.InUse)
}

// Is makes the error match fault.ErrLimit.
func (e *LimitError) Is(target error) bool { return target == fault.ErrLimit }
