package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/polyrail/polyrail"
	"github.com/polyrail/polyrail/cmd/internal/settings"
	"github.com/polyrail/polyrail/cmd/node/internal/osu"
)

const demoLong = `demo starts several nodes in this process, with real sockets on loopback and several
rails each. They meet by gossip and form a communicator; an allreduce over growing
sizes and an allgather of the largest ones are checked element by element on every
node, and timed against one rail alone.

The rails of loopback share one memory bus, so each is limited in software
(transport/fault) to a rate that this host can serve on all of them at once.`

// demoFlags is the size of the demonstration.
type demoFlags struct {
	common
	localSize
	sealed bool
}

// Limits of the demonstration, which is to end within 30 seconds.
const (
	maxDemoNodes = 8
	maxDemoRails = 4
	demoTimeout  = 60 * time.Second // to fail rather than hang
)

func newDemo() *cobra.Command {
	f := demoFlags{localSize: localSize{processes: 4, rails: defaultRails}}
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Show verified collectives over several rails, in this process",
		Long:  demoLong,
		Example: `  node demo
  node demo --local 3x4
  node demo --sealed`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.validate(); err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), demoTimeout)
			defer cancel()
			return f.run(ctx, cmd.OutOrStdout(), f.logger(cmd))
		},
	}
	settings.Var(cmd.Flags(), &f.localSize, "local", "K[xR]", parseLocal, localSize.String,
		fmt.Sprintf("start K nodes, 2…%d, with R rails each (%d), 1…%d", maxDemoNodes, defaultRails, maxDemoRails))
	cmd.Flags().BoolVar(&f.sealed, "sealed", false, "make keys for the nodes: rails and gossip are sealed")
	f.register(cmd.Flags(), slog.LevelWarn)
	return cmd
}

func (f *demoFlags) validate() error {
	if f.processes < 2 || f.processes > maxDemoNodes {
		return usagef("--local %v: %d nodes are outside 2…%d", f.localSize, f.processes, maxDemoNodes)
	}
	if f.rails < 1 || f.rails > maxDemoRails {
		return usagef("--local %v: %d rails are outside 1…%d", f.localSize, f.rails, maxDemoRails)
	}
	return nil
}

func (f *demoFlags) run(ctx context.Context, w io.Writer, log *slog.Logger) error {
	rate := demoRate(f.processes, f.rails)
	fmt.Fprintf(w, "polyrail demo: %d nodes with %d rails each, in one process, over loopback.\n", f.processes, f.rails)
	fmt.Fprintf(w, "Loopback rails share one memory bus: transport/fault limits each rail of each\nnode to %d MB/s, so that figures show rails and not the %d processors.\n\n", rate/1_000_000, runtime.NumCPU())

	start := time.Now()
	adapt := func(*polyrail.Config) {}
	if f.sealed {
		dir, err := os.MkdirTemp("", "polyrail-")
		if err != nil {
			return fmt.Errorf("--sealed: %w", err)
		}
		defer os.RemoveAll(dir)
		if adapt, err = demoKeys(dir, f.processes); err != nil {
			return err
		}
	}
	c, err := startDemo(ctx, f.processes, f.rails, rate, adapt, log)
	if err != nil {
		return err
	}
	defer c.leave(ctx)
	c.describe(w)
	fmt.Fprintf(w, "Up and joined by gossip in %v.\n", rounded(time.Since(start)))

	start = time.Now()
	if err := c.form(ctx); err != nil {
		return err
	}
	fmt.Fprintf(w, "Communicator %q of %d ranks formed in %v.\n\n", c.all[0].Name(), f.processes, rounded(time.Since(start)))

	var last demoLine
	var checked int64
	for _, d := range demoOperations(f.processes, rate) {
		l, n, err := f.compare(ctx, w, c, &d)
		if err != nil {
			return err
		}
		if checked += n; last.bytes == 0 { // the first operation sums up the demonstration
			last = l
		}
	}
	if err := c.close(ctx); err != nil {
		return err
	}
	fmt.Fprintf(w, "\nOK: %s elements checked on %d nodes, none wrong.\n", grouped(checked), f.processes)
	if f.rails > 1 {
		fmt.Fprintf(w, "OK: the allreduce of %s took %v over %d rails, %v over one:\n    %.2f times as fast.\n", settings.FormatSize(last.bytes),
			median(last.all), f.rails, median(last.one), last.factor())
	}
	return nil
}

// demoLine is the comparison for one size.
type demoLine struct {
	bytes    int
	all, one osu.Result
}

func (l demoLine) factor() float64 { return l.one.P50Micros / l.all.P50Micros }

// demoOperation is what is shown, with its sizes.
type demoOperation struct {
	operation
	sizes []int
}

// demoOperations are an allreduce of all sizes and an allgather of the two largest ones.
func demoOperations(nodes, rate int) []demoOperation {
	sizes := demoSizes(nodes, rate)
	return []demoOperation{
		{chosen("allreduce")[0], sizes},
		{chosen("allgather")[0], sizes[max(len(sizes)-2, 0):]},
	}
}

// compare prints a line for each size, as it is done, and returns the last one and how many
// elements were checked.
func (f *demoFlags) compare(ctx context.Context, w io.Writer, c *demoCluster, d *demoOperation) (last demoLine, checked int64, err error) {
	fmt.Fprintf(w, "%s of\n%8s  %11s  %11s  %7s  %-17s  %14s\n", d.name, "bytes", plural(f.rails, "rail"), "one alone", "faster", "share by rail", "checked")
	for _, size := range d.sizes {
		l := demoLine{bytes: size}
		if l.all, err = c.time(ctx, c.all, &d.operation, size); err != nil {
			return l, checked, err
		}
		if l.one, err = c.time(ctx, c.one, &d.operation, size); err != nil {
			return l, checked, err
		}
		last = l
		checked += l.all.Checked + l.one.Checked
		fmt.Fprintf(w, "%8s  %11v  %11v  %6.2fx  %-17s  %14s\n", settings.FormatSize(size), median(l.all), median(l.one),
			l.factor(), carried(l.all), grouped(l.all.Checked+l.one.Checked))
		if wrong := l.all.Errors + l.one.Errors; wrong > 0 {
			return l, checked, fmt.Errorf("demo: %d of %d elements of the %s of %s are wrong", wrong, l.all.Checked+l.one.Checked, d.name, settings.FormatSize(size))
		}
	}
	return last, checked, nil
}

// demoRate is each rail's limit in bytes/s, in each direction: what all of them together then
// move costs a fraction of one processor (measured: 0.3 ns of TCP per byte, both ends together).
func demoRate(nodes, rails int) int {
	const (
		most = 50_000_000
		sum  = 400_000_000
	)
	return min(most, sum/(nodes*rails))
}

// demoSizes grow to 16 MiB, or to what one rail alone can do within a second.
func demoSizes(nodes, rate int) []int {
	var sizes []int
	for size := 1 << 10; size <= 16<<20; size *= 4 {
		// A ring sends 2(n−1)/n of the buffer from each node.
		if 2*(nodes-1)*size/nodes > rate && len(sizes) > 0 {
			break
		}
		sizes = append(sizes, size)
	}
	return sizes
}

// rounded is d with three digits that mean something.
func rounded(d time.Duration) time.Duration {
	for unit := time.Duration(1); ; unit *= 10 {
		if d < 1000*unit {
			return d.Round(unit)
		}
	}
}

func plural(n int, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return fmt.Sprintf("%d %s", n, noun)
}

// grouped writes n with a comma after each three digits.
func grouped(n int64) string {
	s := fmt.Sprint(n)
	var parts []string
	for len(s) > 3 {
		parts = append([]string{s[len(s)-3:]}, parts...)
		s = s[:len(s)-3]
	}
	return strings.Join(append([]string{s}, parts...), ",")
}

// median is of rank 0's times.
func median(r osu.Result) time.Duration {
	return rounded(time.Duration(r.P50Micros * float64(time.Microsecond)))
}

// carried is each rail's part of the bytes, in whole percents.
func carried(r osu.Result) string {
	var shares []float64
	for _, rail := range slices.Sorted(maps.Keys(r.Shares)) {
		shares = append(shares, r.Shares[rail])
	}
	return percents(shares)
}

// demoTable is the table under which only the first of rails carries operations of any size.
func demoTable(rails int) polyrail.Table {
	weights := make([]uint32, rails)
	weights[0] = 1
	return polyrail.Table{Entries: []polyrail.TableEntry{{Weights: weights}}}
}
