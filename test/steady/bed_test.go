package steady

import (
	"context"
	"flag"
	"fmt"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/polyrail/polyrail"
	"github.com/polyrail/polyrail/test/testbed"
)

var long = flag.Bool("long", false, "the full numbers of operations, communicators and seconds")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// ranks is how many nodes there are in this process. What is measured is the process: all of them.
const ranks = 2

// loopback are nodes on two rails of this host.
var loopback = testbed.Options{Nodes: ranks, Rails: 2, Over: testbed.Loopback, Gossip: testbed.Loopback}

// start runs the nodes, and closes them at the end of the test.
func start(t *testing.T, o testbed.Options) *testbed.Cluster {
	t.Helper()
	c, err := testbed.Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := c.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	return c
}

// form makes a communicator of all nodes.
func form(t *testing.T, c *testbed.Cluster, name string) []*polyrail.Communicator {
	t.Helper()
	comms, err := c.Form(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	return comms
}

// each runs f for every rank at once and fails the test with their errors.
func each(t *testing.T, f func(rank int) error) {
	t.Helper()
	err := testbed.Each(ranks, func(rank int) error {
		if err := f(rank); err != nil {
			return fmt.Errorf("rank %d: %w", rank, err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
