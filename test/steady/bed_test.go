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
)

var long = flag.Bool("long", false, "the full numbers of operations, communicators and seconds")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// ranks is how many nodes there are in this process. What is measured is the process: all of them.
const ranks = 2

// loopback runs the nodes on two rails of this host.
func loopback(t *testing.T) []*polyrail.Node {
	t.Helper()
	return start(t, func(cfg *polyrail.Config) {
		for r := range 2 {
			cfg.Rails = append(cfg.Rails, polyrail.Rail{
				Name: fmt.Sprintf("rail%d", r), Protocol: "tcp", Device: fmt.Sprintf("127.0.0.%d", r+1)})
		}
	})
}

// start runs the nodes on the network that adapt gives them, and closes them at the end of the test.
func start(t *testing.T, adapt func(*polyrail.Config)) []*polyrail.Node {
	t.Helper()
	nodes := make([]*polyrail.Node, ranks)
	for i := range nodes {
		cfg := polyrail.DefaultConfig()
		cfg.Balance = polyrail.BalanceStatic // what is tested relies on equal shares
		cfg.Name, cfg.Logger = fmt.Sprintf("node%d", i), slog.New(slog.DiscardHandler)
		adapt(&cfg)
		if i > 0 {
			cfg.Join = []string{nodes[0].GossipAddr()}
		}
		var err error
		if nodes[i], err = polyrail.Start(t.Context(), cfg); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		var closing sync.WaitGroup
		for _, node := range nodes {
			closing.Go(func() {
				if err := node.Close(ctx); err != nil {
					t.Errorf("%s: %v", node.Name(), err)
				}
			})
		}
		closing.Wait()
	})
	return nodes
}

// form makes a communicator of all nodes.
func form(t *testing.T, nodes []*polyrail.Node, name string) []*polyrail.Communicator {
	t.Helper()
	comms := make([]*polyrail.Communicator, len(nodes))
	each(t, func(i int) (err error) {
		comms[i], err = nodes[i].Communicator(t.Context(), name, len(nodes))
		return err
	})
	return comms
}

// each runs f for every rank at once and fails the test with their errors.
func each(t *testing.T, f func(rank int) error) {
	t.Helper()
	var running sync.WaitGroup
	for i := range ranks {
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
