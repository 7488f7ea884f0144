package main

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/polyrail/polyrail/cmd/internal/settings"
	"github.com/polyrail/polyrail/cmd/node/internal/osu"
	"github.com/polyrail/polyrail/cmd/node/internal/plots"
)

const chartLong = `chart draws files of results: a panel for each network, in it a line for each system. A line is
the bus bandwidth of each size, by the median of its times. --limit draws what a network could
carry.

Files are CSV, as node bench --csv writes them. Other programs' results can be added under
another name of the system: the columns system, network, op, ranks, bytes and p50_us count. Files
may be put together with cat.`

const chartExample = `  node bench --local 4x2 --csv --network "2 rails of loopback" > results.csv
  node chart results.csv --out results.svg`

// chartFlags are what chart draws, and where to.
type chartFlags struct {
	common
	out    string
	op     string
	from   int // bytes
	limits []float64
}

func newChart() *cobra.Command {
	f := chartFlags{op: "allreduce"}
	cmd := &cobra.Command{
		Use:     "chart FILE...",
		Short:   "Draw results of several systems and networks",
		Long:    chartLong,
		Example: chartExample,
		RunE:    func(_ *cobra.Command, files []string) error { return f.run(files) },
	}
	fs := cmd.Flags()
	fs.StringVar(&f.out, "out", "chart.svg", "`FILE` to draw to; svg, png or pdf, as its name ends")
	settings.Var(fs, &f.op, "op", "OPERATION", parseOperation, settings.AsIs, "operation to draw")
	settings.SizeVar(fs, &f.from, "from", "smallest size to draw")
	settings.List(fs, &f.limits, "limit", "MBIT,...", ",", parseRate, formatRate,
		"sum of the rails' rates of each network, in the order of the file")
	f.register(fs, 0)
	return cmd
}

func parseRate(s string) (float64, error) {
	rate, err := strconv.ParseFloat(s, 64)
	if err != nil || !(rate > 0 && rate < 1e9) {
		return 0, fmt.Errorf("%q is not a rate in Mbit/s", s)
	}
	return rate, nil
}

func formatRate(rate float64) string { return strconv.FormatFloat(rate, 'g', -1, 64) }

func (f *chartFlags) run(files []string) error {
	if len(files) == 0 {
		return usagef("chart needs a file of results (node bench --csv writes one; see node chart --help)")
	}
	if f.op == everyOperation || chosen(f.op)[0].kind.Empty() {
		return usagef("--op %s: chart draws one operation that carries data", f.op)
	}
	var rows []osu.Row
	for _, name := range files {
		r, err := readResults(name)
		if err != nil {
			return &usageError{err}
		}
		rows = append(rows, r...)
	}
	if err := plots.CheckFile(f.out); err != nil {
		return usagef("--out %s: %w", f.out, err)
	}
	o := &chosen(f.op)[0]
	chart := plots.Chart{Op: f.op}
	for _, r := range rows {
		if r.Op == f.op && r.Bytes >= max(f.from, 1) { // no bytes have no bandwidth
			addRow(&chart, r, o.bus.Of(r.Ranks)*float64(r.Bytes)*8/r.P50Micros)
		}
	}
	if len(chart.Panels) == 0 {
		return usagef("--op %s --from %s: no line of %s is of it", f.op, settings.FormatSize(f.from), strings.Join(files, ", "))
	}
	if len(f.limits) > len(chart.Panels) {
		return usagef("--limit: %d rates for %d networks", len(f.limits), len(chart.Panels))
	}
	for i, limit := range f.limits {
		chart.Panels[i].Limit = limit
	}
	return chart.Draw(f.out, settings.FormatSize)
}

func readResults(name string) ([]osu.Row, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	rows, err := osu.ReadCSV(file)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return rows, nil
}

// addRow puts a result where it belongs; networks and systems stand in the order in which they come.
func addRow(c *plots.Chart, r osu.Row, mbit float64) {
	i := slices.IndexFunc(c.Panels, func(p plots.Panel) bool { return p.Network == r.Network })
	if i < 0 {
		i = len(c.Panels)
		c.Panels = append(c.Panels, plots.Panel{Network: r.Network})
	}
	p := &c.Panels[i]
	k := slices.IndexFunc(p.Series, func(s plots.Series) bool { return s.System == r.System })
	if k < 0 {
		k = len(p.Series)
		p.Series = append(p.Series, plots.Series{System: r.System})
	}
	s := &p.Series[k]
	s.Points = append(s.Points, plots.Point{Bytes: r.Bytes, Mbit: mbit})
	slices.SortStableFunc(s.Points, func(a, b plots.Point) int { return cmp.Compare(a.Bytes, b.Bytes) })
}
