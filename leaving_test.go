package polyrail_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	. "github.com/polyrail/polyrail"
	"github.com/polyrail/polyrail/railactors/transport/fault"
)

// Rank 0 has finished its last operation and goes, while the others still need the communicator.
// At some of the moments at which rank 1 closes it, its farewell is on the way when rank 0 goes.
func TestANodeThatGoesBreaksNothingThatItHasClosed(t *testing.T) {
	const delay = 10 * time.Millisecond
	far := func(c *Config) {
		for i := range c.Rails {
			c.Rails[i].Transport = fault.Wrap(c.Rails[i].Transport, fault.Options{Delay: delay})
		}
	}
	for after := time.Duration(0); after < 20*delay; after += delay / 2 {
		t.Run(fmt.Sprint("after=", after), func(t *testing.T) {
			inBed(t, 3, 1, far, func(b *bed) {
				comms := b.form("train")
				rank2 := b.Nodes[2].Events(b.t.Context())
				rank1 := b.Nodes[1].Events(b.t.Context())
				b.each(func(i int) error {
					if i == 0 {
						if err := comms[0].Close(b.t.Context()); err != nil {
							return err
						}
						return b.Nodes[0].Close(b.t.Context())
					}
					<-time.After(after)
					if i == 2 {
						<-time.After(time.Second)
					}
					return comms[i].Close(b.t.Context())
				})
				b.close()
				for _, events := range []<-chan Event{rank1, rank2} {
					for e := range events {
						if errors.Is(e.Err, ErrRankLost) {
							t.Errorf("%s of rank %d: %v", e.Kind, e.Rank, e.Err)
						}
					}
				}
			})
		})
	}
}

// A farewell that can't be queued, since the other rank takes nothing just then, is waited for by
// nobody.
func TestACloseWhoseFarewellIsNotSentEnds(t *testing.T) {
	adapt, rail := shapedRails(fault.Options{}, func(*Config) {})
	inBed(t, 2, 1, adapt, func(b *bed) {
		comms := b.form("train")
		rail(1, 0).Stall(time.Second)
		if err := comms[0].Flood(1); !errors.Is(err, ErrLimit) {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(b.t.Context(), time.Minute)
		defer cancel()
		if err := comms[0].Close(ctx); !errors.Is(err, ErrLimit) {
			t.Errorf("closed with %v", err)
		}
		if err := comms[1].Barrier(ctx); !errors.Is(err, ErrAborted) {
			t.Errorf("the other rank: %v", err)
		}
	})
}

func TestAFarewellThatIsNotAnsweredNamesWhomItWaitedFor(t *testing.T) {
	adapt, rail := shapedRails(fault.Options{}, func(*Config) {})
	inBed(t, 3, 1, adapt, func(b *bed) {
		comms := b.form("train")
		b.sum(comms, 10)
		rail(1, 0).Stall(time.Minute)
		ctx, cancel := context.WithTimeout(b.t.Context(), 100*time.Millisecond)
		defer cancel()
		err := comms[0].Close(ctx)
		rail(1, 0).Stall(0)
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), `rank 1 (node "node1")`) ||
			strings.Contains(err.Error(), "rank 2") {
			t.Errorf("closing: %v", err)
		}
	})
}
