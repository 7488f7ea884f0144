package bench

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/polyrail/polyrail"
	"github.com/polyrail/polyrail/cluster/memnet"
	"github.com/polyrail/polyrail/railactors/transport/mem"
)

// communicators starts nodes in this process, with two rails each, and joins them.
func communicators(b *testing.B, transport string, n int) []*polyrail.Communicator {
	b.Helper()
	gossip, rails := memnet.New(), mem.NewNetwork()
	comms := make([]*polyrail.Communicator, n)
	var forming sync.WaitGroup
	for i := range n {
		cfg := polyrail.DefaultConfig()
		cfg.Balance = polyrail.BalanceStatic // what is tested relies on equal shares
		cfg.Name, cfg.Bind = fmt.Sprintf("node%d", i), fmt.Sprintf("10.0.0.%d:7946", i+1)
		cfg.Join, cfg.GossipNetwork, cfg.Logger = []string{"10.0.0.1:7946"}, gossip, quiet
		for r := range 2 {
			rail := polyrail.Rail{Name: fmt.Sprintf("rail%d", r), Protocol: "tcp", Device: fmt.Sprintf("127.0.0.%d", r+1)}
			if transport == "mem" {
				rail.Transport = rails.Transport(cfg.Name)
			}
			cfg.Rails = append(cfg.Rails, rail)
		}
		node, err := polyrail.Start(b.Context(), cfg)
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() {
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			defer cancel()
			_ = node.Close(ctx) // the others may have gone before
		})
		forming.Go(func() {
			var err error
			if comms[i], err = node.Communicator(b.Context(), "bench", n); err != nil {
				b.Error(err)
			}
		})
	}
	forming.Wait()
	if b.Failed() {
		b.FailNow()
	}
	return comms
}

// BenchmarkAllReduce is a whole operation of two nodes in one process, over two rails. Allocations are
// those of both.
func BenchmarkAllReduce(b *testing.B) {
	for _, transport := range []string{"mem", "tcp"} {
		for _, bytes := range []int{8, 64 << 10, 1 << 20} {
			b.Run(fmt.Sprintf("transport=%s/n=2/bytes=%d", transport, bytes), func(b *testing.B) {
				comms := communicators(b, transport, 2)
				ctx, stop := context.WithCancel(context.Background())
				var other sync.WaitGroup
				other.Go(func() {
					mine := make([]float32, bytes/4)
					// When rank 0 has had enough, this rank is one call ahead, and waits in it.
					for polyrail.AllReduce(ctx, comms[1], mine, polyrail.Sum) == nil {
					}
				})
				defer other.Wait()
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
