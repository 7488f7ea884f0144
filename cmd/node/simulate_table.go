package main

import (
	"encoding/csv"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/polyrail/polyrail/cmd/internal/settings"
	"github.com/polyrail/polyrail/cmd/node/internal/plots"
	"github.com/polyrail/polyrail/cmd/node/internal/simulate"
	"github.com/polyrail/polyrail/collective/op"
)

// This file shows what was simulated: as a table, as CSV and as curves.

// simRow is a line of the table: a time for each column.
type simRow struct {
	hosts, ranks, size, bytes int // bytes: what the ranks have of an operation of the size
	cells                     []simCell
}

// simCell is one simulated time.
type simCell struct {
	took       time.Duration
	stretched  bool // by a line through smaller ones
	simulation simulate.Result
}

// simTable is what was simulated.
type simTable struct {
	flags *simulateFlags
	kind  op.Kind
	rows  []simRow
}

func (t *simTable) columns() (names []string) {
	for _, a := range t.flags.algorithms {
		names = append(names, a.String())
	}
	if t.flags.tree != "none" {
		names = append(names, map[string]string{"switch": "tree of switches", "host": "tree of hosts"}[t.flags.tree])
	}
	return names
}

func (c *simCell) String() string {
	mark := ""
	if c.stretched {
		mark = "~"
	}
	return mark + strconv.FormatFloat(micros(c.took), 'f', 1, 64)
}

func micros(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e3 }

func (t *simTable) print(w io.Writer) error {
	out := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(out, "# %s, times in microseconds, simulated\n", t.flags.op)
	fmt.Fprintf(out, "hosts\tranks\tbytes\t%s\t", strings.Join(t.columns(), "\t"))
	if t.flags.tree != "none" {
		fmt.Fprint(out, "factor\t")
	}
	fmt.Fprintln(out)
	for _, r := range t.rows {
		fmt.Fprintf(out, "%d\t%d\t%d\t", r.hosts, r.ranks, r.bytes)
		for i := range r.cells {
			fmt.Fprintf(out, "%s\t", r.cells[i].String())
		}
		if t.flags.tree != "none" {
			fmt.Fprintf(out, "%.2f\t", r.cells[0].took.Seconds()/r.cells[len(r.cells)-1].took.Seconds())
		}
		fmt.Fprintln(out)
	}
	return out.Flush()
}

func (t *simTable) csv(w io.Writer) error {
	out := csv.NewWriter(w)
	_ = out.Write([]string{"op", "hosts", "ranks", "bytes", "column", "us", "stretched", "frames",
		"bytes_carried", "resent"}) // Error tells
	for _, r := range t.rows {
		for i, name := range t.columns() {
			c := &r.cells[i]
			_ = out.Write([]string{t.flags.op, strconv.Itoa(r.hosts), strconv.Itoa(r.ranks), strconv.Itoa(r.bytes), name,
				strconv.FormatFloat(micros(c.took), 'f', 3, 64), strconv.FormatBool(c.stretched),
				strconv.FormatInt(c.simulation.Frames, 10), strconv.FormatInt(c.simulation.Carried, 10), strconv.FormatInt(c.simulation.Resent, 10)})
		}
	}
	out.Flush()
	return out.Error()
}

// curves are the times against hosts, or against sizes where there is one number of hosts.
func (t *simTable) curves() *plots.Curves {
	c := &plots.Curves{Title: t.flags.op + ", simulated", X: "hosts", Label: func(x float64) string { return strconv.Itoa(int(x)) }}
	byHosts := len(t.flags.hosts) > 1
	if !byHosts {
		c.X, c.Label = fmt.Sprintf("size, of %d hosts", t.flags.hosts[0]), func(x float64) string { return settings.FormatSize(int(x)) }
	}
	for i, name := range t.columns() {
		for k := range t.rows {
			r := &t.rows[k]
			line, x := name, float64(max(r.bytes, 1))
			if byHosts {
				x = float64(r.hosts)
				if len(t.flags.sizes) > 1 {
					line += ", " + settings.FormatSize(r.size)
				}
			}
			at := slices.IndexFunc(c.Lines, func(l plots.Curve) bool { return l.Name == line })
			if at < 0 {
				c.Lines, at = append(c.Lines, plots.Curve{Name: line}), len(c.Lines)
			}
			if took := micros(r.cells[i].took); took > 0 {
				c.Lines[at].Points = append(c.Lines[at].Points, plots.Moment{X: x, Micros: took})
			}
		}
	}
	return c
}
