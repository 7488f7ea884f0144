package polyrail_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	. "github.com/polyrail/polyrail"
	"github.com/polyrail/polyrail/railactors/transport"
	"github.com/polyrail/polyrail/railactors/transport/fault"
	"github.com/polyrail/polyrail/test/testbed"
)

// onLoopback forms a communicator of nodes whose rails are real sockets, and returns the rails by
// node.
func onLoopback(t *testing.T, n, rails int) ([]*Communicator, [][]*fault.Transport) {
	t.Helper()
	handles := make([][]*fault.Transport, n)
	b := start(t, testbed.Options{Nodes: n, Rails: rails, Over: testbed.Loopback,
		Balance: BalanceMeasured,
		Wrap: func(node, _ int, inner transport.Transport) transport.Transport {
			f := fault.Wrap(inner, fault.Options{})
			handles[node] = append(handles[node], f)
			return f
		}})
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		_ = b.Close(ctx) // the communicator is left open
	})
	return b.form("train"), handles
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
