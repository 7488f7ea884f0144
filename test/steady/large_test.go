package steady

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/polyrail/polyrail"
	"github.com/polyrail/polyrail/cluster/memnet"
	"github.com/polyrail/polyrail/railactors/transport/mem"
)

var large = flag.Bool("large", false, "operations of hundreds of MiB among many ranks (up to 12 GiB of memory)")

// The scratch of an operation grows with ranks and rails; the window shrinks with what the memory
// limit leaves, and the operation doesn't fail.
func TestLargeOperationsOfManyRanksStayWithinTheMemoryLimit(t *testing.T) {
	cases := []struct{ ranks, rails, mib, limit int }{{18, 4, 4, 4}}
	if *large {
		cases = []struct{ ranks, rails, mib, limit int }{{18, 4, 128, 64}, {40, 2, 128, 64}, {18, 4, 512, 64}}
	}
	for _, c := range cases {
		t.Run(fmt.Sprintf("ranks=%d/rails=%d/MiB=%d", c.ranks, c.rails, c.mib), func(t *testing.T) {
			gossip, rails := memnet.New(), mem.NewNetwork()
			nodes := make([]*polyrail.Node, c.ranks)
			all := func(f func(i int) error) {
				t.Helper()
				var running sync.WaitGroup
				for i := range nodes {
					running.Go(func() {
						if err := f(i); err != nil {
							t.Errorf("rank %d: %v", i, err)
						}
					})
				}
				running.Wait()
			}
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
			defer cancel()
			for i := range nodes {
				cfg := polyrail.DefaultConfig()
				cfg.Name, cfg.Logger = fmt.Sprintf("node%02d", i), slog.New(slog.DiscardHandler)
				cfg.Bind, cfg.GossipNetwork = fmt.Sprintf("10.0.0.%d:7946", i+1), gossip
				cfg.Join = []string{"10.0.0.1:7946"}
				// The host is busy.
				cfg.Balance, cfg.RankTimeout = polyrail.BalanceStatic, time.Minute
				cfg.MemoryLimit = int64(c.limit) << 20
				for r := range c.rails {
					cfg.Rails = append(cfg.Rails, polyrail.Rail{Name: fmt.Sprintf("rail%d", r),
						Transport: rails.Transport(cfg.Name), Device: fmt.Sprintf("eth%d", r)})
				}
				var err error
				if nodes[i], err = polyrail.Start(ctx, cfg); err != nil {
					t.Fatal(err)
				}
			}
			all(func(i int) error {
				comm, err := nodes[i].Communicator(ctx, "large", c.ranks)
				if err != nil {
					return err
				}
				buf := make([]int32, c.mib<<18)
				for k := range buf {
					buf[k] = int32(k + i)
				}
				if err := polyrail.AllReduce(ctx, comm, buf, polyrail.Sum); err != nil {
					return err
				}
				for k, v := range buf {
					if want := int32(c.ranks*k + c.ranks*(c.ranks-1)/2); v != want {
						return fmt.Errorf("element %d is %d, want %d", k, v, want)
					}
				}
				return nil
			})
			all(func(i int) error { return nodes[i].Close(ctx) })
		})
	}
}
