package bench

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/polyrail/polyrail"
)

// BenchmarkPingPong is a message to another node in this process and one back, over two rails.
func BenchmarkPingPong(b *testing.B) {
	for _, transport := range []string{"mem", "tcp"} {
		for _, bytes := range []int{8, 64 << 10, 1 << 20, 16 << 20} {
			b.Run(fmt.Sprintf("transport=%s/bytes=%d", transport, bytes), func(b *testing.B) {
				comms := communicators(b, transport, 2)
				ctx, stop := context.WithCancel(context.Background())
				var other sync.WaitGroup
				other.Go(func() {
					buf := make([]byte, bytes)
					for {
						if _, err := polyrail.Recv(ctx, comms[1], buf, 0, 0); err != nil {
							return
						}
						if polyrail.Send(ctx, comms[1], buf, 0, 0) != nil {
							return
						}
					}
				})
				defer other.Wait()
				defer stop()
				buf := make([]byte, bytes)
				b.SetBytes(2 * int64(bytes))
				b.ReportAllocs()
				for b.Loop() {
					if err := polyrail.Send(ctx, comms[0], buf, 1, 0); err != nil {
						b.Fatal(err)
					}
					if _, err := polyrail.Recv(ctx, comms[0], buf, 1, 0); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
