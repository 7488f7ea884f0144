package polyrail_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/polyrail/polyrail"
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
