package bench

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/polyrail/polyrail"
)

// BenchmarkBatch is many buffers of two nodes in one process over two TCP rails of loopback. They
// are waited for one by one, started together, and sent as one batch.
func BenchmarkBatch(b *testing.B) {
	ways := []struct {
		name string
		run  func(ctx context.Context, c *polyrail.Communicator, bufs [][]float32) error
	}{
		{"one-by-one", func(ctx context.Context, c *polyrail.Communicator, bufs [][]float32) error {
			for _, buf := range bufs {
				if err := polyrail.AllReduce(ctx, c, buf, polyrail.Sum); err != nil {
					return err
				}
			}
			return nil
		}},
		{"together", func(ctx context.Context, c *polyrail.Communicator, bufs [][]float32) error {
			works := make([]*polyrail.Work, 0, len(bufs))
			for _, buf := range bufs {
				w, err := polyrail.StartAllReduce(ctx, c, buf, polyrail.Sum)
				if err != nil {
					return err
				}
				works = append(works, w)
			}
			return polyrail.WaitAll(ctx, works...)
		}},
		{"batch", func(ctx context.Context, c *polyrail.Communicator, bufs [][]float32) error {
			return polyrail.AllReduceBatch(ctx, c, bufs, polyrail.Sum)
		}},
	}
	for _, size := range []struct{ buffers, bytes int }{{100, 64}, {100, 4 << 10}, {32, 64 << 10},
		{16, 256 << 10}, {16, 1 << 20}} {
		for _, way := range ways {
			b.Run(fmt.Sprintf("buffers=%d/bytes=%d/way=%s", size.buffers, size.bytes,
				way.name), func(b *testing.B) {
				comms := communicators(b, "tcp", 2)
				bufs := func() (list [][]float32) {
					for range size.buffers {
						list = append(list, make([]float32, size.bytes/4))
					}
					return list
				}
				ctx, stop := context.WithCancel(context.Background())
				var other sync.WaitGroup
				other.Go(func() {
					mine := bufs()
					for way.run(ctx, comms[1], mine) == nil {
					}
				})
				defer other.Wait()
				defer stop()
				mine := bufs()
				b.SetBytes(int64(size.buffers * size.bytes))
				b.ReportAllocs()
				for b.Loop() {
					if err := way.run(ctx, comms[0], mine); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
