package main

import (
	"context"
	"fmt"
	"log/slog"
	"net"

	"github.com/spf13/cobra"

	"github.com/polyrail/polyrail"
	"github.com/polyrail/polyrail/cmd/internal/nodeflags"
)

func newRun() *cobra.Command {
	var flags common
	cfg := polyrail.DefaultConfig()
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Join a cluster and stay until a signal",
		Long: `run starts a node, joins the cluster by gossip and stays a member until SIGINT,
SIGTERM or SIGHUP, then leaves it. A second signal ends the process at once.

Nodes find each other by --join, by --rendezvous or by both. With a rendezvous no node
has to be first, and addresses need not be known ahead: see docs/rendezvous.md.

What it chose for each rail, and the members it found, are logged. A configuration
file for a host with two NICs:

  name: a
  bind: 10.0.0.1:7946
  join: [10.0.0.2:7946, 10.0.0.3:7946]
  rail:
    - r0=tcp:eth1
    - r1=tcp:10.2.0.0/16,weight=2
  rank-timeout: 1s`,
		Example: `  node run --name a --bind 10.0.0.1:7946 --rail r0=tcp:eth1 --rail r1=tcp:10.2.0.0/16
  node run --bind 10.0.0.2:7946 --join 10.0.0.1:7946 --rail r0=tcp:eth1 --rail r1=tcp:10.2.0.0/16
  node run --name c --bind 10.0.0.3:0 --rendezvous redis://10.0.0.9:6379/0 --rail r0=tcp:eth1
  node run --name d --bind 10.0.0.4:0 --rendezvous dir:///shared/polyrail --rail r0=tcp:eth1
  node run --name a --bind 10.0.0.1:7946 --rail r0=tcp:eth1 --gossip-key gossip.key \
    --tls-cert a.pem --tls-key a-key.pem --tls-ca ca.pem
  node run --config /etc/polyrail.yaml`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg.Logger = flags.logger(cmd)
			return run(cmd.Context(), cfg)
		},
	}
	nodeflags.Register(cmd.Flags(), &cfg)
	flags.register(cmd.Flags(), slog.LevelInfo)
	return cmd
}

// run is a member of the cluster until ctx ends.
func run(ctx context.Context, cfg polyrail.Config) error {
	node, err := startNode(ctx, cfg)
	if interrupted(ctx, err) {
		cfg.Logger.Info("told to end before the node was up", "reason", err)
		return nil
	}
	if err != nil {
		return err
	}
	<-ctx.Done()
	cfg.Logger.Info("leaving the cluster")
	leave(ctx, node, cfg.Logger)
	return nil
}

// startNode starts the node that the flags describe, and logs what it chose.
func startNode(ctx context.Context, cfg polyrail.Config) (*polyrail.Node, error) {
	if len(cfg.Rails) == 0 {
		return nil, usagef("--rail must name a network, like --rail r0=tcp:eth0, or --rail all=tcp:auto for every interface")
	}
	node, err := polyrail.Start(ctx, cfg)
	if err != nil {
		return nil, err
	}
	describe(cfg.Logger, node)
	if exposed := unsealed(cfg, node); len(exposed) > 0 {
		cfg.Logger.Warn("others than this host can reach this node without keys: see node keys --help", "where", exposed)
	}
	return node, nil
}

// unsealed lists where a node without keys listens for others than its host.
func unsealed(cfg polyrail.Config, node *polyrail.Node) (where []string) {
	if cfg.TLS != (polyrail.TLS{}) || cfg.GossipKeys != "" {
		return nil // what has none is named as plaintext
	}
	add := func(name, addr string) {
		host, _, err := net.SplitHostPort(addr)
		if ip := net.ParseIP(host); err == nil && ip != nil && !ip.IsLoopback() {
			where = append(where, name+"="+addr)
		}
	}
	add("gossip", node.GossipAddr())
	for _, r := range node.Rails() {
		add(r.Name, r.Addr)
	}
	return where
}

// describe logs what a node chose and whom it found, in one line.
func describe(log *slog.Logger, node *polyrail.Node) {
	var rails, members []string
	for _, r := range node.Rails() {
		rails = append(rails, fmt.Sprintf("%s=%s:%s", r.Name, r.Protocol, r.Chosen))
	}
	if r, ok := node.SharedMemory(); ok {
		rails = append(rails, r.Name)
	}
	for _, m := range node.Members() {
		members = append(members, m.Node)
	}
	log.Info("node is up", "node", node.Name(), "gossip", node.GossipAddr(), "rails", rails, "members", members)
}
