package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/polyrail/polyrail"
	"github.com/polyrail/polyrail/cmd/internal/nodeflags"
	"github.com/polyrail/polyrail/cmd/internal/settings"
	"github.com/polyrail/polyrail/cmd/node/internal/measure"
	"github.com/polyrail/polyrail/collective/op"
)

const tuneLong = `tune measures how the rails best share operations of each size, and keeps that in the file
of --tuning. Programs that are given the file (--tuning, Config.TuningFile) and run as many
ranks over rails of the same names begin with those shares: they need not probe the rails,
nor learn while they work.

Start it once on each host with the same flags but its own --name, --bind and devices, when
the network is as it will be. Rank 0 writes the file, on the host whose --name is first in
the alphabet; so it may be given to that one alone. For each size all ranks run allreduces
until the shares have come to rest, or for --max-time; the time that this takes is what the
rails take for some hundred operations of each size. What is not at rest by then is kept
too, and goes on changing in use.

The file is written after each size: what was measured before an interruption stays. It holds an
entry for each set of rails and number of ranks; others than this one's are left alone.

--local K starts K processes on this host's loopback instead, to see how it works.`

const tuneExample = `  node tune --local 2 --tuning tuning.yaml --max-time 1s
  node bench --local 2 --tuning tuning.yaml --explain

  # On two hosts:
  node tune --tuning t.yaml --ranks 2 --bind 10.0.0.1:7946 --rail r=tcp:auto
  node tune --tuning t.yaml --ranks 2 --bind 10.0.0.2:7946 --join 10.0.0.1:7946 --rail r=tcp:auto`

const (
	smallestTuned, largestTuned = 8, 64 << 20

	tuneBatch   = 10                   // operations between two looks at the balancer: a window of it
	tuneSpan    = 5 * time.Millisecond // and so many more that a look costs little
	tuneWindows = 2                    // that are measured even of what the file holds already
)

type tuneFlags struct {
	common
	ranks   int
	sizes   []int
	maxTime time.Duration
	local   localFlags
}

func newTune() *cobra.Command {
	f := tuneFlags{maxTime: 10 * time.Second}
	for size := smallestTuned; size <= largestTuned; size *= 2 {
		f.sizes = append(f.sizes, size)
	}
	cfg := polyrail.DefaultConfig()
	cmd := &cobra.Command{
		Use:     "tune",
		Short:   "Measure how rails best share operations, and keep it in a file",
		Long:    tuneLong,
		Example: tuneExample,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.validate(cmd.Flags(), &cfg); err != nil {
				return err
			}
			if f.local.size.processes > 0 {
				f.local.rails = true
				return f.local.run(cmd, cfg)
			}
			cfg.Logger, cfg.Nodes = f.logger(cmd), expected(cfg.Nodes, f.ranks)
			return f.run(cmd.Context(), cfg, cmd.OutOrStdout())
		},
	}
	fs := cmd.Flags()
	fs.IntVar(&f.ranks, "ranks", 0, "ranks of the communicator: how many processes take part")
	settings.SizesVar(fs, &f.sizes, "sizes", "buffer sizes in bytes; KiB or k, MiB or M, GiB or G")
	fs.Lookup("sizes").DefValue = fmt.Sprintf("%s to %s, each twice the one before",
		settings.FormatSize(smallestTuned), settings.FormatSize(largestTuned))
	fs.DurationVar(&f.maxTime, "max-time", f.maxTime, "how long each size is measured at most, until its shares come to rest")
	f.local.register(fs, "tune for them")
	nodeflags.Register(fs, &cfg)
	f.common.register(fs, slog.LevelWarn)
	return cmd
}

// validate reports every fault that the flags' own parsers cannot see.
func (f *tuneFlags) validate(fs *pflag.FlagSet, cfg *polyrail.Config) error {
	faults := f.local.faults(fs, f.ranks)
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	if cfg.TuningFile == "" && !fs.Changed("join") {
		fault("--tuning must name the file (the process that becomes rank 0 writes it)")
	}
	if f.ranks == 1 || f.local.size.processes == 1 {
		fault("--ranks 1: there is nothing to divide")
	}
	if f.local.size.processes > 0 && f.local.size.rails == 1 && !fs.Changed("rail") {
		fault("--local %v: one rail, and nothing to divide", f.local.size)
	}
	if cfg.Balance != polyrail.BalanceMeasured {
		fault("--balance %v: tune measures", cfg.Balance)
	}
	for _, r := range cfg.Rails {
		if r.Weight != 0 {
			fault("--rail: %q has a weight, and nothing would be measured", r.Name)
		}
	}
	if len(f.sizes) == 0 {
		fault("--sizes is empty")
	}
	for _, size := range f.sizes {
		if size < 4 || size%4 != 0 {
			fault("--sizes: %d bytes are not a whole number of float32 elements", size)
		}
		if err := fitsMemory(size, f.local.size.processes); err != nil {
			faults = append(faults, err)
		}
	}
	if f.maxTime <= 0 {
		fault("--max-time %v must be positive", f.maxTime)
	}
	if len(faults) == 0 {
		return nil
	}
	return &usageError{errors.Join(faults...)}
}

// run is one process of the measurement.
func (f *tuneFlags) run(ctx context.Context, cfg polyrail.Config, stdout io.Writer) error {
	node, err := startNode(ctx, cfg)
	if err != nil {
		return err
	}
	defer leave(ctx, node, cfg.Logger)
	if len(node.Rails()) < 2 {
		return usagef("--rail: there is one rail, and nothing to divide")
	}
	c, err := node.Communicator(ctx, "tune", f.ranks)
	if err != nil {
		return err
	}
	t := tuning{group: &group{Communicator: c, node: node, operation: &chosen("allreduce")[0]}, maxTime: f.maxTime}
	if c.Rank() == 0 {
		if cfg.TuningFile == "" {
			return usagef("--tuning: this process is rank 0 and must have it")
		}
		if err := c.SaveTuning(ctx); err != nil { // better now than after minutes
			return err
		}
		t.progress = newProgress(stdout, f.sizes, f.ranks, node)
	}
	for _, size := range f.sizes {
		if err := t.size(ctx, size); err != nil {
			return fmt.Errorf("%s: %w", settings.FormatSize(size), err)
		}
	}
	if c.Rank() == 0 {
		t.progress.end()
		if err := explainTo(ctx, stdout, c, node); err != nil {
			return err
		}
	}
	if err := c.Close(ctx); err != nil || c.Rank() != 0 {
		return err
	}
	if !t.measured {
		return fmt.Errorf("nothing was measured that %s could keep: --max-time %v is too short for a window", cfg.TuningFile, f.maxTime)
	}
	fmt.Fprintf(stdout, "# Written to %s for %d ranks on these rails.\n", cfg.TuningFile, f.ranks)
	return nil
}

// tuning is the measurement, as one rank goes through it.
type tuning struct {
	*group
	maxTime  time.Duration
	progress progress // rank 0's
	measured bool     // something was, on rank 0
}

// size runs operations of one size until rank 0 has seen enough.
func (t *tuning) size(ctx context.Context, bytes int) error {
	t.setting = setting{kind: t.operation.kind, dtype: op.F32, reduce: polyrail.Sum, n: t.Size(), bytes: bytes}
	src, dst := make([]byte, bytes), make([]byte, bytes)
	if t.Rank() == 0 {
		t.progress.begin(bytes)
	}
	first := -1
	next := func(done int, took time.Duration) (int, error) {
		c, err := t.look(ctx, bytes)
		if err != nil {
			return 0, err
		}
		if first < 0 {
			first = c.Sets
		}
		if took < t.maxTime && !(c.Settled && c.Sets >= first+tuneWindows) {
			return batch(done, took), nil
		}
		t.measured = t.measured || c.Sets > 0
		t.progress.done(sized{bytes, done, took, c, t.shares(bytes)})
		return 0, t.SaveTuning(ctx)
	}
	return measure.Loop(ctx, t, next, func(ctx context.Context, times int) error {
		for range times {
			if err := t.Operate(ctx, dst, src); err != nil {
				return err
			}
		}
		return nil
	})
}

// look is what the balancer knows of a size; nothing, and it is zero.
func (t *tuning) look(ctx context.Context, bytes int) (polyrail.ClassReport, error) {
	report, err := t.Balance(ctx)
	if err != nil {
		return polyrail.ClassReport{}, err
	}
	for _, c := range report.Classes {
		if most := c.Class.MaxBytes(); int64(bytes) <= most && int64(bytes) > most/2 {
			return c, nil
		}
	}
	return polyrail.ClassReport{}, nil
}

// shares are what the table in force gives the rails.
func (t *tuning) shares(bytes int) []float64 {
	table := t.Table()
	return parts(table.Lookup(int64(bytes)).Weights)
}

// batch is how many operations come next: a window of the balancer's, and tuneSpan at least.
func batch(done int, elapsed time.Duration) int {
	if done == 0 || elapsed <= 0 {
		return tuneBatch
	}
	each := max(elapsed/time.Duration(done), 1)
	return min(max(tuneBatch, int(tuneSpan/each)), measure.MaxBatch)
}
