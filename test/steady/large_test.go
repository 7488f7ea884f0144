package steady

import (
	"context"
	"flag"
	"fmt"
	"testing"
	"time"

	"github.com/polyrail/polyrail"
	"github.com/polyrail/polyrail/test/testbed"
)

var large = flag.Bool("large", false, "operations of hundreds of MiB among many ranks (up to 12 GiB of memory)")

// The scratch of an operation grows with ranks and rails; the window shrinks with what the memory limit leaves, and the
// operation doesn't fail.
func TestLargeOperationsOfManyRanksStayWithinTheMemoryLimit(t *testing.T) {
	cases := []struct{ ranks, rails, mib, limit int }{{18, 4, 4, 4}}
	if *large {
		cases = []struct{ ranks, rails, mib, limit int }{{18, 4, 128, 64}, {40, 2, 128, 64}, {18, 4, 512, 64}}
	}
	for _, c := range cases {
		t.Run(fmt.Sprintf("ranks=%d/rails=%d/MiB=%d", c.ranks, c.rails, c.mib), func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
			defer cancel()
			nodes := start(t, testbed.Options{Nodes: c.ranks, Rails: c.rails, Adapt: func(cfg *polyrail.Config) {
				cfg.RankTimeout = time.Minute // the host is busy
				cfg.MemoryLimit = int64(c.limit) << 20
			}})
			err := nodes.Each(func(i int) error {
				comm, err := nodes.Nodes[i].Communicator(ctx, "large", c.ranks)
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
			if err != nil {
				t.Error(err)
			}
		})
	}
}
