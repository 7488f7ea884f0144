package polyrail_test

import (
	"context"
	"testing"
	"time"

	. "github.com/polyrail/polyrail"
	"github.com/polyrail/polyrail/collective/op"
)

// Over rails of 4 : 1 collectives that are no allreduce find shares of their own. In some of them
// not every rank measures something: a root of broadcasts receives nothing.
func TestEveryFamilyIsBalancedByItsOwnTimes(t *testing.T) {
	const ranks, size, calls, most = 3, 3 << 20, 10, 20
	for kind, bound := range map[Kind]float64{ // bytes over the busiest link, in parts of the size
		KindBroadcast: 1, KindReduce: 1, KindAllGather: 2.0 / 3, KindReduceScatter: 2.0 / 3,
		KindGather: 2.0 / 3, KindAllToAll: 2.0 / 3,
	} {
		t.Run(kind.String(), func(t *testing.T) {
			if brief() && kind != KindBroadcast && kind != KindAllGather {
				t.Skip("long under the race detector")
			}
			adapt, _ := limitedRails(40e6, 10e6)
			inBed(t, ranks, 2, func(c *Config) { adapt(c); c.Probe = false }, func(b *bed) {
				comms := b.form("train")
				run := func(calls int) time.Duration {
					start := time.Now()
					b.each(func(i int) error {
						ctx, cancel := context.WithTimeout(b.t.Context(), time.Minute)
						defer cancel()
						whole, part := make([]byte, size), make([]byte, size/ranks)
						o := Operation{Kind: kind, DType: op.Uint8, Op: Max, Dst: whole, Src: whole}
						switch kind {
						case KindAllGather, KindGather:
							o.Src = part
						case KindReduceScatter:
							o.Dst = part
						case KindAllToAll:
							o.Dst = make([]byte, size)
						}
						for range calls {
							if err := comms[i].Run(ctx, o); err != nil {
								return err
							}
						}
						return nil
					})
					return time.Since(start) / time.Duration(calls)
				}
				// Ten in a row may meet a trial of other shares, also once they have settled.
				ideal := bound * size / 50e6
				each := run(calls)
				for n := 1; n < most && each.Seconds() > 1.05*ideal; n++ {
					each = run(calls)
				}
				if each.Seconds() > 1.05*ideal {
					t.Errorf("%v each, %.3f times the bound; the table is %+v", each,
						each.Seconds()/ideal, comms[0].Table())
				}
				r, err := comms[0].Balance(b.t.Context())
				if err != nil || len(r.Others) != 1 {
					t.Errorf("report of %d other families, %v", len(r.Others), err)
				}
			})
		})
	}
}
