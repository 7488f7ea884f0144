package steady

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/polyrail/polyrail"
	"github.com/polyrail/polyrail/cluster/memnet"
	"github.com/polyrail/polyrail/railactors/transport/mem"
)

var long = flag.Bool("long", false, "the full numbers of operations, communicators and seconds")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// loopback runs n nodes on two rails of this host.
func loopback(t *testing.T, n int, adapt func(*polyrail.Config)) []*polyrail.Node {
	t.Helper()
	return start(t, n, func(_ int, cfg *polyrail.Config) {
		for r := range 2 {
			cfg.Rails = append(cfg.Rails, polyrail.Rail{
				Name: fmt.Sprintf("rail%d", r), Protocol: "tcp", Device: fmt.Sprintf("127.0.0.%d", r+1)})
		}
		adapt(cfg)
	})
}

// inMemory runs n nodes on networks in memory.
func inMemory(t *testing.T, n, rails int, adapt func(*polyrail.Config)) []*polyrail.Node {
	t.Helper()
	gossip, network := memnet.New(), mem.NewNetwork()
	return start(t, n, func(i int, cfg *polyrail.Config) {
		cfg.Bind, cfg.GossipNetwork = fmt.Sprintf("10.0.0.%d:7946", i+1), gossip
		for r := range rails {
			cfg.Rails = append(cfg.Rails, polyrail.Rail{Name: fmt.Sprintf("rail%d", r),
				Transport: network.Transport(cfg.Name), Device: fmt.Sprintf("eth%d", r)})
		}
		adapt(cfg)
	})
}

// static is for tests that rely on equal shares.
func static(cfg *polyrail.Config) { cfg.Balance = polyrail.BalanceStatic }

// start runs n nodes on the network that adapt gives each, and closes them at the end of the test.
// What is measured is the process: all of them.
func start(t *testing.T, n int, adapt func(i int, cfg *polyrail.Config)) []*polyrail.Node {
	t.Helper()
	nodes := make([]*polyrail.Node, n)
	for i := range nodes {
		cfg := polyrail.DefaultConfig()
		cfg.Name, cfg.Logger = fmt.Sprintf("node%d", i), slog.New(slog.DiscardHandler)
		adapt(i, &cfg)
		if i > 0 {
			cfg.Join = []string{nodes[0].GossipAddr()}
		}
		var err error
		if nodes[i], err = polyrail.Start(t.Context(), cfg); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute) // the host is busy
		defer cancel()
		each(t, n, func(i int) error { return nodes[i].Close(ctx) })
	})
	return nodes
}

// form makes a communicator of all nodes.
func form(t *testing.T, nodes []*polyrail.Node, name string) []*polyrail.Communicator {
	t.Helper()
	comms := make([]*polyrail.Communicator, len(nodes))
	each(t, len(nodes), func(i int) (err error) {
		comms[i], err = nodes[i].Communicator(t.Context(), name, len(nodes))
		return err
	})
	return comms
}

// each runs f for n ranks at once and fails the test with their errors.
func each(t *testing.T, n int, f func(rank int) error) {
	t.Helper()
	var running sync.WaitGroup
	for i := range n {
		running.Go(func() {
			if err := f(i); err != nil {
				t.Errorf("rank %d: %v", i, err)
			}
		})
	}
	running.Wait()
	if t.Failed() {
		t.FailNow()
	}
}
