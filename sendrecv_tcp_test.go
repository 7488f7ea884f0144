package polyrail

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/polyrail/polyrail/cluster/memnet"
	"github.com/polyrail/polyrail/railactors/transport/fault"
	"github.com/polyrail/polyrail/railactors/transport/tcp"
)

// onLoopback forms a communicator of nodes whose rails are real sockets, and returns the rails by
// node.
func onLoopback(t *testing.T, n, rails int) ([]*Communicator, [][]*fault.Transport) {
	t.Helper()
	gossip := memnet.New()
	comms, handles := make([]*Communicator, n), make([][]*fault.Transport, n)
	var forming sync.WaitGroup
	for i := range n {
		cfg := DefaultConfig()
		cfg.Name, cfg.Bind = fmt.Sprintf("node%d", i), fmt.Sprintf("10.0.0.%d:7946", i+1)
		cfg.Join, cfg.GossipNetwork, cfg.Logger = []string{"10.0.0.1:7946"}, gossip, slog.New(&logLines{})
		for r := range rails {
			f := fault.Wrap(tcp.New(tcp.Options{}), fault.Options{})
			handles[i] = append(handles[i], f)
			cfg.Rails = append(cfg.Rails, Rail{Name: fmt.Sprintf("rail%d", r), Transport: f,
				Device: fmt.Sprintf("127.0.0.%d", r+1)})
		}
		node, err := Start(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
			defer cancel()
			_ = node.Close(ctx) // the others may have gone before
		})
		forming.Go(func() {
			var err error
			if comms[i], err = node.Communicator(t.Context(), "train", n); err != nil {
				t.Error(err)
			}
		})
	}
	forming.Wait()
	if t.Failed() {
		t.FailNow()
	}
	return comms, handles
}

// Both directions at once, all sizes, receives before and after their messages, while a rail is
// cut and comes back.
func TestThousandsOfMessagesBothWaysOverSocketsWhileARailIsCut(t *testing.T) {
	const n, messages = 3, 700
	comms, rails := onLoopback(t, n, 2)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	size := func(k int) int { return []int{1, 500, 20_000, 3, 100_000}[k%5] }
	var ranks sync.WaitGroup
	for i := range n {
		ranks.Go(func() {
			rng := rand.New(rand.NewPCG(1, uint64(i)))
			var all []*Transfer
			start := func(x *Transfer, err error) {
				if err != nil {
					t.Error(err)
					return
				}
				all = append(all, x)
			}
			bufs := make([][]int32, 0, n*messages)
			sends := func(peer int) {
				for k := range messages {
					start(StartSend(ctx, comms[i], letter(i, k, size(k)), peer, k%2))
				}
			}
			recvs := func(peer int) {
				for k := range messages {
					bufs = append(bufs, make([]int32, size(k)))
					start(StartRecv(ctx, comms[i], bufs[len(bufs)-1], peer, k%2))
				}
			}
			for peer := range n {
				if rng.IntN(2) == 0 {
					sends(peer)
					recvs(peer)
				} else {
					recvs(peer)
					sends(peer)
				}
				if i == 0 {
					rails[peer][1].Cut()
					defer rails[peer][1].Heal()
				}
			}
			if err := waitAll(ctx, all); err != nil {
				t.Errorf("rank %d: %v", i, err)
				return
			}
			for j, buf := range bufs {
				peer, k := j/messages, j%messages
				if err := checkLetter(buf, Status{peer, k % 2, size(k)}, peer, k%2, k, size(k)); err != nil {
					t.Errorf("rank %d: %v", i, err)
					return
				}
			}
		})
	}
	ranks.Wait()
}
