package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/polyrail/polyrail"
	"github.com/polyrail/polyrail/cmd/node/internal/measure"
	"github.com/polyrail/polyrail/cmd/node/internal/pattern"
	"github.com/polyrail/polyrail/collective/op"
	"github.com/polyrail/polyrail/railactors/transport"
	"github.com/polyrail/polyrail/railactors/transport/fault"
	"github.com/polyrail/polyrail/railactors/transport/tcp"
)

// demoCluster is a cluster in one process: a node per rank, and two communicators over all of them.
type demoCluster struct {
	log   *slog.Logger
	nodes []*polyrail.Node
	all   []*polyrail.Communicator // by rank; divides operations over all rails
	one   []*polyrail.Communicator // by rank; uses the first rail only
}

// start starts the nodes, one after the other joining the first, and waits until each sees all.
func (c *demoCluster) start(ctx context.Context, nodes, rails, rate int) error {
	for i := range nodes {
		cfg := polyrail.DefaultConfig()
		cfg.Name = fmt.Sprintf("node-%d", i)
		cfg.Cluster = "demo"
		cfg.Bind = "127.0.0.1:0"
		cfg.Logger = c.log
		if i > 0 {
			cfg.Join = []string{c.nodes[0].GossipAddr()}
		}
		for k := range rails {
			cfg.Rails = append(cfg.Rails, polyrail.Rail{Name: railName(k), Protocol: "tcp", Device: loopback(k), Transport: limited(rate)})
		}
		node, err := polyrail.Start(ctx, cfg)
		if err != nil {
			return fmt.Errorf("starting %s: %w", cfg.Name, err)
		}
		c.nodes = append(c.nodes, node)
	}
	return nil
}

// limited is TCP at no more than rate bytes/s in each direction.
func limited(rate int) transport.Transport {
	return fault.Wrap(tcp.New(tcp.Options{}), fault.Options{Rate: int64(rate)})
}

// describe prints where each node gossips, and the rails, whose devices are the same for all.
func (c *demoCluster) describe(w io.Writer) {
	for _, n := range c.nodes {
		fmt.Fprintf(w, "  %-8s gossip %s\n", n.Name(), n.GossipAddr())
	}
	for _, r := range c.nodes[0].Rails() {
		fmt.Fprintf(w, "  %-8s %s on %s\n", r.Name, r.Protocol, r.Chosen)
	}
}

// form makes both communicators on all nodes.
func (c *demoCluster) form(ctx context.Context) error {
	c.all = make([]*polyrail.Communicator, len(c.nodes))
	c.one = make([]*polyrail.Communicator, len(c.nodes))
	err := onEach(len(c.nodes), func(i int) error {
		all, err := c.nodes[i].Communicator(ctx, "demo", len(c.nodes))
		if err != nil {
			return err
		}
		one, err := all.Dup(ctx)
		if err != nil {
			return err
		}
		c.all[all.Rank()], c.one[one.Rank()] = all, one
		return nil
	})
	if err != nil {
		return err
	}
	if err := c.one[0].SetTable(ctx, demoTable(len(c.nodes[0].Rails()))); err != nil {
		return err
	}
	return c.settle(ctx)
}

// settle runs a few operations: a new table is in force from an operation that all ranks have
// yet to reach, and first calls make connections.
func (c *demoCluster) settle(ctx context.Context) error {
	const operations = 8
	return onEach(len(c.nodes), func(rank int) error {
		for range operations {
			if err := errors.Join(c.all[rank].Barrier(ctx), c.one[rank].Barrier(ctx)); err != nil {
				return err
			}
		}
		return nil
	})
}

// demoTiming is what one communicator did with one size.
type demoTiming struct {
	median  time.Duration
	sent    []uint64 // bytes by rail, of all nodes
	checked int64    // elements, of all ranks and repetitions
	wrong   int64
}

// A size is repeated until it has taken demoTime, but a few times at least.
const (
	demoTime       = 300 * time.Millisecond
	minRepetitions = 3
	maxRepetitions = 200
)

// time runs an operation of size bytes of float32 on comms and checks every element on every rank.
func (c *demoCluster) time(ctx context.Context, comms []*polyrail.Communicator, o *operation, size int) (t demoTiming, err error) {
	operands, err := pattern.New(op.F32, o.combines(polyrail.Sum), len(comms))
	if err != nil {
		return t, err
	}
	settings, shapes := make([]setting, len(comms)), make([]measure.Shape, len(comms))
	src, dst := make([][]byte, len(comms)), make([][]byte, len(comms))
	for rank := range comms {
		settings[rank] = setting{kind: o.kind, dtype: op.F32, reduce: polyrail.Sum, rank: rank, n: len(comms), bytes: size}
		shapes[rank] = o.shape(settings[rank])
		src[rank], dst[rank] = make([]byte, shapes[rank].Source), make([]byte, shapes[rank].Destination)
		operands.Fill(op.Rank(rank), src[rank])
	}
	before := c.sent()
	var times []time.Duration
	for start := time.Now(); len(times) < minRepetitions || time.Since(start) < demoTime && len(times) < maxRepetitions; {
		begin := time.Now()
		err := onEach(len(comms), func(rank int) error {
			return o.call(settings[rank], ctx, comms[rank], dst[rank], src[rank])
		})
		if err != nil {
			return t, err
		}
		times = append(times, time.Since(begin))
		for rank := range comms {
			t.wrong += int64(operands.Wrong(dst[rank], shapes[rank].Result))
			t.checked += int64(len(dst[rank]) / op.F32.Size())
			clear(dst[rank])
		}
	}
	t.sent = c.sent()
	for i := range t.sent {
		t.sent[i] -= before[i]
	}
	slices.Sort(times)
	t.median = times[len(times)/2]
	return t, nil
}

// sent is how many bytes all nodes have sent, by rail.
func (c *demoCluster) sent() []uint64 {
	sum := make([]uint64, len(c.nodes[0].Rails()))
	for _, n := range c.nodes {
		for i, r := range n.Rails() {
			sum[i] += r.BytesSent
		}
	}
	return sum
}

// close closes the communicators, on all ranks at once: each waits for the others.
func (c *demoCluster) close(ctx context.Context) error {
	return onEach(len(c.nodes), func(rank int) error {
		return errors.Join(c.one[rank].Close(ctx), c.all[rank].Close(ctx))
	})
}

// leave ends all nodes, one after the other so that somebody hears each farewell.
func (c *demoCluster) leave(ctx context.Context) {
	for _, n := range c.nodes {
		leave(ctx, n, c.log)
	}
}

// onEach runs f(0) … f(n-1) at once, as the nodes of a real cluster would, and joins their errors.
func onEach(n int, f func(i int) error) error {
	errs := make([]error, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { errs[i] = f(i) })
	}
	all.Wait()
	return errors.Join(errs...)
}
