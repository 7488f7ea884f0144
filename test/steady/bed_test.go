package steady

import (
	"context"
	"flag"
	"fmt"
	"testing"
	"time"

	"github.com/polyrail/polyrail/test/leaks"

	"github.com/polyrail/polyrail"
	"github.com/polyrail/polyrail/test/testbed"
)

var long = flag.Bool("long", false, "the full numbers of operations, communicators and seconds")

func TestMain(m *testing.M) { leaks.Main(m) }

// loopback runs n nodes on two rails of this host.
func loopback(t *testing.T, n int, adapt func(*polyrail.Config)) []*polyrail.Node {
	t.Helper()
	return start(t, testbed.Options{Nodes: n, Rails: 2, Adapt: adapt,
		Over: testbed.Loopback, Gossip: testbed.Loopback})
}

// inMemory runs n nodes on networks in memory.
func inMemory(t *testing.T, n, rails int, adapt func(*polyrail.Config)) []*polyrail.Node {
	t.Helper()
	return start(t, testbed.Options{Nodes: n, Rails: rails, Adapt: adapt})
}

// static is for tests that rely on equal shares.
func static(cfg *polyrail.Config) { cfg.Balance = polyrail.BalanceStatic }

// start runs the nodes, and closes them at the end of the test. What is measured is the process: all
// of them.
func start(t *testing.T, o testbed.Options) []*polyrail.Node {
	t.Helper()
	o.Balance = polyrail.BalanceMeasured
	c, err := testbed.Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute) // the host is busy
		defer cancel()
		if err := c.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	return c.Nodes
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
	err := testbed.Each(n, func(rank int) error {
		if err := f(rank); err != nil {
			return fmt.Errorf("rank %d: %w", rank, err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
