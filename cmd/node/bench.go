package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime/pprof"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/polyrail/polyrail"
	"github.com/polyrail/polyrail/cmd/node/internal/settings"
	"github.com/polyrail/polyrail/collective/op"
)

var benchLong = `bench measures collective operations as OSU's and NVIDIA's benchmarks do. Start it once
on each host with the same flags but its own --name, --bind and devices: the processes meet
by gossip, form the communicator "bench" of --ranks ranks, and rank 0 prints a line per size.

--op says what is measured; "all" is one table for each operation:

` + operationsHelp() + `
A size is the larger one of a rank's input and output, as nccl-tests count: of an allgather of size S
each rank contributes S/n, rounded down to whole elements, but one at least. The sizes printed are the
real ones. Where callers give lengths (names that end in v), rank r's part is in proportion to r+1 and
all have S together. A barrier has one line. --root is the rank that has, or gets, all of the data.

algbw is size / mean time. busbw = algbw * factor is what the busiest rank's links carry at
least: compare it with the sum of the rails' rates. Scans have the factor of a reduce.

One operation is in flight at a time. Before each stands a barrier that is not timed; the
times are rank 0's. cpu is the user and system time that a process spends during one
operation, mean over the ranks. The share of a rail is its part of the bytes that all ranks sent.

--warmup N runs N operations of each size before those that are measured; by default 6 up to
64KiB, 3 up to 4MiB, 1 above.

The result of the last iteration is verified on every rank, with --check that of each
iteration: each byte, and that operands are as they were. Wrong elements are counted under errors and
make all ranks exit with 1.

--profile adds, under each size's line, where rank 0's processor time went: a hundred samples a
second of it, so --min-time 5s or more gives shares that can be compared.

--explain prints in the end how rank 0's balancer divides each size, and the figures that it goes by.

--plot DIR writes there how the rails shared the work over time and how fast each one was, by
rank 0's own counters: shares.csv and rates.csv, and a picture of each.

--local K starts K processes on this host's loopback instead: nothing else is needed.`

const benchExample = `  node bench --local 4
  node bench --local 4 --rails 3 --sizes 8,64KiB,1MiB --check --json
  node bench --local 4 --op broadcast --root 2 --algorithm chain --sizes 1MiB --warmup 20
  node bench --local 3 --op all --sizes 1KiB,1MiB --min-time 200ms --check
  node bench --local 2 --rail a=tcp:127.0.0.1,weight=3 --rail b=tcp:127.0.0.2,weight=1

  node bench --local 2 --sizes 8,16MiB --min-time 5s --profile
  node bench --local 2 --rails 2 --affinity rail0=0 --affinity rail1=1

  node bench --local 2 --tuning tuning.yaml --explain --plot plots

  # On two hosts:
  node bench --name a --bind 10.0.0.1:7946 --rail r0=tcp:eth1 --rail r1=tcp:eth2 --ranks 2
  node bench --name b --bind 10.0.0.2:7946 --join 10.0.0.1:7946 --rail r0=tcp:eth1 --rail r1=tcp:eth2 --ranks 2`

// maxWarmUp bounds a number that would be a mistake.
const maxWarmUp = 1 << 20

// benchFlags are what bench measures, and how.
type benchFlags struct {
	common
	op         string
	dtype      polyrail.DType
	reduce     polyrail.Op
	algorithm  polyrail.Algorithm
	sizes      []int
	minTime    time.Duration
	warmUp     int
	root       int
	ranks      int
	check      bool
	json       bool
	explain    bool
	cpuProfile string
	local      localFlags
	plot       string
	affinity   affinity
	profile    bool
}

func newBench() *cobra.Command {
	f := benchFlags{op: "allreduce", dtype: op.F32, reduce: polyrail.Sum, algorithm: polyrail.Auto,
		sizes: []int{8, 1 << 10, 64 << 10, 1 << 20, 16 << 20}}
	cfg := polyrail.DefaultConfig()
	cmd := &cobra.Command{
		Use:     "bench",
		Short:   "Measure an operation over the rails of several processes",
		Long:    benchLong,
		Example: benchExample,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.validate(cmd.Flags()); err != nil {
				return err
			}
			if f.local.processes > 0 {
				var first []string
				if f.cpuProfile != "" {
					first = append(first, "--cpuprofile="+f.cpuProfile)
				}
				return f.local.run(cmd, first...)
			}
			if err := f.affinity.apply(cfg.Rails); err != nil {
				return err
			}
			cfg.Logger = f.logger(cmd)
			return f.run(cmd.Context(), cfg, cmd.OutOrStdout())
		},
	}
	f.register(cmd.Flags())
	registerNode(cmd.Flags(), &cfg)
	f.common.register(cmd.Flags(), slog.LevelWarn)
	return cmd
}

func (f *benchFlags) register(fs *pflag.FlagSet) {
	fs.IntVar(&f.ranks, "ranks", 0, "ranks of the communicator: how many processes take part")
	settings.Var(fs, &f.op, "op", "OPERATION", parseOperation, asIs, "operation to measure: "+strings.Join(operationNames(), ", "))
	settings.Var(fs, &f.dtype, "dtype", "TYPE", polyrail.ParseDType, polyrail.DType.String, "element type, int8 … float64, or of pairs, int32loc … float64loc")
	settings.Var(fs, &f.reduce, "reduce", "OP", polyrail.ParseOp, polyrail.Op.String, "operator: sum, prod, min, max, avg, bitand, bitor, bitxor; of pairs minloc, maxloc")
	settings.Var(fs, &f.algorithm, "algorithm", "NAME", polyrail.ParseAlgorithm, polyrail.Algorithm.String, "auto, ring, recursive-doubling, bcube, tree, chain or direct, as the operation has it")
	fs.IntVar(&f.root, "root", 0, "`RANK` that has or gets all data, of operations that have a root")
	settings.SizesVar(fs, &f.sizes, "sizes", "sizes in bytes of a rank's larger buffer; KiB or k, MiB or M, GiB or G")
	fs.IntVar(&f.warmUp, "warmup", -1, "operations of each size before those that are measured; -1: by size")
	fs.DurationVar(&f.minTime, "min-time", time.Second, "how long each size is measured at least, barriers included")
	fs.BoolVar(&f.check, "check", false, "verify every element of every iteration on every rank")
	fs.BoolVar(&f.json, "json", false, "print one JSON object per size and line")
	fs.BoolVar(&f.explain, "explain", false, "print at the end how each size was divided, and why")
	fs.StringVar(&f.cpuProfile, "cpuprofile", "", "write a CPU profile of this process to `FILE` (with --local: of the first one)")
	fs.BoolVar(&f.profile, "profile", false, "say where rank 0's processor time goes, under each size's line")
	f.affinity.register(fs)
	fs.StringVar(&f.plot, "plot", "", "write shares and rates of the rails over time to `DIR`, as CSV and as pictures")
	f.local.register(fs, "measure them")
}

// validate reports every fault that the flags' own parsers cannot see.
func (f *benchFlags) validate(fs *pflag.FlagSet) error {
	faults := f.local.faults(fs, f.ranks)
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	if len(f.sizes) == 0 {
		fault("--sizes is empty")
	}
	for _, size := range f.sizes {
		if size%f.dtype.Size() != 0 {
			fault("--sizes: %d bytes are not a whole number of %v elements", size, f.dtype)
		}
	}
	if f.profile && f.cpuProfile != "" {
		fault("--profile and --cpuprofile: a process can take one profile at a time")
	}
	if f.explain && f.json {
		fault("--explain prints a table, --json asks for objects")
	}
	if f.minTime < 0 {
		fault("--min-time %v is negative", f.minTime)
	}
	if f.warmUp < -1 || f.warmUp > maxWarmUp {
		fault("--warmup %d is outside 0…%d", f.warmUp, maxWarmUp)
	}
	ranks := max(f.ranks, f.local.processes, 1)
	if f.root < 0 || f.root >= ranks {
		fault("--root %d is none of %d ranks", f.root, ranks)
	}
	if f.plot != "" && (f.op == everyOperation || chosen(f.op)[0].kind.Empty()) {
		fault("--plot draws one operation that carries data, not --op %s", f.op)
	}
	for _, o := range chosen(f.op) {
		if o.faults(f, ranks) != nil {
			faults = append(faults, o.faults(f, ranks)...)
			break // the others' would be alike
		}
	}
	if len(faults) == 0 {
		return nil
	}
	return &usageError{errors.Join(faults...)}
}

// run is one process of the benchmark: it joins the cluster, measures, and leaves.
func (f *benchFlags) run(ctx context.Context, cfg polyrail.Config, stdout io.Writer) (err error) {
	stopProfile, err := startProfile(f.cpuProfile)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stopProfile()) }()
	node, err := polyrail.Start(ctx, cfg)
	if err != nil {
		return err
	}
	describe(cfg.Logger, node)
	defer leave(ctx, node, cfg.Logger)
	wrong, err := f.measure(ctx, node, stdout)
	if err != nil {
		return err
	}
	if wrong > 0 {
		return fmt.Errorf("%d wrong elements in the results", wrong)
	}
	return nil
}

// startProfile profiles this process into file until stop is called; without a file it does nothing.
func startProfile(file string) (stop func() error, err error) {
	if file == "" {
		return func() error { return nil }, nil
	}
	w, err := os.Create(file)
	if err != nil {
		return nil, fmt.Errorf("--cpuprofile: %w", err)
	}
	if err := pprof.StartCPUProfile(w); err != nil {
		return nil, errors.Join(fmt.Errorf("--cpuprofile %s: %w", file, err), w.Close())
	}
	return func() error {
		pprof.StopCPUProfile()
		return w.Close()
	}, nil
}
