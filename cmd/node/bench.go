package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/polyrail/polyrail"
	"github.com/polyrail/polyrail/cmd/internal/nodeflags"
	"github.com/polyrail/polyrail/cmd/internal/settings"
	"github.com/polyrail/polyrail/cmd/node/internal/measure"
	"github.com/polyrail/polyrail/cmd/node/internal/plots"
	"github.com/polyrail/polyrail/collective/op"
)

var benchLong = `bench measures collective operations as OSU's and NVIDIA's benchmarks do. Start it once
on each host with the same flags but its own --name, --bind and devices: the processes meet
by gossip, form the communicator "bench" of --ranks ranks, and rank 0 prints a line per size.

--op says what is measured; "all" is one table for each operation:

` + operationsHelp() + `
A size is the larger one of a rank's input and output, as nccl-tests count: of an allgather
of size S each rank contributes S/n, rounded down to whole elements, but one at least. The
sizes printed are the real ones. Where callers give lengths (names that end in v), rank r's
part is in proportion to r+1 and all have S together. A barrier has one line. --root is the
rank that has, or gets, all of the data.

algbw is size / mean time. busbw = algbw * factor is what the busiest rank's links carry at
least: compare it with the sum of the rails' rates. Scans have the factor of a reduce.

One operation is in flight at a time. Before each stands a barrier that is not timed; the
times are rank 0's. cpu is the user and system time that a process spends during one
operation, mean over the ranks. The share of a rail is its part of the bytes that all ranks
sent.

--warmup N runs N operations of each size before those that are measured; by default 6 up to
64KiB, 3 up to 4MiB, 1 above.

The result of the last iteration is verified on every rank, with --check that of each
iteration: each byte, and that operands are as they were. Wrong elements are counted under
errors and make all ranks exit with 1.

--profile adds, under each size's line, where rank 0's processor time went: a hundred samples a
second of it, so --min-time 5s or more gives shares that can be compared. --profile=FILE also
writes the profile of all sizes there, for go tool pprof.

--algorithm NAME goes with every call, whatever the operation. Ranges, SIZE=NAME,..., choose for
allreduces as they do in node run.

--explain prints in the end how rank 0's balancer divides each size, and the figures that it
goes by.

--plot DIR writes there how the rails shared the work over time and how fast each one was, by
rank 0's own counters: shares.csv and rates.csv, and a picture of each.

--timeline FILE writes there what rank 0 did at the end: its last 200,000 events, operations, frames
by lane and peer, grants, reductions and failures of rails. Open it in ui.perfetto.dev.

--local K starts K processes on this host instead, KxR with R rails of its loopback each:
nothing else is needed. They exchange data through memory; with --shm=off, or where flags are
about rails (KxR, --rail, --explain, --plot, --tuning), over the rails. --hosts H has them stand
for H hosts, as many on each: memory within those, rails between them. --http is the first one's.`

const benchExample = `  node bench --local 4
  node bench --local 6 --hosts 3
  node bench --local 4x3 --sizes 8,64KiB,1MiB --check --json
  node bench --local 4 --op broadcast --root 2 --algorithm chain --sizes 1MiB --warmup 20
  node bench --local 3 --op all --sizes 1KiB,1MiB --min-time 200ms --check
  node bench --local 2 --rail a=tcp:127.0.0.1,weight=3 --rail b=tcp:127.0.0.2,weight=1

  node bench --local 2 --sizes 8,16MiB --min-time 5s --profile=cpu.pprof
  node bench --local 2 --rail a=tcp:127.0.0.1,cpus=0 --rail b=tcp:127.0.0.2,cpus=1

  node bench --local 2 --tuning tuning.yaml --explain --plot plots

  # On two hosts:
  node bench --name a --bind 10.0.0.1:7946 --rail a=tcp:eth1 --rail b=tcp:eth2 --ranks 2
  node bench --bind 10.0.0.2:7946 --join 10.0.0.1:7946 --rail a=tcp:eth1 --rail b=tcp:eth2 --ranks 2`

// maxWarmUp bounds a number that would be a mistake.
const maxWarmUp = 1 << 20

// benchFlags are what bench measures, and how.
type benchFlags struct {
	common
	op        string
	dtype     polyrail.DType
	reduce    polyrail.Op
	algorithm polyrail.Algorithm
	sizes     []int
	minTime   time.Duration
	warmUp    int
	root      int
	ranks     int
	check     bool
	json, csv bool
	network   string
	explain   bool
	local     localFlags
	plot      string
	timeline  string
	profile   profileFlag
}

func newBench() *cobra.Command {
	f := benchFlags{op: "allreduce", dtype: op.F32, reduce: polyrail.Sum,
		sizes: []int{8, 1 << 10, 64 << 10, 1 << 20, 16 << 20}}
	cfg := polyrail.DefaultConfig()
	cmd := &cobra.Command{
		Use:     "bench",
		Short:   "Measure an operation over the rails of several processes",
		Long:    benchLong,
		Example: benchExample,
		RunE: func(cmd *cobra.Command, _ []string) error {
			f.algorithm = ofEveryCall(cfg.Algorithms)
			if err := f.validate(cmd.Flags()); err != nil {
				return err
			}
			cfg := cfg // the flags, which --local passes on, keep theirs
			if f.algorithm != polyrail.Auto {
				cfg.Algorithms = nil
			}
			if f.local.size.processes > 0 {
				f.local.rails = f.local.size.rails != defaultRails || cmd.Flags().Changed("rail") ||
					cfg.TuningFile != "" || f.plot != "" || f.explain
				return f.local.run(cmd, cfg)
			}
			cfg.Logger, cfg.Nodes = f.logger(cmd), expected(cfg.Nodes, f.ranks)
			return f.run(cmd.Context(), cfg, cmd.OutOrStdout())
		},
	}
	f.register(cmd.Flags())
	nodeflags.Register(cmd.Flags(), &cfg)
	f.common.register(cmd.Flags(), slog.LevelWarn)
	return cmd
}

func (f *benchFlags) register(fs *pflag.FlagSet) {
	fs.IntVar(&f.ranks, "ranks", 0, "ranks of the communicator: how many processes take part")
	settings.Var(fs, &f.op, "op", "OPERATION", parseOperation, settings.AsIs, "operation to measure: "+strings.Join(operationNames(), ", "))
	settings.Var(fs, &f.dtype, "dtype", "TYPE", polyrail.ParseDType, polyrail.DType.String, "element type, int8 … float64, or of pairs, int32loc … float64loc")
	settings.Var(fs, &f.reduce, "reduce", "OP", polyrail.ParseOp, polyrail.Op.String, "operator: sum, prod, min, max, avg, bitand, bitor, bitxor; of pairs minloc, maxloc")
	fs.IntVar(&f.root, "root", 0, "`RANK` that has or gets all data, of operations that have a root")
	settings.SizesVar(fs, &f.sizes, "sizes", "sizes in bytes of a rank's larger buffer; KiB or k, MiB or M, GiB or G")
	fs.IntVar(&f.warmUp, "warmup", -1, "operations of each size before those that are measured; -1: by size")
	fs.DurationVar(&f.minTime, "min-time", time.Second, fmt.Sprintf(
		"how long each size is measured at least, barriers included; %d operations are enough", measure.MaxIterations))
	fs.BoolVar(&f.check, "check", false, "verify every element of every iteration on every rank")
	fs.BoolVar(&f.json, "json", false, "print one JSON object per size and line")
	fs.BoolVar(&f.csv, "csv", false, "print the results as CSV, for node chart")
	fs.StringVar(&f.network, "network", "rails", "`TEXT` that names what is measured, in the CSV's column network")
	fs.BoolVar(&f.explain, "explain", false, "print at the end how each size was divided, and why")
	f.profile.register(fs)
	fs.StringVar(&f.plot, "plot", "", "write shares and rates of the rails over time to `DIR`, as CSV and as pictures")
	fs.StringVar(&f.timeline, "timeline", "", "write rank 0's last events to `FILE`, in Chrome's trace format, for ui.perfetto.dev")
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
		if err := fitsMemory(size, f.local.size.processes); err != nil {
			faults = append(faults, err)
		}
	}
	if err := fileFault(f.profile.file); err != nil { // better now than on rank 0 alone
		fault("--profile=%s: %w", f.profile.file, err)
	}
	if err := fileFault(f.timeline); err != nil {
		fault("--timeline=%s: %w", f.timeline, err)
	}
	if f.explain && (f.json || f.csv) {
		fault("--explain prints a table; it does not go with --json or --csv")
	}
	if f.csv && f.profile.on && f.profile.file == "" {
		fault("--profile adds lines to the table; beside --csv it takes a file: --profile=FILE")
	}
	if f.json && f.csv {
		fault("--json and --csv are two forms of the same: choose one")
	}
	if f.minTime < 0 {
		fault("--min-time %v is negative", f.minTime)
	}
	if f.warmUp < -1 || f.warmUp > maxWarmUp {
		fault("--warmup %d is outside 0…%d (-1: by size)", f.warmUp, maxWarmUp)
	}
	ranks := max(f.ranks, f.local.size.processes, 1)
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
	if f.plot != "" && f.local.size.processes > 0 && len(faults) == 0 { // rank 0 is on this host
		if err := plots.CheckDir(f.plot); err != nil {
			fault("--plot %s: %w", f.plot, err)
		}
	}
	if len(faults) == 0 {
		return nil
	}
	return &usageError{errors.Join(faults...)}
}

// fileFault is why a file can't be written: there is no directory for it, or one in its place.
func fileFault(name string) error {
	if name == "" {
		return nil
	}
	if info, err := os.Stat(name); err == nil && info.IsDir() {
		return errors.New("is a directory")
	}
	_, err := os.Stat(filepath.Dir(name))
	return err
}

// expected is how many nodes a cluster of so many ranks has; what can't be stays as it is.
func expected(nodes, ranks int) int {
	if nodes < 0 {
		return nodes
	}
	return max(nodes, ranks)
}

// run is one process of the benchmark: it joins the cluster, measures, and leaves.
func (f *benchFlags) run(ctx context.Context, cfg polyrail.Config, stdout io.Writer) error {
	node, err := startNode(ctx, cfg)
	if err != nil {
		return err
	}
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

// ofEveryCall is the algorithm that is for all sizes. Calls name it: the configuration chooses for
// allreduces only.
func ofEveryCall(ranges []polyrail.AlgorithmRange) polyrail.Algorithm {
	if len(ranges) == 1 && ranges[0].MaxBytes == 0 {
		return ranges[0].Algorithm
	}
	return polyrail.Auto
}

// profileFlag says whether rank 0 is profiled, and into which file; "": none.
type profileFlag struct {
	on   bool
	file string
}

func (p *profileFlag) register(fs *pflag.FlagSet) {
	settings.Var(fs, p, "profile", "bool", parseProfile, profileFlag.String,
		"say where rank 0's processor time goes, under each size's line; "+
			"--profile=FILE writes the profile there too, for go tool pprof")
	fs.Lookup("profile").NoOptDefVal = profileFlag{on: true}.String()
}

func parseProfile(s string) (profileFlag, error) {
	if on, err := settings.ParseSwitch(s); err == nil {
		return profileFlag{on: on}, nil
	}
	return profileFlag{on: true, file: s}, nil
}

func (p profileFlag) String() string {
	if p.file != "" {
		return p.file
	}
	return strconv.FormatBool(p.on)
}
