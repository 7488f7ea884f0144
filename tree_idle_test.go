package polyrail_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	. "github.com/polyrail/polyrail"
	"github.com/polyrail/polyrail/railactors/transport/fault"
	"github.com/polyrail/polyrail/test/testbed"
)

// Trees come and go while nobody calls anything: the table that is in force names the first one still.
func TestAnIdleCommunicatorOutlivesItsTrees(t *testing.T) {
	for what, fail := range map[string]func(b *bed, c *Communicator, rail func(rank, rail int) *fault.Transport){
		"rank": func(_ *bed, _ *Communicator, rail func(rank, rail int) *fault.Transport) { // an attempt each second
			rail(1, 0).Cut()
			<-time.After(time.Minute)
		},
		"node": func(b *bed, c *Communicator, _ func(rank, rail int) *fault.Transport) {
			for range 18 {
				b.Kill(3)
				untilTree(b, c, false)
				b.restart(3)
				untilTree(b, c, true)
			}
		},
	} {
		t.Run(what, func(t *testing.T) {
			adapt, rail := shapedRails(fault.Options{Rate: 25e6, Delay: 50 * time.Microsecond}, func(*Config) {})
			inGrove(t, 3, 1, 2, adapt, func(b *bed, comms []*Communicator) {
				untilTree(b, comms[0], true)
				for i := range uint64(4) {
					sums(b, comms, 100_000, i, true)
				}
				fail(b, comms[0], rail)
				for i := range uint64(4) {
					sums(b, comms, 100_000, 10+i, true)
				}
			})
		})
	}
}

// The last operation before Close: the others have their results and go, and one rank has them, too,
// but its tree's rail is silent before it hears that all have.
func TestTheLastOperationEndsWhereItsTreeIsLostAfterTheOthersClosed(t *testing.T) {
	for _, at := range []int{80, 85, 88, 91, 94, 97} { // of what the operation takes, in hundredths
		t.Run(fmt.Sprint(at), func(t *testing.T) {
			adapt, rail := shapedRails(fault.Options{Delay: 20 * time.Millisecond}, func(c *Config) {
				c.Rails[0].Weight, c.Rails[1].Weight = 1<<20, 1
			})
			inGrove(t, 3, 1, 2, adapt, func(b *bed, comms []*Communicator) {
				rail(2, 0).SetDelay(40 * time.Millisecond)
				untilTree(b, comms[0], true)
				var usual time.Duration
				for range 5 {
					start := time.Now()
					wholeSums(b, comms, 100_000, 1, Sum)
					usual = time.Since(start)
				}
				silent := make(chan struct{})
				time.AfterFunc(usual*time.Duration(at)/100, func() {
					rail(2, 0).Stall(20 * time.Second)
					close(silent)
				})
				b.ranks(comms, func(r int) error {
					ctx, cancel := context.WithTimeout(b.t.Context(), time.Minute)
					defer cancel()
					if err := AllReduce(ctx, comms[r], make([]int64, 100_000), Sum, WithAlgorithm(Ring)); err != nil {
						return err
					}
					return comms[r].Close(ctx)
				})
				<-silent
				rail(2, 0).Heal()
			})
		})
	}
}

// One rank has its result and goes, and another one has it, too, but its tree is lost before it hears
// that all have. Rank 0 stays until that one is done. The tree is the second rail's, so that no
// farewell is lost with it.
func TestAnOperationEndsWhereItsTreeIsLostAfterOneRankClosed(t *testing.T) {
	for _, at := range []int{85, 91, 97} { // of what the operation takes, in hundredths
		t.Run(fmt.Sprint(at), func(t *testing.T) {
			adapt, rail := shapedRails(fault.Options{Delay: 20 * time.Millisecond}, func(c *Config) {
				c.Rails[0].Weight, c.Rails[1].Weight = 1, 1<<20
				c.Rails[1].Protocol = "sharp"
				if c.Name == testbed.NodeName(3) {
					c.Aggregate = []string{c.Rails[1].Name}
				}
			})
			inBed(t, 4, 2, adapt, func(b *bed) {
				comms := make([]*Communicator, 3)
				b.each(func(i int) (err error) {
					if i < len(comms) {
						comms[i], err = b.Nodes[i].Communicator(b.t.Context(), "train", len(comms))
					}
					return err
				})
				untilTree(b, comms[0], true)
				rail(2, 1).SetDelay(40 * time.Millisecond)
				var usual time.Duration
				for range 5 {
					start := time.Now()
					wholeSums(b, comms, 100_000, 1, Sum)
					usual = time.Since(start)
				}
				time.AfterFunc(usual*time.Duration(at)/100, func() { rail(2, 1).Stall(20 * time.Second) })
				killed, done := make(chan struct{}), make(chan struct{})
				time.AfterFunc(usual+100*time.Millisecond, func() {
					b.Kill(3)
					close(killed)
				})
				b.ranks(comms, func(r int) error {
					ctx, cancel := context.WithTimeout(b.t.Context(), time.Minute)
					defer cancel()
					err := AllReduce(ctx, comms[r], make([]int64, 100_000), Sum, WithAlgorithm(Ring))
					switch r {
					case 0:
						<-done
					case 2:
						close(done)
					}
					return errors.Join(err, comms[r].Close(ctx))
				})
				<-killed
				rail(2, 1).Heal()
			})
		})
	}
}
