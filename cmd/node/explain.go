package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/polyrail/polyrail"
	"github.com/polyrail/polyrail/cmd/internal/settings"
)

// explainTo prints what the balancer knows: for each size that was measured or probed how it is
// divided, what that takes by the model against the best rail alone, and the model of each rail.
func explainTo(ctx context.Context, w io.Writer, c *polyrail.Communicator, node *polyrail.Node) error {
	report, err := c.Balance(ctx)
	if err != nil {
		return err
	}
	t := c.Table()
	if hosts := c.Hosts(); len(hosts) == 1 && hosts[0].SharedMemory {
		_, err := fmt.Fprintln(w, "\n# All ranks share the memory of one host, which carries everything: there is nothing to balance.")
		return err
	}
	fmt.Fprintf(w, "\n# Table %d divides operations", t.Version)
	if report.Static {
		fmt.Fprintf(w, " by the configured weights or a caller's table:\n")
		return explainTable(w, t)
	}
	fmt.Fprintf(w, " by what was measured:\n")
	out := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(out, "up to\tstart\talgorithm\tshare\ttime\tone rail\tgain\twindows\t")
	for _, r := range node.Rails() {
		fmt.Fprintf(out, "%s\t", r.Name)
	}
	fmt.Fprintln(out)
	for i := range report.Classes {
		explainClass(out, &report.Classes[i])
	}
	if err := out.Flush(); err != nil {
		return err
	}
	explainAlgorithms(w, report.Classes)
	_, err = fmt.Fprintf(w, "# control: %.3f %% of the time of %d operations (measuring and deciding %v, calls held back for tables %v)\n",
		100*report.Control.Share(), report.Control.Operations, rounded(report.Control.Spent), rounded(report.Control.Held))
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(w, "# start: cold on one rail, hot over several; times and rails (startup + rate) by the model;\n"+
		"# gain: against the best rail alone; windows of ten operations and more, … still settling")
	return err
}

func explainClass(out io.Writer, c *polyrail.ClassReport) {
	start := "cold"
	if c.Hot() {
		start = "hot"
	}
	sets := fmt.Sprint(c.Sets)
	if c.Sets == 0 {
		sets = "probe"
	} else if !c.Settled {
		sets += "…"
	}
	fmt.Fprintf(out, "%s\t%s\t%v\t%s\t%v\t%v\t%.2f\t%s\t", settings.FormatSize(int(c.Class.MaxBytes())), start, algorithmName(c.Algorithm, c.Treed),
		percents(c.Shares), rounded(c.Now), rounded(c.Alone), float64(c.Alone)/float64(max(c.Now, 1)), sets)
	for _, r := range c.Rails {
		if !r.Known {
			fmt.Fprint(out, "?\t")
			continue
		}
		fmt.Fprintf(out, "%v + %.4g MB/s\t", rounded(max(r.Startup, 0)), r.Rate/1e6)
	}
	fmt.Fprintln(out)
}

// explainAlgorithms prints what whole operations of each size take by each algorithm, where the
// order is free.
func explainAlgorithms(w io.Writer, classes []polyrail.ClassReport) {
	for i := range classes {
		c := &classes[i]
		if len(c.Algorithms) == 0 {
			continue
		}
		fmt.Fprintf(w, "# up to %s:", settings.FormatSize(int(c.Class.MaxBytes())))
		for j, a := range c.Algorithms {
			if j > 0 {
				fmt.Fprint(w, ",")
			}
			fmt.Fprintf(w, " %s %s", algorithmName(a.Algorithm, a.Treed), algorithmState(&a))
		}
		fmt.Fprintln(w)
	}
}

// algorithmName is an algorithm's, or that of an aggregation tree which folds in its order.
func algorithmName(a polyrail.Algorithm, treed bool) string {
	if treed {
		return "aggregated " + a.String()
	}
	return a.String()
}

// algorithmState says what an algorithm takes, how that is known, and what it is to its size.
func algorithmState(a *polyrail.AlgorithmReport) (s string) {
	took := rounded(a.Took)
	switch {
	case a.Sets > 0:
		s = took.String()
	case a.Took > 0:
		s = fmt.Sprintf("not tried (%v by its form)", took)
	case !a.InUse && !a.InForce:
		s = "not tried"
	}
	switch {
	case a.InUse && !a.InForce:
		s += " in use, while another one is tried"
	case a.InUse:
		s += " in use"
	case a.InForce:
		s += " being tried"
	}
	return strings.TrimSpace(s)
}

// explainTable prints a table that nobody measured for.
func explainTable(w io.Writer, t polyrail.Table) error {
	for i := range t.Entries {
		e := &t.Entries[i]
		end := "any size"
		if e.MaxBytes > 0 {
			end = settings.FormatSize(int(e.MaxBytes))
		}
		if _, err := fmt.Fprintf(w, "  up to %s: %s, %v\n", end, percents(parts(e.Weights)), e.Algorithm); err != nil {
			return err
		}
	}
	return nil
}

// parts are weights in parts of their sum.
func parts(weights []uint32) []float64 {
	sum, shares := 0.0, make([]float64, len(weights))
	for _, x := range weights {
		sum += float64(x)
	}
	for i, x := range weights {
		shares[i] = float64(x) / sum
	}
	return shares
}

// percents writes shares as 80/20 %.
func percents(shares []float64) (s string) {
	for i, x := range shares {
		if i > 0 {
			s += "/"
		}
		s += fmt.Sprintf("%.0f", 100*x)
	}
	return s + " %"
}
