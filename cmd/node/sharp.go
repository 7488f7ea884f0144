package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/netip"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/polyrail/polyrail"
	"github.com/polyrail/polyrail/cmd/internal/nodeflags"
	"github.com/polyrail/polyrail/cmd/internal/settings"
)

const sharpLong = `sharp shows what the nodes of a cluster aggregate for others (docs/sharp.md):

  trees   the tree of each communicator and rail: its nodes, and their children
  groups  each node's part in them: memory, and what it has folded
  quota   each node's limits, and what each job takes of them

It joins the cluster by --join or --rendezvous, asks all living nodes, and leaves. It is a member of
no communicator, and disturbs none. The nodes of other hosts answer to --bind.`

const sharpExample = `  node sharp trees --join 10.0.0.1:7946 --bind 10.0.0.7:0
  node sharp quota --join 10.0.0.1:7946 --bind 10.0.0.7:0`

// newSharp makes the command and those below it.
func newSharp() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "sharp",
		Short:   "Show aggregation trees: who aggregates for whom",
		Long:    sharpLong,
		Example: sharpExample,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	for _, c := range []struct {
		name, short string
		show        func(w io.Writer, all []polyrail.Aggregator) error
	}{
		{"trees", "The tree of each communicator and rail", showTrees},
		{"groups", "Each node's part in the trees", showGroups},
		{"quota", "Each node's limits, and what jobs take of them", showQuota},
	} {
		cmd.AddCommand(newSharpView(c.name, c.short, c.show))
	}
	return cmd
}

func newSharpView(name, short string, show func(w io.Writer, all []polyrail.Aggregator) error) *cobra.Command {
	var flags common
	cfg := polyrail.DefaultConfig()
	cfg.Name = fmt.Sprintf("sharp-%d", os.Getpid())
	timeout := 5 * time.Second
	cmd := &cobra.Command{
		Use:     name,
		Short:   short,
		Long:    short + ", as all living nodes of the cluster tell.",
		Example: "  node sharp " + name + " --join 10.0.0.1:7946 --bind 10.0.0.7:0",
		Args:    noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg.Logger = flags.logger(cmd)
			if len(cfg.Join) == 0 && cfg.Rendezvous == (polyrail.Rendezvous{}) {
				return usagef("%s needs --join or --rendezvous, to find the cluster", cmd.CommandPath())
			}
			if timeout <= 0 {
				return usagef("--timeout %v must be positive", timeout)
			}
			// A node has a rail. Nobody connects to that of one that is in no communicator.
			cfg.Rails = []polyrail.Rail{{Name: "none", Protocol: "tcp", Device: "127.0.0.1"}}
			return observe(cmd, cfg, timeout, show)
		},
	}
	fs := cmd.Flags()
	nodeflags.RegisterSeeds(fs, &cfg)
	fs.StringVar(&cfg.Name, "name", cfg.Name, "`NAME` of this command in the cluster; with keys, that of its certificate")
	fs.StringVar(&cfg.Cluster, "cluster", cfg.Cluster, "`NAME` of the cluster")
	nodeflags.RegisterKeys(fs, &cfg)
	fs.DurationVar(&timeout, "timeout", timeout, "how long to wait for the cluster, and for its nodes' answers")
	flags.register(fs, slog.LevelWarn)
	fs.SortFlags = false
	return cmd
}

// observe joins the cluster, shows what its nodes answer, and leaves. Those that don't answer are
// named, after what the others say.
func observe(cmd *cobra.Command, cfg polyrail.Config, timeout time.Duration,
	show func(w io.Writer, all []polyrail.Aggregator) error) error {
	ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
	defer cancel()
	node, err := polyrail.Start(ctx, cfg)
	if err != nil {
		return err
	}
	defer leave(cmd.Context(), node, cfg.Logger)
	all, asked := node.Aggregators(ctx)
	asked = withReach(asked, node.GossipAddr())
	others := all[:0]
	for _, a := range all {
		if a.Node != cfg.Name {
			others = append(others, a)
		}
	}
	if len(others) == 0 { // there is nothing to show, not even that there are no trees
		return cmp.Or(asked, errors.New("no other node is in the cluster"))
	}
	return errors.Join(show(cmd.OutOrStdout(), others), asked)
}

// withReach adds to an error of nodes that did not answer whether those of other hosts could.
func withReach(silent error, self string) error {
	addr, err := netip.ParseAddrPort(self)
	if silent == nil || err != nil || !addr.Addr().IsLoopback() {
		return silent
	}
	return fmt.Errorf("%w (nodes of other hosts can't answer to %s: see --bind)", silent, self)
}

// inColumns writes lines of cells that tabs end.
func inColumns(w io.Writer, write func(out io.Writer)) error {
	out := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	write(out)
	return out.Flush()
}

func showGroups(w io.Writer, all []polyrail.Aggregator) error {
	return inColumns(w, func(out io.Writer) {
		fmt.Fprintln(out, "NODE\tRAIL\tCOMMUNICATOR\tGROUP\tPARENT\tCHILDREN\tMEMORY\tFRAGMENTS\tBYTES")
		for _, a := range all {
			for _, g := range a.Groups {
				parent := g.Parent
				if parent == "" {
					parent = "-"
				}
				fmt.Fprintf(out, "%s\t%s\t%s\t%016x\t%s\t%d\t%s\t%d\t%s\n", a.Node, g.Rail, g.Communicator, g.Group,
					parent, len(g.Children), settings.FormatSize(int(g.ReservedBytes)), g.Fragments,
					settings.FormatSize(int(g.Bytes)))
			}
		}
	})
}

// treePart is a node's part in a group.
type treePart struct {
	node string
	*polyrail.TreeGroup
}

// showTrees draws each group from its root down. A node that has not answered is drawn where its
// neighbours say that it is.
func showTrees(w io.Writer, all []polyrail.Aggregator) error {
	parts := make(map[uint64][]treePart)
	var order []uint64
	for i := range all {
		for k := range all[i].Groups {
			g := &all[i].Groups[k]
			if parts[g.Group] == nil {
				order = append(order, g.Group)
			}
			parts[g.Group] = append(parts[g.Group], treePart{all[i].Node, g})
		}
	}
	for _, group := range order {
		nodes := parts[group]
		fmt.Fprintf(w, "%s over %s: group %016x\n", nodes[0].Communicator, nodes[0].Rail, group)
		drawTree(w, nodes)
	}
	if len(order) == 0 {
		fmt.Fprintln(w, "no trees at the nodes that have answered")
	}
	return nil
}

// drawTree draws a group.
func drawTree(w io.Writer, nodes []treePart) {
	above := make(map[string][]treePart) // by the node above
	answered := map[string]bool{"": true}
	for _, p := range nodes {
		above[p.Parent] = append(above[p.Parent], p)
		answered[p.node] = true
	}
	var draw func(parent, indent string)
	draw = func(parent, indent string) {
		for _, p := range above[parent] {
			if len(indent) > 2*len(nodes)+2 { // a circle is no tree
				return
			}
			fmt.Fprintf(w, "%s%s\n", indent, p.node)
			for _, c := range p.Children {
				if !slices.ContainsFunc(above[p.node], func(x treePart) bool { return c == x.asChild() }) {
					fmt.Fprintf(w, "%s  %s\n", indent, c)
				}
			}
			draw(p.node, indent+"  ")
		}
	}
	for _, parent := range slices.Sorted(maps.Keys(above)) {
		switch {
		case parent == "":
			draw(parent, "  ")
		case !answered[parent]:
			fmt.Fprintf(w, "  %s, which has not answered\n", parent)
			draw(parent, "    ")
		}
	}
}

// asChild is how the node above names this one.
func (p treePart) asChild() string { return fmt.Sprintf("aggregation node %q", p.node) }

func showQuota(w io.Writer, all []polyrail.Aggregator) error {
	limit := func(n int64) string {
		if n == 0 {
			return "-"
		}
		return settings.FormatSize(int(n))
	}
	return inColumns(w, func(out io.Writer) {
		fmt.Fprintln(out, "NODE\tRACK\tRAILS\tJOB\tGROUPS\tOF\tMEMORY\tOF")
		for _, a := range all {
			if len(a.Rails) == 0 {
				continue
			}
			type use struct {
				name   string
				groups int
				bytes  int64
			}
			var whole use
			jobs := make(map[uint64]*use)
			var order []*use
			for _, g := range a.Groups {
				whole.groups, whole.bytes = whole.groups+1, whole.bytes+g.ReservedBytes
				u := jobs[g.Job]
				if u == nil {
					u = &use{name: g.Communicator}
					jobs[g.Job], order = u, append(order, u)
				}
				u.groups, u.bytes = u.groups+1, u.bytes+g.ReservedBytes
			}
			rack := a.Rack
			if rack == "" {
				rack = "-"
			}
			fmt.Fprintf(out, "%s\t%s\t%s\tall\t%d\t%d\t%s\t%s\n", a.Node, rack, strings.Join(a.Rails, " "),
				whole.groups, a.MaxGroups, settings.FormatSize(int(whole.bytes)), limit(a.MemoryLimit))
			for _, u := range order {
				of := "-"
				if a.JobGroups > 0 {
					of = fmt.Sprint(a.JobGroups)
				}
				fmt.Fprintf(out, "\t\t\t%s\t%d\t%s\t%s\t%s\n", u.name, u.groups, of,
					settings.FormatSize(int(u.bytes)), limit(a.JobMemory))
			}
		}
	})
}
