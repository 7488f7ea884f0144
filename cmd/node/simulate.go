package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/polyrail/polyrail"
	"github.com/polyrail/polyrail/cmd/internal/settings"
	"github.com/polyrail/polyrail/cmd/node/internal/plots"
	"github.com/polyrail/polyrail/cmd/node/internal/simulate"
	"github.com/polyrail/polyrail/collective/op"
	"github.com/polyrail/polyrail/collective/schedule"
)

const simulateLong = `simulate says how long operations would take on a cluster that does not exist. It runs the
runtime's own cores for every rank, and simulates processors, rails, switches and nodes that
aggregate. No byte is moved, and no node is started.

--hosts, --sizes and --algorithms are lists: a line for each number of hosts and size, a column
for each algorithm. With --tree comes a column in which aggregation trees carry every size, and
how many times as long the first algorithm takes: of allreduce, reduce and barrier.

--rails describes the rails of every host, STARTUP:RATE each: the time from the last bit sent to
the last one received, and the rate of a link in each direction. STARTUP:RATE:BURST is a rail behind
token buckets: what passes at once after a pause, as the time that it takes at the rate.

--calibrate measures what this machine's processor takes, prints it as flags and goes by it. The
rails' figures are yours to say.

Algorithms with a step or a block for each rank (ring, bcube, chain, direct, bruck) are simulated
up to 1,024 ranks. What is marked with ~ is a line through the times of 512 and 1,024.

docs/simulate.md says what the model leaves out.`

const simulateExample = `  node simulate --hosts 2,4,8,16,32 --sizes 8,64KiB,1MiB
  node simulate --hosts 512 --rails 5us:100Gbit,5us:100Gbit --sizes 1MiB,64MiB --tree switch
  node simulate --hosts 16,1024,7861 --sizes 8 --tree switch --plot curves.svg
  node simulate --hosts 8 --rails 10us:10Gbit,10us:1Gbit --sizes 64MiB --kill 1@20ms`

// simulateFlags are what is simulated.
type simulateFlags struct {
	common
	cluster    simulate.Cluster
	hosts      []int
	rails      []simulate.Rail
	op         string
	algorithms []polyrail.Algorithm
	sizes      []int
	tree       string
	treeRails  []int // that have trees; empty: all
	node       simulate.Tree
	faults     []simulate.Fault
	notice     time.Duration
	warmup     int
	calibrate  bool
	csv        bool
	plot       string
}

const defaultNotice = 200 * time.Millisecond

func newSimulate() *cobra.Command {
	f := simulateFlags{op: "allreduce", hosts: []int{2, 4, 8, 16, 32, 64}, sizes: []int{8, 64 << 10, 1 << 20},
		algorithms: []polyrail.Algorithm{polyrail.Auto}, rails: []simulate.Rail{{Link: simulate.Link{Startup: 10 * time.Microsecond, Rate: 1.25e9}}},
		tree: "none", node: simulate.Tree{Radix: 36, Window: 16, Fragment: 64 << 10}}
	cmd := &cobra.Command{
		Use:     "simulate",
		Short:   "Say how long operations would take on a cluster that does not exist",
		Long:    simulateLong,
		Example: simulateExample,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.run(cmd.Context(), cmd.OutOrStdout(), cmd.Flags())
		},
	}
	f.registerCluster(cmd.Flags())
	fs := cmd.Flags()
	settings.Var(fs, &f.op, "op", "OPERATION", parseOperation, settings.AsIs,
		"operation: "+strings.Join(simulatedNames(), ", "))
	settings.List(fs, &f.algorithms, "algorithms", "NAME,...", ",", op.ParseAlgorithm, polyrail.Algorithm.String, "a column for each; auto: by the fixed rule")
	settings.SizesVar(fs, &f.sizes, "sizes", "sizes in bytes of a rank's larger buffer; KiB or k, MiB or M, GiB or G")
	fs.IntVar(&f.warmup, "warmup", 0, "operations before the one that counts, each with a barrier after it: token buckets aren't full then")
	fs.BoolVar(&f.calibrate, "calibrate", false, "measure what this machine's processor takes, and go by it")
	fs.BoolVar(&f.csv, "csv", false, "print CSV")
	fs.StringVar(&f.plot, "plot", "", "draw time against hosts, or against sizes where there is one number of hosts, to `FILE`; svg, png or pdf")
	f.common.register(fs, 0)
	return cmd
}

// registerCluster defines what there is.
func (f *simulateFlags) registerCluster(fs *pflag.FlagSet) {
	c := &f.cluster
	f.cluster = simulate.Cluster{PerHost: 1, Local: simulate.Link{Startup: 2 * time.Microsecond, Rate: 5e9},
		Switch: 300 * time.Nanosecond, Ranks: simulate.Processor{Begin: 2 * time.Microsecond, Frame: 2 * time.Microsecond, Copy: 5e9, Fold: 8e9}}
	settings.List(fs, &f.hosts, "hosts", "N,...", ",", strconv.Atoi, strconv.Itoa, "numbers of hosts")
	fs.IntVar(&c.PerHost, "per-host", c.PerHost, "ranks of a host; neighbours in rank share one")
	settings.List(fs, &f.rails, "rails", "STARTUP:RATE[:BURST],...", ",", parseSimRail, formatSimRail, "rails of a host, like 5us:100Gbit")
	settings.Var(fs, &c.Local, "local-link", "STARTUP:RATE", parseSimLink, formatSimLink, "between ranks of a host")
	fs.IntVar(&c.HostsPerLeaf, "hosts-per-leaf", 0, "hosts below one switch; more than one switch has another level above (0: all)")
	fs.DurationVar(&c.Switch, "switch", c.Switch, "what a switch takes")
	fs.DurationVar(&c.Ranks.Begin, "begin", c.Ranks.Begin, "processor time to begin an operation")
	fs.DurationVar(&c.Ranks.Frame, "frame", c.Ranks.Frame, "processor time to send or to receive a frame")
	settings.Var(fs, &c.Ranks.Copy, "copy", "RATE", parseRateBytes, formatRateBytes, "rate at which a processor copies to and from sockets")
	settings.Var(fs, &c.Ranks.Fold, "fold", "RATE", parseRateBytes, formatRateBytes, "rate at which a processor adds")
	fs.IntVar(&c.Shared, "shared", 0, "processors that all ranks share, as on a test bed; 0: each has its own")
	settings.Var(fs, &f.tree, "tree", "WHERE", parseTreeKind, settings.AsIs, "aggregation trees: none; switch: at switches, at the rate of their ports; host: by processes like the ranks")
	settings.List(fs, &f.treeRails, "tree-rails", "RAIL,...", ",", strconv.Atoi, strconv.Itoa, "rails that have trees, by number from 0 (all)")
	fs.IntVar(&f.node.Radix, "tree-radix", f.node.Radix, "most children of an aggregation node; 0: any number")
	settings.SizeVar(fs, &f.node.Fragment, "tree-fragment", "what an aggregation node adds at a time")
	settings.List(fs, &f.faults, "kill", "RAIL@TIME,...", ",", parseFault, formatFault, "rails that die, by number from 0, and when")
	fs.DurationVar(&f.notice, "notice", defaultNotice, "how long it takes to notice that")
}

// simulated reports whether the schedule alone says what each rank sends.
func (o operation) simulated() bool {
	scheduled := slices.Contains(schedule.Algorithms(o.kind), schedule.Choose(o.kind, 8, 4, nil))
	return scheduled && !o.uneven && o.kind != op.KindAllToAllV
}

func simulatedNames() (names []string) {
	for _, o := range operations {
		if o.simulated() {
			names = append(names, o.name)
		}
	}
	return names
}

func (f *simulateFlags) run(ctx context.Context, stdout io.Writer, fs *pflag.FlagSet) error {
	if f.op == everyOperation {
		return usagef("--op %s: simulate takes one operation", f.op)
	}
	o := chosen(f.op)[0]
	if !o.simulated() {
		return usagef("--op %s: its parts are the callers' to say; it can't be simulated", f.op)
	}
	if f.tree != "none" && !simulate.OverTrees(o.kind) {
		return usagef("--tree %s: only allreduce, reduce and barrier are simulated over trees, not %s", f.tree, f.op)
	}
	if o.kind.Empty() {
		f.sizes = []int{0}
	}
	t := &simTable{flags: f, kind: o.kind}
	if err := t.validate(); err != nil {
		return err
	}
	if f.calibrate {
		if err := f.measureProcessor(ctx, stdout, fs); err != nil {
			return err
		}
	}
	for _, hosts := range f.hosts {
		for _, size := range f.sizes {
			if err := t.add(ctx, hosts, size); err != nil {
				return err
			}
		}
	}
	if f.plot != "" {
		if err := t.curves().Draw(f.plot); err != nil {
			return fmt.Errorf("--plot %s: %w", f.plot, err)
		}
	}
	if f.csv {
		return t.csv(stdout)
	}
	return t.print(stdout)
}

// validate reports what the flags' own parsers cannot see, before anything is simulated.
func (t *simTable) validate() error {
	f := t.flags
	faults := f.validateHosts()
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	if len(f.sizes) == 0 {
		fault("--sizes is empty")
	}
	if len(f.algorithms) == 0 {
		fault("--algorithms is empty")
	}
	for _, size := range f.sizes {
		if size%simulatedType.Size() != 0 {
			fault("--sizes: %d bytes are not a whole number of %v elements", size, simulatedType)
		}
		if err := simulate.CheckBytes(1, size); err != nil {
			fault("--sizes: %w", err)
		}
	}
	if f.node.Fragment%simulatedType.Size() != 0 {
		fault("--tree-fragment: %d bytes are not a whole number of %v elements", f.node.Fragment, simulatedType)
	}
	if f.notice != defaultNotice && len(f.faults) == 0 {
		fault("--notice: nothing is to be noticed without --kill")
	}
	if len(f.treeRails) > 0 && f.tree == "none" {
		fault("--tree-rails: there are no trees without --tree")
	}
	for _, rail := range f.treeRails {
		if rail < 0 || rail >= len(f.rails) {
			fault("--tree-rails %d: there are rails 0 to %d", rail, len(f.rails)-1)
		}
	}
	if f.plot != "" {
		if err := plots.CheckFile(f.plot); err != nil {
			fault("--plot %s: %w", f.plot, err)
		}
	}
	if len(faults) == 0 {
		c := t.cluster(f.hosts[0], f.tree != "none") // the hosts are all that differs
		if err := c.Check(); err != nil {
			faults = append(faults, err)
		}
	}
	if len(faults) == 0 {
		faults = t.validateTotals()
	}
	if len(faults) == 0 {
		return nil
	}
	return &usageError{errors.Join(faults...)}
}

// simulatedType is the element type, as that of bench where nothing is said.
const simulatedType = op.F32

// validateHosts says how many hosts and ranks there can be.
func (f *simulateFlags) validateHosts() (faults []error) {
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	if len(f.hosts) == 0 {
		fault("--hosts is empty")
	}
	if f.cluster.PerHost < 1 || f.cluster.PerHost > schedule.MaxRanks {
		fault("--per-host %d is outside 1…%d", f.cluster.PerHost, schedule.MaxRanks)
	}
	for _, hosts := range f.hosts {
		switch {
		case hosts < 1 || hosts > schedule.MaxRanks:
			fault("--hosts %d is outside 1…%d", hosts, schedule.MaxRanks)
		case len(faults) == 0 && f.cluster.PerHost > schedule.MaxRanks/hosts:
			fault("--hosts %d, --per-host %d: there can be %d ranks", hosts, f.cluster.PerHost, schedule.MaxRanks)
		}
	}
	return faults
}

// validateTotals says how much all ranks that are simulated may have together.
func (t *simTable) validateTotals() (faults []error) {
	f := t.flags
	for _, hosts := range f.hosts {
		for _, size := range f.sizes {
			most := 0
			for _, a := range f.algorithms {
				n, a := t.simulated(hosts, size, a)
				if most = max(most, n); n < hosts && n < leastLine {
					return []error{fmt.Errorf("--hosts %d, --per-host %d: %v is simulated up to %d ranks, and for more of them there can be %d on a host",
						hosts, f.cluster.PerHost, a, mostSteps, mostSteps/leastLine)}
				}
			}
			if f.tree != "none" {
				most = hosts
			}
			if err := simulate.CheckBytes(most*f.cluster.PerHost, t.bytes(most, size)); err != nil {
				return []error{fmt.Errorf("--hosts %d, --sizes: %w", hosts, err)} // larger ones would be alike
			}
		}
	}
	return nil
}

// bytes is what the ranks of so many hosts have of an operation of a size, as bench does: parts are
// whole elements.
func (t *simTable) bytes(hosts, size int) int {
	s := setting{kind: t.kind, dtype: simulatedType, n: hosts * t.flags.cluster.PerHost, bytes: size}
	return s.shape().Bytes
}

func (t *simTable) add(ctx context.Context, hosts, size int) error {
	f := t.flags
	row := simRow{hosts: hosts, ranks: hosts * f.cluster.PerHost, size: size, bytes: t.bytes(hosts, size)}
	for _, a := range f.algorithms {
		cell, err := t.stretch(ctx, hosts, size, a)
		if err != nil {
			return wrongUse(ctx, err)
		}
		row.cells = append(row.cells, cell)
	}
	if f.tree != "none" {
		cell, err := t.simulate(ctx, hosts, size, f.algorithms[0], true)
		if err != nil {
			return wrongUse(ctx, err)
		}
		row.cells = append(row.cells, cell)
	}
	t.rows = append(t.rows, row)
	return nil
}

// wrongUse is an error of a simulation: the flags describe what can't be, or ctx has ended.
func wrongUse(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return err
	}
	return &usageError{err}
}

// mostSteps is the largest number of ranks of which algorithms are simulated that have a step for
// each of them.
const mostSteps = 1024

// leastLine is the larger number of hosts that a line goes through, at least. The smaller one is half
// of it: two hosts, as one alone uses no rail.
const leastLine = 4

// simulated is how many hosts an algorithm is simulated on: all of them, or as many as have
// mostSteps ranks. It is the algorithm itself, too, where that was to be chosen.
func (t *simTable) simulated(hosts, size int, a op.Algorithm) (int, op.Algorithm) {
	c := t.cluster(hosts, false)
	if a == op.Auto {
		a = schedule.Choose(t.kind, int64(t.bytes(hosts, size)), hosts*c.PerHost, c.Places())
	}
	if hosts*c.PerHost <= mostSteps || a == op.Tree || a == op.Leaders || a == op.RecursiveDoubling {
		return hosts, a
	}
	return mostSteps / c.PerHost, a
}

// stretch simulates, or draws a line through two smaller numbers of hosts.
func (t *simTable) stretch(ctx context.Context, hosts, size int, a op.Algorithm) (simCell, error) {
	most, a := t.simulated(hosts, size, a)
	if most == hosts {
		return t.simulate(ctx, hosts, size, a, false)
	}
	half, err := t.simulate(ctx, most/2, size, a, false)
	if err != nil {
		return simCell{}, err
	}
	full, err := t.simulate(ctx, most, size, a, false)
	slope := float64(full.took-half.took) / float64(most-most/2)
	return simCell{took: full.took + time.Duration(slope*float64(hosts-most)), stretched: true, simulation: full.simulation}, err
}

func (t *simTable) simulate(ctx context.Context, hosts, size int, a op.Algorithm, withTree bool) (simCell, error) {
	call := simulate.Call{Kind: t.kind, Algorithm: a, Bytes: t.bytes(hosts, size), Warmup: t.flags.warmup}
	r, err := simulate.Run(ctx, t.cluster(hosts, withTree), call)
	return simCell{took: r.Time, simulation: r}, err
}

// cluster is what the flags describe, with so many hosts.
func (t *simTable) cluster(hosts int, withTree bool) *simulate.Cluster {
	f := t.flags
	c := f.cluster
	c.Hosts, c.Rails, c.Faults = hosts, slices.Clone(f.rails), nil
	for _, fault := range f.faults {
		fault.Notice = f.notice
		c.Faults = append(c.Faults, fault)
	}
	if !withTree {
		return &c
	}
	for i := range c.Rails {
		if len(f.treeRails) > 0 && !slices.Contains(f.treeRails, i) {
			continue
		}
		node := f.node
		node.Node = c.Ranks
		if f.tree == "switch" {
			node.Ports, node.Node = true, simulate.Processor{Copy: 1e12, Fold: 1e12}
		}
		c.Rails[i].Tree = &node
	}
	return &c
}

// measureProcessor is --calibrate.
func (f *simulateFlags) measureProcessor(ctx context.Context, stdout io.Writer, fs *pflag.FlagSet) error {
	p, startup, err := simulate.Calibrate(ctx, calibrationTime)
	if err != nil {
		return err
	}
	fmt.Fprintf(stdout, "# this machine: --begin %v --frame %v --copy %s --fold %s; loopback starts up in %v\n",
		p.Begin, p.Frame, formatRateBytes(p.Copy), formatRateBytes(p.Fold), startup)
	for name, set := range map[string]func(){"begin": func() { f.cluster.Ranks.Begin = p.Begin }, "frame": func() { f.cluster.Ranks.Frame = p.Frame },
		"copy": func() { f.cluster.Ranks.Copy = p.Copy }, "fold": func() { f.cluster.Ranks.Fold = p.Fold }} {
		if !fs.Changed(name) {
			set()
		}
	}
	return nil
}

// calibrationTime is how long each of four figures is measured.
const calibrationTime = 300 * time.Millisecond
