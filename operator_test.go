package polyrail_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	. "github.com/polyrail/polyrail"
)

// stuck starts an allreduce whose operator does not return on a rank before free is called.
func (b *bed) stuck(comms []*Communicator, rank, elements int) (free func()) {
	b.t.Helper()
	entered, leave := make(chan struct{}), make(chan struct{})
	var once sync.Once
	for i, c := range comms {
		o := UserOp("stuck", func(_, _, _ []float32) {
			if i == rank {
				once.Do(func() { close(entered) })
				<-leave
			}
		})
		go func() { // the operator may run on the caller's goroutine
			if _, err := StartAllReduce(b.t.Context(), c, make([]float32, elements), o); err != nil {
				b.t.Error(err)
			}
		}()
	}
	<-entered
	return func() { close(leave) }
}

func TestACallEndsThoughAnOperatorDoesNotReturn(t *testing.T) {
	calls := map[string]func(ctx context.Context, b *bed, c *Communicator) error{
		"Close":  func(ctx context.Context, _ *bed, c *Communicator) error { return c.Close(ctx) },
		"Shrink": func(ctx context.Context, _ *bed, c *Communicator) error { _, _, err := c.Shrink(ctx); return err },
		"Node.Close": func(ctx context.Context, b *bed, c *Communicator) error {
			return b.Nodes[c.Rank()].Close(ctx)
		},
		"Close, then Node.Close": func(ctx context.Context, b *bed, c *Communicator) error {
			return errors.Join(c.Close(ctx), b.Nodes[c.Rank()].Close(ctx))
		},
	}
	for what, call := range calls {
		for _, elements := range []int{10, 100_000} {
			for rank := range 2 {
				t.Run(fmt.Sprintf("%s/%d/rank=%d", what, elements, rank), func(t *testing.T) {
					inBed(t, 2, 1, nil, func(b *bed) {
						comms := b.form("train")
						free := b.stuck(comms, rank, elements)
						ctx, cancel := context.WithTimeout(b.t.Context(), time.Second)
						defer cancel()
						err := b.returned(what, 2*time.Second, func() error { return call(ctx, b, comms[rank]) })
						if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "hold memory") {
							t.Errorf("%s: %v, want that operations hold memory", what, err)
						}
						free()
						if strings.HasPrefix(what, "Close") { // it goes on, and ends
							if err := b.returned("the second Close", time.Second,
								func() error { return comms[rank].Close(b.t.Context()) }); err != nil {
								t.Errorf("the second Close: %v", err)
							}
						}
						if strings.HasSuffix(what, "Node.Close") {
							_ = b.returned("the node's second Close", time.Second,
								func() error { return b.Nodes[rank].Close(b.t.Context()) })
							b.Nodes[rank] = nil
						}
					})
				})
			}
		}
	}
}

// An operator may end the goroutine that calls it, as FailNow of a test does: of a caller that folds
// itself, and of a reader.
func TestAnOperatorThatEndsItsGoroutineEndsTheOperation(t *testing.T) {
	for _, elements := range []int{10, 100_000} {
		t.Run(fmt.Sprint(elements), func(t *testing.T) {
			inBed(t, 2, 1, nil, func(b *bed) {
				comms := b.form("train")
				o := UserOp("exits", func(_, _, _ []float32) { runtime.Goexit() })
				errs := b.failures(func(i int) error {
					ctx, cancel := b.timeout()
					defer cancel()
					return b.returned("AllReduce", time.Second,
						func() error { return AllReduce(ctx, comms[i], make([]float32, elements), o) })
				})
				for i, err := range errs {
					if !strings.Contains(err.Error(), "user:exits") {
						t.Errorf("rank %d: %v", i, err)
					}
				}
			})
		})
	}
}
