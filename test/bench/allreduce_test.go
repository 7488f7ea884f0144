package bench

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/polyrail/polyrail"
	"github.com/polyrail/polyrail/test/testbed"
)

// communicators starts nodes in this process, with two rails each, and joins them.
func communicators(b *testing.B, transport string, n int) []*polyrail.Communicator {
	b.Helper()
	o := testbed.Options{Nodes: n, Rails: 2}
	if transport == "tcp" {
		o.Over = testbed.Loopback
	}
	nodes, err := testbed.Start(b.Context(), o)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = nodes.Close(ctx) // the communicator is left open
	})
	comms, err := nodes.Form(b.Context(), "bench")
	if err != nil {
		b.Fatal(err)
	}
	return comms
}

// BenchmarkAllReduce is a whole operation of two and of eight nodes in one process, over two rails.
// Allocations are those of all nodes.
func BenchmarkAllReduce(b *testing.B) {
	for _, transport := range []string{"mem", "tcp"} {
		for _, size := range []struct{ n, bytes int }{{2, 8}, {2, 64 << 10}, {2, 1 << 20}, {8, 8}, {8, 16 << 10}} {
			n, bytes := size.n, size.bytes
			b.Run(fmt.Sprintf("transport=%s/n=%d/bytes=%d", transport, n, bytes), func(b *testing.B) {
				comms := communicators(b, transport, n)
				ctx, stop := context.WithCancel(context.Background())
				var others sync.WaitGroup
				for _, c := range comms[1:] {
					others.Go(func() {
						mine := make([]float32, bytes/4)
						// When rank 0 has had enough, these ranks are one call ahead, and wait in it.
						for polyrail.AllReduce(ctx, c, mine, polyrail.Sum) == nil {
						}
					})
				}
				defer others.Wait()
				defer stop()
				buf := make([]float32, bytes/4)
				b.SetBytes(int64(bytes))
				b.ReportAllocs()
				for b.Loop() {
					if err := polyrail.AllReduce(ctx, comms[0], buf, polyrail.Sum); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
