package simulate

import (
	"context"
	"fmt"
	"time"

	"github.com/polyrail/polyrail"
	"github.com/polyrail/polyrail/cmd/node/internal/measure"
	"github.com/polyrail/polyrail/collective/op"
	"github.com/polyrail/polyrail/collective/reduce"
	"github.com/polyrail/polyrail/test/testbed"
)

// Calibrate measures what this machine's processor takes, each figure for so long: the kernel of a sum
// by itself, the others by allreduces of two nodes over loopback. Of the smallest one each rank begins,
// sends and receives once. These three share what it takes of processors; the rest of its time is the
// startup. Of a large one nearly all that processors do is to copy each rank's bytes to a socket and
// from one.
func Calibrate(ctx context.Context, d time.Duration) (p Processor, startup time.Duration, err error) {
	if p.Fold, err = foldRate(d); err != nil {
		return p, 0, err
	}
	c, err := testbed.Start(ctx, testbed.Options{Nodes: 2, Rails: 1, Over: testbed.Loopback, Gossip: testbed.Loopback})
	if err != nil {
		return p, 0, fmt.Errorf("two nodes on loopback: %w", err)
	}
	defer func() { _ = c.Close(context.WithoutCancel(ctx)) }()
	comms, err := c.Form(ctx, "calibrate")
	if err != nil {
		return p, 0, fmt.Errorf("two nodes on loopback: %w", err)
	}
	const large = 8 << 20
	took, spent, err := allReduces(ctx, c, comms, 8, 200, d)
	if err != nil {
		return p, 0, err
	}
	p.Frame = min(spent/2, took) / 3
	p.Begin = p.Frame
	_, copied, err := allReduces(ctx, c, comms, large, 1, d)
	if err != nil {
		return p, 0, err
	}
	// Each of the two sends and receives so much, and adds half of it.
	p.Copy = 4 * large / max(copied-over(large, p.Fold), 1).Seconds()
	return p, max(0, took-3*p.Frame), nil
}

// foldRate is at which rate one operand is added to another one.
func foldRate(d time.Duration) (float64, error) {
	combine, err := reduce.For(op.Sum, op.F32)
	if err != nil {
		return 0, err
	}
	const bytes = 256 << 10
	dst, a, b := make([]byte, bytes), make([]byte, bytes), make([]byte, bytes)
	began, n := time.Now(), 0
	for ; time.Since(began) < d; n++ {
		if err := combine(dst, a, b); err != nil {
			return 0, err
		}
	}
	return float64(n) * bytes / time.Since(began).Seconds(), nil
}

// allReduces is what an allreduce takes between two nodes, and of processors on both.
func allReduces(ctx context.Context, c *testbed.Cluster, comms []*polyrail.Communicator, bytes, batch int,
	d time.Duration) (took, spent time.Duration, err error) {
	bufs := [2][]float32{make([]float32, bytes/4), make([]float32, bytes/4)}
	all := func(times int) error {
		return c.Each(func(i int) error {
			for range times {
				if err := polyrail.AllReduce(ctx, comms[i], bufs[i], polyrail.Sum); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := all(batch); err != nil { // connections and memory are warm then
		return 0, 0, err
	}
	began, before, n := time.Now(), measure.ProcessTime(), 0
	for ; time.Since(began) < d; n += batch {
		if err := all(batch); err != nil {
			return 0, 0, err
		}
	}
	return time.Since(began) / time.Duration(n), (measure.ProcessTime() - before) / time.Duration(n), nil
}
