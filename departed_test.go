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
	"github.com/polyrail/polyrail/railactors/transport/fault"
)

// The root of broadcasts may close before the others call them. It answers no table any more. Of 20
// ranks, 0 and 9 are not connected.
func TestATableIsAgreedOnWithoutRanksThatHaveClosed(t *testing.T) {
	const broadcasts = 6
	for _, pick := range [][2]int{{2, 1}, {3, 2}, {20, 3}, {20, 9}} {
		ranks, root := pick[0], pick[1]
		t.Run(fmt.Sprint("ranks=", ranks, "/root=", root), func(t *testing.T) {
			inBed(t, ranks, 2, nil, func(b *bed) {
				ctx, cancel := context.WithTimeout(b.t.Context(), time.Minute)
				defer cancel()
				formed, err := b.Form(ctx, "train")
				if err != nil {
					t.Fatal(err)
				}
				comms := make([]*Communicator, ranks) // by rank
				for _, c := range formed {
					comms[c.Rank()] = c
				}
				call := func(rank int) error {
					for k := range broadcasts {
						buf := make([]float32, 10)
						if rank == root {
							buf = operand(0, 10)
						}
						if err := Broadcast(ctx, comms[rank], buf, root); err != nil {
							return fmt.Errorf("broadcast %d: %w", k, err)
						}
						if err := checkSum(buf, 1); err != nil {
							return err
						}
					}
					return comms[rank].Close(ctx)
				}
				if err := call(root); err != nil {
					t.Fatal(err)
				}
				set := make(chan error, 1)
				go func() { set <- comms[0].SetTable(ctx, comms[0].Table()) }()
				synctest.Wait()
				b.each(func(rank int) error {
					if rank == root {
						return nil
					}
					return call(rank)
				})
				if err := <-set; err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// A call that is held while a table is agreed on has no number yet. Rank 0, which would commit the
// table, has closed after the last operation before it.
func TestACallHeldForATableEndsWhenRankZeroHasClosed(t *testing.T) {
	for what, after := range map[string]time.Duration{
		"held, then closed": 15 * time.Millisecond, "closed, then called": 40 * time.Millisecond,
	} {
		t.Run(what, func(t *testing.T) {
			slow, _ := shapedRails(fault.Options{Delay: 10 * time.Millisecond}, func(*Config) {})
			inBed(t, 2, 1, slow, func(b *bed) {
				comms := b.form("train")
				go func() { _ = comms[0].SetTable(b.t.Context(), comms[0].Table()) }()
				synctest.Wait() // rank 1 hears of it after 10 ms, and its answer arrives after 20
				// The last two before the table.
				b.each(func(i int) error {
					for range 2 {
						if _, err := StartAllReduce(b.t.Context(), comms[i], make([]float32, 10), Sum); err != nil {
							return err
						}
					}
					return nil
				})
				go func() {
					ctx, cancel := context.WithTimeout(b.t.Context(), 13*time.Millisecond)
					defer cancel()
					_ = comms[0].Close(ctx)
				}()
				<-time.After(after)
				err := b.returned("the call", time.Second, func() error { return comms[1].Barrier(b.t.Context()) })
				if !errors.Is(err, ErrClosed) || !strings.Contains(err.Error(), "node0") {
					t.Errorf("%v, want that node0 has closed", err)
				}
			})
		})
	}
}
