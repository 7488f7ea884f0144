package measure

import (
	"context"
	"fmt"
	"time"
)

// Ranks is a communicator whose ranks can agree on a number.
type Ranks interface {
	Rank() int
	// Sum adds up v over all ranks, in place.
	Sum(ctx context.Context, v []int64) error
}

// MaxBatch bounds the operations between two decisions of Loop.
const MaxBatch = 1 << 17

// Loop is how anything is measured here: all ranks run as many operations as rank 0 says, until it
// says 0. next decides on rank 0, by the operations that are done and by the time that they took.
func Loop(ctx context.Context, g Ranks, next func(done int, took time.Duration) (int, error),
	run func(ctx context.Context, times int) error) error {
	var took time.Duration
	for done := 0; ; {
		todo := []int64{0}
		if g.Rank() == 0 {
			n, err := next(done, took)
			if err != nil {
				return err
			}
			todo[0] = int64(min(n, MaxBatch))
		}
		if err := g.Sum(ctx, todo); err != nil {
			return err
		}
		times := todo[0]
		if times < 0 || times > MaxBatch {
			return fmt.Errorf("ranks agreed on %d operations, outside 0…%d: they do not run the same command",
				times, MaxBatch)
		}
		if times == 0 {
			return nil
		}
		start := time.Now()
		if err := run(ctx, int(times)); err != nil {
			return err
		}
		took += time.Since(start)
		done += int(times)
	}
}
