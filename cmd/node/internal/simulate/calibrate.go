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

// Calibrate measures what this machine's processor takes, each figure for so long: kernels and
// copies by themselves, frames by the smallest operation of two nodes over loopback. An operation of
// two ranks begins, sends and receives once on each. These three share what it takes of processors;
// the rest of its time is the startup.
func Calibrate(ctx context.Context, d time.Duration) (p Processor, startup time.Duration, err error) {
	combine, err := reduce.For(op.Sum, op.F32)
	if err != nil {
		return p, 0, err
	}
	const bytes = 256 << 10
	dst, a, b := make([]byte, bytes), make([]byte, bytes), make([]byte, bytes)
	rate := func(f func() error) (float64, error) {
		begin, n := time.Now(), 0
		for ; time.Since(begin) < d; n++ {
			if err := f(); err != nil {
				return 0, err
			}
		}
		return float64(n) * bytes / time.Since(begin).Seconds(), nil
	}
	if p.Fold, err = rate(func() error { return combine(dst, a, b) }); err != nil {
		return p, 0, err
	}
	if p.Copy, err = rate(func() error { copy(dst, a); return nil }); err != nil {
		return p, 0, err
	}
	took, spent, err := smallest(ctx, d)
	if err != nil {
		return p, 0, fmt.Errorf("two nodes on loopback: %w", err)
	}
	p.Frame = min(spent/2, took) / 3
	p.Begin = p.Frame
	return p, max(0, took-3*p.Frame), nil
}

// smallest is what an allreduce of 8 bytes takes between two nodes, and of processors on both.
func smallest(ctx context.Context, d time.Duration) (took, spent time.Duration, err error) {
	c, err := testbed.Start(ctx, testbed.Options{Nodes: 2, Rails: 1, Over: testbed.Loopback, Gossip: testbed.Loopback})
	if err != nil {
		return 0, 0, err
	}
	defer func() { _ = c.Close(context.WithoutCancel(ctx)) }()
	comms, err := c.Form(ctx, "calibrate")
	if err != nil {
		return 0, 0, err
	}
	const batch = 200
	buf := [2][2]float32{}
	began, before, n := time.Now(), measure.ProcessTime(), 0
	for ; time.Since(began) < d; n += batch {
		if err := c.Each(func(i int) error {
			for range batch {
				if err := polyrail.AllReduce(ctx, comms[i], buf[i][:], polyrail.Sum); err != nil {
					return err
				}
			}
			return nil
		}); err != nil {
			return 0, 0, err
		}
	}
	return time.Since(began) / time.Duration(n), (measure.ProcessTime() - before) / time.Duration(n), nil
}
