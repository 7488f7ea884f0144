// Package testbed brings up clusters of whole nodes in one process: for tests, for benchmarks and
// for node demo. Rails and gossip go over networks in memory, also in virtual time (test/bubble's
// Nodes), or over this host's loopback.
//
// It owns how nodes are named, addressed, started, ended and started again. What happens to their
// networks is package faults'.
package testbed

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	cmap "github.com/orcaman/concurrent-map"

	"github.com/polyrail/polyrail"
	"github.com/polyrail/polyrail/actors/membership"
	"github.com/polyrail/polyrail/cluster/memnet"
	"github.com/polyrail/polyrail/railactors"
	"github.com/polyrail/polyrail/railactors/supervise"
	"github.com/polyrail/polyrail/railactors/transport"
	"github.com/polyrail/polyrail/railactors/transport/mem"
	"github.com/polyrail/polyrail/railactors/transport/tcp"
)

// An actor system begins with 1,024 maps of 32 parts each, and to make them took two fifths of what a
// test's nodes took. It is said once for a process, so a library can't say it for its users.
func init() { cmap.SHARD_COUNT = 1 }

// Network is what something goes over.
type Network int

// The networks.
const (
	Memory   Network = iota
	Loopback         // sockets of this host
)

// Options say what cluster is wanted. Of what is left out the zero value holds.
type Options struct {
	Nodes, Rails int
	Over         Network // the rails
	Gossip       Network
	// Balance is static unless said otherwise: most tests rely on equal shares.
	Balance polyrail.BalanceMode
	Logger  *slog.Logger // nil: nothing is logged
	// Wrap puts something around a rail's transport; nil: it is taken as it is.
	Wrap func(node, rail int, t transport.Transport) transport.Transport
	// Adapt changes a node's configuration before its first start; nil: nothing.
	Adapt func(*polyrail.Config)
}

// Cluster is nodes in this process. Those that Kill has ended are nil.
type Cluster struct {
	Rails   *mem.Network    // nil on loopback
	Gossip  *memnet.Network // nil on loopback
	Configs []polyrail.Config
	Nodes   []*polyrail.Node
	Panics  []*supervise.Panics // make a node's actors panic

	attempts railactors.Attempts // a synctest bubble can't wait for those of the process
}

// Start starts the nodes, one after the other. Gossip's first contact is the first one. After an
// error none of them runs.
func Start(ctx context.Context, o Options) (*Cluster, error) {
	c := &Cluster{attempts: railactors.NewAttempts()}
	if o.Over == Memory {
		c.Rails = mem.NewNetwork()
	}
	if o.Gossip == Memory {
		c.Gossip = memnet.New()
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	for i := range o.Nodes {
		c.Configs = append(c.Configs, c.config(o, i))
		c.Nodes = append(c.Nodes, nil)
		c.Panics = append(c.Panics, new(supervise.Panics))
		if err := c.Restart(ctx, i); err != nil {
			closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
			defer cancel()
			return nil, errors.Join(err, c.Close(closing))
		}
	}
	return c, nil
}

// closeTimeout bounds the end of a cluster that did not come up.
const closeTimeout = 10 * time.Second

// config is the i-th node's, with those before it running.
func (c *Cluster) config(o Options, i int) polyrail.Config {
	cfg := polyrail.DefaultConfig()
	cfg.Name, cfg.Balance, cfg.Logger, cfg.Nodes = NodeName(i), o.Balance, o.Logger, o.Nodes
	cfg.Host = NodeName(i) // its networks are what is tested
	switch {
	case o.Gossip == Memory:
		cfg.Bind, cfg.Join = GossipAddr(i), []string{GossipAddr(0)}
	case i > 0:
		cfg.Join = []string{c.Nodes[0].GossipAddr()}
	}
	for k := range o.Rails {
		r := polyrail.Rail{Name: RailName(k), Protocol: "tcp", Device: Address(k)}
		if o.Over == Memory {
			r.Device, r.Transport = Device(k), c.Rails.Transport(cfg.Name)
		}
		if o.Wrap != nil {
			if r.Transport == nil {
				r.Transport = tcp.New(tcp.Options{})
			}
			r.Transport = o.Wrap(i, k, r.Transport)
		}
		if r.Transport != nil {
			r.Protocol = r.Transport.Protocol()
		}
		cfg.Rails = append(cfg.Rails, r)
	}
	if o.Adapt != nil {
		o.Adapt(&cfg)
	}
	return cfg
}

// Join starts one more node on the cluster's networks. It is the caller's to close.
func (c *Cluster) Join(ctx context.Context, cfg polyrail.Config) (*polyrail.Node, error) {
	return c.join(ctx, cfg, nil)
}

func (c *Cluster) join(ctx context.Context, cfg polyrail.Config, p *supervise.Panics) (*polyrail.Node, error) {
	hooks := membership.Hooks{Panics: p, Attempts: c.attempts}
	if c.Gossip != nil {
		hooks.Gossip = c.Gossip
	}
	return polyrail.Start(membership.WithHooks(ctx, hooks), cfg)
}

// Restart starts a node that doesn't run: under its name and address, as another process.
func (c *Cluster) Restart(ctx context.Context, i int) error {
	if c.Rails != nil {
		c.Rails.Revive(c.Configs[i].Name)
	}
	node, err := c.join(ctx, c.Configs[i], c.Panics[i])
	if err != nil {
		return fmt.Errorf("starting %s: %w", c.Configs[i].Name, err)
	}
	c.Nodes[i] = node
	return nil
}

// killTimeout bounds the end of a node that nobody hears.
const killTimeout = time.Second

// Kill ends a node in memory as the end of its process would: nobody hears a word from it.
func (c *Cluster) Kill(i int) {
	c.Rails.Kill(c.Configs[i].Name)
	c.Gossip.Partition([]string{c.Configs[i].Bind})
	ctx, cancel := context.WithTimeout(context.Background(), killTimeout)
	defer cancel()
	_ = c.Nodes[i].Close(ctx) // what it could not say is no fault
	c.Gossip.Heal()           // its address is free again
	c.Nodes[i] = nil
}

// Each runs f for every running node at once, and joins their errors.
func (c *Cluster) Each(f func(i int) error) error {
	return Each(len(c.Nodes), func(i int) error {
		if c.Nodes[i] == nil {
			return nil
		}
		if err := f(i); err != nil {
			return fmt.Errorf("%s: %w", c.Configs[i].Name, err)
		}
		return nil
	})
}

// Form makes a communicator of all nodes, which run. The result is by node.
func (c *Cluster) Form(ctx context.Context, name string) ([]*polyrail.Communicator, error) {
	comms := make([]*polyrail.Communicator, len(c.Nodes))
	err := c.Each(func(i int) (err error) {
		comms[i], err = c.Nodes[i].Communicator(ctx, name, len(c.Nodes))
		return err
	})
	return comms, err
}

// Close closes all running nodes at once.
func (c *Cluster) Close(ctx context.Context) error {
	return c.Each(func(i int) error { return c.Nodes[i].Close(ctx) })
}

// Each runs f(0) … f(n-1) at once, as processes of their own would, and joins their errors.
func Each(n int, f func(i int) error) error {
	errs := make([]error, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { errs[i] = f(i) })
	}
	all.Wait()
	return errors.Join(errs...)
}
