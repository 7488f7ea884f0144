package polyrail

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/polyrail/polyrail/railactors/transport/fault"
)

// limitedRails gives each node's rails these rates in bytes/s, and returns the handles by which they change.
func limitedRails(rates ...int64) (adapt func(*Config), rails func(rail int) []*fault.Transport) {
	handles := make([][]*fault.Transport, len(rates))
	return func(c *Config) {
			for i, rate := range rates {
				f := fault.Wrap(c.Rails[i].Transport, fault.Options{Rate: rate, Delay: 50 * time.Microsecond})
				handles[i] = append(handles[i], f)
				c.Rails[i].Transport = f
			}
		}, func(rail int) []*fault.Transport {
			return handles[rail]
		}
}

// share runs so many operations of a size and returns the first rail's part of the bytes of the last ten, and how
// long one of those took.
func (b *bed) share(comms []*Communicator, operations, size int) (first float64, each time.Duration) {
	b.t.Helper()
	run := func(operations int) {
		b.each(func(i int) error {
			buf := make([]float32, size/4)
			for range operations {
				if err := AllReduce(b.t.Context(), comms[i], buf, Sum); err != nil {
					return err
				}
			}
			return nil
		})
	}
	run(operations - 10)
	before := b.nodes[0].Rails()
	start := time.Now()
	run(10)
	each = time.Since(start) / 10
	after := b.nodes[0].Rails()
	var sent []float64
	var total float64
	for i := range after {
		sent = append(sent, float64(after[i].BytesSent-before[i].BytesSent))
		total += sent[i]
	}
	return sent[0] / total, each
}

func TestSharesSettleByMeasurement(t *testing.T) {
	for _, n := range []int{2, 4} {
		for _, probe := range []bool{true, false} {
			t.Run(fmt.Sprintf("ranks=%d/probe=%v", n, probe), func(t *testing.T) {
				adapt, rails := limitedRails(40e6, 10e6)
				inBed(t, n, 2, func(c *Config) { adapt(c); c.Probe = probe }, func(b *bed) {
					comms := b.form("train")
					for _, size := range []int{1 << 20, 16 << 20} {
						got, each := b.share(comms, 40, size)
						bound := time.Duration(float64(size) * 2 * float64(n-1) / float64(n) / 50e6 * 1e9)
						t.Logf("%d MiB: %.3f on the fast rail, %v each, bound %v (%.3f)", size>>20, got, each, bound, float64(each)/float64(bound))
						if got < 0.77 || got > 0.83 {
							t.Errorf("%d bytes: the fast rail carries %.3f, want 0.8", size, got)
						}
					}
					for _, slow := range rails(0) { // the fast one becomes as slow as the other
						slow.SetRate(10e6)
					}
					if got, _ := b.share(comms, 40, 4<<20); got < 0.46 || got > 0.54 {
						t.Errorf("after the change the first rail carries %.3f, want 0.5", got)
					}
					r, err := comms[0].Balance(b.t.Context())
					if err != nil || len(r.Classes) == 0 || r.Static {
						t.Errorf("report %+v, %v", r, err)
					}
					if _, err := comms[1].Balance(b.t.Context()); err == nil || !strings.Contains(err.Error(), `"node0"`) {
						t.Errorf("Balance on rank 1: %v, want an error that names rank 0's node", err)
					}
				})
			})
		}
	}
}
