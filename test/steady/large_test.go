package steady

import (
	"flag"
	"fmt"
	"testing"
	"time"

	"github.com/polyrail/polyrail"
)

var large = flag.Bool("large", false, "operations of hundreds of MiB among many ranks (up to 12 GiB)")

// The scratch of an operation grows with ranks and rails; the window shrinks with what the memory
// limit leaves, and the operation doesn't fail.
func TestLargeOperationsOfManyRanksStayWithinTheMemoryLimit(t *testing.T) {
	cases := []struct{ ranks, rails, mib, limit int }{{18, 4, 4, 4}}
	if *large {
		cases = []struct{ ranks, rails, mib, limit int }{{18, 4, 128, 64}, {40, 2, 128, 64}, {18, 4, 512, 64}}
	}
	for _, c := range cases {
		t.Run(fmt.Sprintf("ranks=%d/rails=%d/MiB=%d", c.ranks, c.rails, c.mib), func(t *testing.T) {
			nodes := inMemory(t, c.ranks, c.rails, func(cfg *polyrail.Config) {
				static(cfg)
				cfg.RankTimeout = time.Minute // the host is busy
				cfg.MemoryLimit = int64(c.limit) << 20
			})
			comms := form(t, nodes, "large")
			each(t, c.ranks, func(i int) error {
				buf := make([]int32, c.mib<<18)
				for k := range buf {
					buf[k] = int32(k + i)
				}
				if err := polyrail.AllReduce(t.Context(), comms[i], buf, polyrail.Sum); err != nil {
					return err
				}
				for k, v := range buf {
					if want := int32(c.ranks*k + c.ranks*(c.ranks-1)/2); v != want {
						return fmt.Errorf("element %d is %d, want %d", k, v, want)
					}
				}
				return nil
			})
		})
	}
}
