package polyrail_test

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"testing"

	. "github.com/polyrail/polyrail"
)

// maxAllocated is what an operation may allocate on each rank, in bytes, whatever its size: what its
// messages take, never its data. Handles and frames are pooled.
const maxAllocated = 512

var raceDetector bool

// brief reports whether tests that are long, above all under the race detector, shall do less.
func brief() bool { return testing.Short() || raceDetector }

// All goroutines of all ranks are counted. Virtual time stands still while there is work, so that
// gossip and heartbeats take no part.
func TestAnOperationAllocatesLittleOnceItsShapeIsKnown(t *testing.T) {
	if raceDetector {
		t.Skip("pools forget on purpose under the race detector")
	}
	for _, bytes := range []int{8, 64 << 10, 1 << 20} {
		t.Run(fmt.Sprintf("bytes=%d", bytes), func(t *testing.T) {
			allocatesLittle(t, bytes, func(ctx context.Context, c *Communicator, buf []float32) error {
				return AllReduce(ctx, c, buf, Sum)
			})
		})
	}
	t.Run("released", func(t *testing.T) {
		allocatesLittle(t, 8, func(ctx context.Context, c *Communicator, buf []float32) error {
			w, err := StartAllReduce(context.Background(), c, buf, Sum, WithWait())
			if err != nil {
				return err
			}
			defer w.Release()
			return w.Wait(ctx)
		})
	})
}

func allocatesLittle(t *testing.T, bytes int, reduce func(context.Context, *Communicator, []float32) error) {
	const ranks, warmUp, operations, batches = 2, 50, 100, 5
	inBed(t, ranks, 2, nil, func(b *bed) {
		comms := b.form("train")
		var bufs [ranks][]float32
		for i := range bufs {
			bufs[i] = make([]float32, bytes/4)
		}
		run := func(times int) uint64 {
			return allocated(func() {
				b.each(func(i int) error {
					for range times {
						if err := reduce(b.t.Context(), comms[i], bufs[i]); err != nil {
							return err
						}
					}
					return nil
				})
			})
		}
		run(warmUp)
		// Pools and the network's buffers grow with the worst backlog yet: the leanest
		// of a few batches is the steady state.
		least := uint64(math.MaxUint64)
		for range batches {
			least = min(least, run(operations)/operations/ranks)
		}
		if least > maxAllocated {
			t.Errorf("an operation allocates %d bytes on each rank, want at most %d", least, maxAllocated)
		}
		t.Logf("an operation allocates %d bytes on each rank", least)
	})
}

// allocated is how many bytes all goroutines allocate while f runs.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}
