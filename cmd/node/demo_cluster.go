package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/polyrail/polyrail"
	"github.com/polyrail/polyrail/cmd/node/internal/measure"
	"github.com/polyrail/polyrail/cmd/node/internal/osu"
	"github.com/polyrail/polyrail/cmd/node/internal/pattern"
	"github.com/polyrail/polyrail/collective/op"
	"github.com/polyrail/polyrail/railactors/transport"
	"github.com/polyrail/polyrail/railactors/transport/fault"
	"github.com/polyrail/polyrail/railactors/transport/secure/keys"
	"github.com/polyrail/polyrail/test/testbed"
)

// demoCluster is a cluster in one process: a node per rank, and two communicators over all of them.
type demoCluster struct {
	*testbed.Cluster
	log *slog.Logger
	all []*polyrail.Communicator // by rank; divides operations over all rails
	one []*polyrail.Communicator // by rank; uses the first rail only
}

const demoName = "demo"

// demoKeys makes keys in a directory, and returns what gives each node its own.
func demoKeys(dir string, nodes int) (func(*polyrail.Config), error) {
	a := keys.Authority{Dir: dir}
	err := a.Init(demoName)
	for i := range nodes {
		err = errors.Join(err, a.Node(testbed.NodeName(i)))
	}
	return func(cfg *polyrail.Config) {
		cfg.TLS, cfg.GossipKeys = polyrail.TLS(a.Files(cfg.Name)), a.GossipFile()
	}, err
}

// startDemo starts the nodes, with each rail limited to rate bytes/s in each direction.
func startDemo(ctx context.Context, nodes, rails, rate int, adapt func(*polyrail.Config), log *slog.Logger) (*demoCluster, error) {
	cluster, err := testbed.Start(ctx, testbed.Options{
		Nodes: nodes, Rails: rails, Over: testbed.Loopback, Gossip: testbed.Loopback,
		Balance: polyrail.BalanceMeasured, Logger: log,
		Wrap: func(_, _ int, t transport.Transport) transport.Transport {
			return fault.Wrap(t, fault.Options{Rate: int64(rate)})
		},
		Adapt: func(cfg *polyrail.Config) {
			cfg.Cluster = demoName
			adapt(cfg)
		},
	})
	return &demoCluster{Cluster: cluster, log: log}, err
}

// describe prints where each node gossips, and the rails, whose devices are the same for all.
func (c *demoCluster) describe(w io.Writer) {
	for _, n := range c.Nodes {
		fmt.Fprintf(w, "  %-8s gossip %s\n", n.Name(), n.GossipAddr())
	}
	for _, r := range c.Nodes[0].Rails() {
		fmt.Fprintf(w, "  %-8s %s on %s\n", r.Name, r.Protocol, r.Chosen)
	}
}

// form makes both communicators on all nodes.
func (c *demoCluster) form(ctx context.Context) (err error) {
	if c.all, err = c.Form(ctx, "demo"); err != nil {
		return err
	}
	c.one = make([]*polyrail.Communicator, len(c.all))
	err = c.Each(func(i int) (err error) {
		c.one[i], err = c.all[i].Dup(ctx)
		return err
	})
	if err != nil {
		return err
	}
	if err := c.one[0].SetTable(ctx, demoTable(len(c.Nodes[0].Rails()))); err != nil {
		return err
	}
	return c.settle(ctx)
}

// settle runs a few operations: a new table is in force from an operation that all ranks have
// yet to reach, and first calls make connections.
func (c *demoCluster) settle(ctx context.Context) error {
	const operations = 8
	return c.Each(func(rank int) error {
		for range operations {
			if err := errors.Join(c.all[rank].Barrier(ctx), c.one[rank].Barrier(ctx)); err != nil {
				return err
			}
		}
		return nil
	})
}

// demoTime is how long a size is repeated at least.
const demoTime = 300 * time.Millisecond

// time runs an operation of size bytes of float32 on comms and checks every element on every rank.
func (c *demoCluster) time(ctx context.Context, comms []*polyrail.Communicator, o *operation, size int) (osu.Result, error) {
	results := make([]osu.Result, len(comms))
	err := c.Each(func(i int) error {
		n := len(comms)
		operands, err := pattern.New(op.F32, o.combines(polyrail.Sum), n)
		if err != nil {
			return err
		}
		s := setting{kind: o.kind, dtype: op.F32, reduce: polyrail.Sum, rank: i, n: n, bytes: size}
		g := &group{Communicator: comms[i], node: c.Nodes[i], operation: o, setting: s}
		results[i], err = measure.Run(ctx, g, measure.Config{Op: o.name, Bus: o.bus, MinTime: demoTime, WarmUp: 1,
			CheckAll: true, Shape: o.shape(s), Pattern: operands})
		return err
	})
	return results[0], err
}

// close closes the communicators, on all ranks at once: each waits for the others.
func (c *demoCluster) close(ctx context.Context) error {
	return c.Each(func(rank int) error {
		return errors.Join(c.one[rank].Close(ctx), c.all[rank].Close(ctx))
	})
}

// leave ends all nodes, one after the other so that somebody hears each farewell.
func (c *demoCluster) leave(ctx context.Context) {
	for _, n := range c.Nodes {
		leave(ctx, n, c.log)
	}
}
