package faults_test

import (
	"context"
	"testing"

	"github.com/polyrail/polyrail"
	"github.com/polyrail/polyrail/railactors/transport"
	"github.com/polyrail/polyrail/railactors/transport/fault"
	"github.com/polyrail/polyrail/test/bubble"
	"github.com/polyrail/polyrail/test/faults"
	"github.com/polyrail/polyrail/test/testbed"
)

// These are to be copied: they use what programs outside this module can.

func TestAScenarioOfYourOwn(t *testing.T) {
	s, err := faults.Parse("nodes 3\nat 50ms silence node1 rail0\nat 1s kill node2\nexpect lost node2")
	if err != nil {
		t.Fatal(err)
	}
	bubble.Nodes(t, func(t *testing.T) {
		report, err := faults.Run(t.Context(), s, faults.Options{})
		if err != nil {
			t.Fatal(err)
		}
		for _, step := range report.Unfelt() {
			t.Errorf("nobody felt %v", step)
		}
	})
}

// total is the program that is tested: it adds up what the replicas have.
func total(ctx context.Context, c *polyrail.Communicator, mine int64) (int64, error) {
	sum := []int64{mine}
	err := polyrail.AllReduce(ctx, c, sum, polyrail.Sum)
	return sum[0], err
}

func TestAProgramOfYourOwn(t *testing.T) {
	bubble.Nodes(t, func(t *testing.T) {
		var rails [3][2]*fault.Transport
		replicas, err := testbed.Start(t.Context(), testbed.Options{Nodes: 3, Rails: 2,
			Wrap: func(node, rail int, t transport.Transport) transport.Transport {
				rails[node][rail] = fault.Wrap(t, fault.Options{})
				return rails[node][rail]
			}})
		if err != nil {
			t.Fatal(err)
		}
		defer replicas.Close(context.Background())
		comms, err := replicas.Form(t.Context(), "totals")
		if err != nil {
			t.Fatal(err)
		}
		totals := func() error {
			return replicas.Each(func(i int) error {
				sum, err := total(t.Context(), comms[i], int64(i+1))
				if err == nil && sum != 6 {
					t.Errorf("replica %d has %d, want 6", i, sum)
				}
				return err
			})
		}
		rails[1][0].Cut()
		if err := totals(); err != nil {
			t.Error("with a rail cut:", err)
		}
		replicas.Kill(2)
		if err := totals(); err == nil {
			t.Error("nobody missed replica 2")
		}
	})
}
