package polyrail_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/polyrail/polyrail"
)

// Counts may be of memory that other ranks have: nothing here says how large they can be.
func TestCountsThatNoMemoryHoldsAreRefused(t *testing.T) {
	calls := map[string]func(context.Context, *Communicator) error{
		"negative total": func(ctx context.Context, c *Communicator) error {
			return Gather(ctx, c, nil, make([]int64, 8), 1, WithCounts(8, 1<<60))
		},
		"total of a few bytes": func(ctx context.Context, c *Communicator) error {
			return finish(StartAllGather(ctx, c, make([]int64, 2), make([]int64, 10), WithCounts(10, 1<<61-8)))
		},
		"total of what is there": func(ctx context.Context, c *Communicator) error {
			return finish(StartAllGather(ctx, c, make([]int64, 8), make([]int64, 8), WithCounts(8, 1<<61)))
		},
		"large": func(ctx context.Context, c *Communicator) error {
			return Gather(ctx, c, nil, make([]int8, 8), 1, WithCounts(8, 1<<40-7))
		},
	}
	for name, call := range calls {
		t.Run(name, func(t *testing.T) {
			inBed(t, 2, 1, nil, func(b *bed) {
				comms := b.form("train")
				err := b.returned("the call", time.Second, func() error { return call(b.t.Context(), comms[0]) })
				if err == nil || !strings.Contains(err.Error(), "count 1") && !strings.Contains(err.Error(), "in all") {
					t.Errorf("%v, want one that names the counts", err)
				}
				_ = b.returned("Close", 10*time.Second, func() error { return comms[0].Close(b.t.Context()) })
			})
		})
	}
}

// The error of one communicator may end a call on another one, where its rank is somebody else.
func TestALostRankOfAParentIsNobodyInTheChild(t *testing.T) {
	lost := fmt.Errorf("parent: %w", &RankLostError{Rank: 0, Node: "node0", Reason: "killed"})
	for what, end := range map[string]func(context.Context, *Communicator){
		"cause": func(ctx context.Context, c *Communicator) {
			ctx, cancel := context.WithCancelCause(ctx)
			time.AfterFunc(time.Second, func() { cancel(lost) })
			if err := c.Barrier(ctx); !errors.Is(err, ErrRankLost) {
				t.Errorf("where it ended: %v", err)
			}
		},
		"abort": func(_ context.Context, c *Communicator) { c.Abort(lost) },
	} {
		t.Run(what, func(t *testing.T) {
			inBed(t, 4, 1, nil, func(b *bed) {
				comms, children := b.form("train"), make([]*Communicator, 4)
				b.each(func(i int) (err error) {
					children[i], err = comms[i].Sub(b.t.Context(), []int{1, 2, 3})
					return err
				})
				end(b.t.Context(), children[1])
				for _, child := range children[2:] {
					err := b.returned("a barrier", time.Second, func() error { return child.Barrier(b.t.Context()) })
					var rank *RankLostError
					if errors.As(err, &rank) {
						t.Errorf("rank %d, node %q, is called lost: %v", rank.Rank, rank.Node, err)
					}
					if !errors.Is(err, ErrRankLost) || !strings.Contains(err.Error(), `"node0"`) {
						t.Errorf("%v, want one that says what its cause says", err)
					}
				}
			})
		})
	}
}

func TestAMessageMayEndByAnErrorOfAnotherCommunicator(t *testing.T) {
	inBed(t, 2, 1, nil, func(b *bed) {
		comms := b.form("train")
		for _, cause := range []error{
			&AbortError{Rank: 5, Node: "node5"}, &AbortError{Rank: 1, Node: "node7"}, &AbortError{Rank: 5},
			&MismatchError{Rank: -1}, &MismatchError{Rank: 0, Node: "node8"},
		} {
			text := cause.Error()
			ctx, cancel := context.WithCancelCause(b.t.Context())
			time.AfterFunc(time.Second, func() { cancel(cause) })
			_, err := Recv(ctx, comms[0], make([]int64, 1), 1, 0)
			if err == nil || !strings.Contains(err.Error(), text) || cause.Error() != text {
				t.Errorf("%v, want %q", err, text)
			}
		}
	})
}

// A call returns with its context, though no place in flight is free for its messages.
func TestAllToAllVDoesNotWaitForAPlaceInFlight(t *testing.T) {
	inBed(t, 2, 1, nil, func(b *bed) {
		comms, one := b.form("train"), make([]int64, 1)
		all, end := context.WithCancel(b.t.Context())
		open := make([]*Transfer, 1<<16) // as many as there may be
		for i := range open {
			var err error
			if open[i], err = StartRecv(all, comms[0], one, 1, 7); err != nil {
				t.Fatal(err)
			}
		}
		ctx, cancel := context.WithTimeout(b.t.Context(), time.Second)
		defer cancel()
		err := b.returned("alltoallv", 2*time.Second, func() error {
			return AllToAllV(ctx, comms[0], make([]int64, 2), []int{1, 1}, make([]int64, 2), []int{1, 1})
		})
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		end()
		for _, x := range open {
			<-x.Done()
		}
	})
}

// A send that meets the end of its communicator gives its copy back.
func TestASendThatComesTooLateKeepsNoMemory(t *testing.T) {
	inBed(t, 2, 1, nil, func(b *bed) {
		comms := b.form("train")
		inUse := func() int64 {
			status, err := b.Nodes[0].Status(b.t.Context())
			if err != nil {
				t.Fatal(err)
			}
			return status.Memory.InUse
		}
		before := inUse()
		comms[0].Transfers().Leave(1)
		for range 10 {
			if err := Send(b.t.Context(), comms[0], make([]int64, 4096), 1, 0); !errors.Is(err, ErrClosed) {
				t.Fatal(err)
			}
		}
		if n := inUse(); n != before {
			t.Errorf("%d bytes of the pool are in use, %d before", n, before)
		}
	})
}

// Rank 1 ends the communicator. Rank 0 hears it from rank 2 first, which then closes: what rank 1 says
// waits for an operator.
func TestAFarewellNamesWhoEndedTheCommunicator(t *testing.T) {
	inBed(t, 3, 1, nil, func(b *bed) {
		comms := b.form("train")
		pair := make([]*Communicator, 3)
		b.each(func(i int) (err error) {
			pair[i], err = comms[i].Sub(b.t.Context(), []int{0, 1})
			return err
		})
		free := b.stuck(pair[:2], 0, 100_000)
		comms[1].Abort(errors.New("no more data"))
		synctest.Wait()
		if err := comms[2].Close(b.t.Context()); err != nil {
			t.Error(err)
		}
		var abort *AbortError
		if err := comms[0].Err(); !errors.As(err, &abort) || abort.Rank != 1 || abort.Node != b.Nodes[1].Name() {
			t.Errorf("rank 0 has %v, want that rank 1 ended it", err)
		}
		free()
	})
}
