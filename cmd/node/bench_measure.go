package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/polyrail/polyrail"
	"github.com/polyrail/polyrail/cmd/node/internal/measure"
	"github.com/polyrail/polyrail/cmd/node/internal/osu"
	"github.com/polyrail/polyrail/cmd/node/internal/pattern"
	"github.com/polyrail/polyrail/cmd/node/internal/profile"
)

// timelineEvents are kept of rank 0: some tens of megabytes of text.
const timelineEvents = 200_000

// writeTimeline writes a trace to a file, and closes both.
func writeTimeline(file *os.File, trace *polyrail.Trace) error {
	trace.Stop()
	if err := errors.Join(trace.Write(file), file.Close()); err != nil {
		return fmt.Errorf("--timeline: %w", err)
	}
	return nil
}

// measure runs all operations and returns how many elements were wrong, over all ranks.
func (f *benchFlags) measure(ctx context.Context, node *polyrail.Node, stdout io.Writer) (wrong int64, err error) {
	c, err := node.Communicator(ctx, "bench", f.ranks)
	if err != nil {
		return 0, err
	}
	g := &group{Communicator: c, node: node}
	if f.profile.file != "" && c.Rank() == 0 {
		if g.profile, err = profile.Create(f.profile.file); err != nil { // err stays the result's, for the defer
			return 0, err
		}
		defer func() { err = errors.Join(err, g.profile.Close()) }()
	}
	if f.plot != "" && c.Rank() == 0 {
		if g.plot, err = startPlot(f.plot, g); err != nil {
			return 0, err
		}
		defer func() { err = errors.Join(err, g.plot.finish()) }()
	}
	if f.timeline != "" && c.Rank() == 0 {
		file, failed := os.Create(f.timeline) // at once, so that a long measurement isn't in vain
		if failed != nil {
			return 0, fmt.Errorf("--timeline: %w", failed)
		}
		trace, failed := c.Trace(timelineEvents)
		if failed != nil {
			return 0, errors.Join(failed, file.Close())
		}
		defer func() { err = errors.Join(err, writeTimeline(file, trace)) }()
	}
	for i, o := range chosen(f.op) {
		if i > 0 && c.Rank() == 0 && !f.json && !f.csv {
			if _, err := fmt.Fprintln(stdout); err != nil {
				return wrong, err
			}
		}
		w, err := f.measureOperation(ctx, g, &o, stdout)
		if wrong += w; err != nil {
			return wrong, err
		}
	}
	if f.explain && c.Rank() == 0 {
		if err := explainTo(ctx, stdout, c, node); err != nil {
			return wrong, err
		}
	}
	return wrong, c.Close(ctx)
}

// measureOperation runs all sizes of one operation, and prints them on rank 0.
func (f *benchFlags) measureOperation(ctx context.Context, g *group, o *operation, stdout io.Writer) (wrong int64, err error) {
	operands, err := pattern.New(f.dtype, o.combines(f.reduce), g.Size())
	if err != nil {
		return 0, err
	}
	var printer osu.Printer
	if g.Rank() == 0 {
		if printer, err = f.printer(stdout, g, o); err != nil {
			return 0, err
		}
	}
	sizes := f.sizes
	if o.kind.Empty() {
		sizes = []int{0}
	}
	for _, size := range sizes {
		g.operation = o
		g.setting = f.setting(o, g.Rank(), g.Size(), size)
		r, err := f.measureSize(ctx, g, measure.Config{Op: o.name, Bus: o.bus, MinTime: f.minTime, WarmUp: f.warmUp,
			CheckAll: f.check, Shape: o.shape(g.setting), Pattern: operands})
		if err != nil {
			return wrong, err
		}
		wrong += r.Errors
		if printer == nil {
			continue
		}
		if err := printer.Print(r); err != nil {
			return wrong, err
		}
	}
	return wrong, nil
}

func (f *benchFlags) setting(o *operation, rank, n, bytes int) setting {
	return setting{kind: o.kind, uneven: o.uneven, dtype: f.dtype, reduce: f.reduce, algorithm: f.algorithm,
		root: f.root, rank: rank, n: n, bytes: bytes}
}

// measureSize measures one size, and profiles it on rank 0 if that was asked for.
func (f *benchFlags) measureSize(ctx context.Context, g *group, c measure.Config) (osu.Result, error) {
	g.plot.begin(c.Shape.Bytes)
	defer g.plot.end()
	if !f.profile.on || g.Rank() != 0 {
		return measure.Run(ctx, g, c)
	}
	capture, err := profile.Start()
	if err != nil {
		return osu.Result{}, err
	}
	r, err := measure.Run(ctx, g, c)
	p, stopErr := capture.Stop(g.profile)
	r.Profile = p
	return r, errors.Join(err, stopErr)
}

func (f *benchFlags) printer(stdout io.Writer, g *group, o *operation) (_ osu.Printer, err error) {
	if f.json {
		return osu.NewJSON(stdout), nil
	}
	if f.csv {
		if g.csv == nil {
			g.csv, err = osu.NewCSV(stdout, f.network)
		}
		return g.csv, err
	}
	h := osu.Header{Op: o.name, Bus: o.bus, Details: f.details(o), Ranks: f.ranks, Checked: "of the last iteration"}
	if f.check {
		h.Checked = "of every iteration"
	}
	for _, r := range g.node.Rails() {
		h.Rails = append(h.Rails, r.Name)
		if len(r.CPUs) > 0 {
			h.Affinity = append(h.Affinity, fmt.Sprintf("%s on %s", r.Name, polyrail.FormatCPUs(r.CPUs)))
		}
	}
	if sharesMemory(g.Communicator) {
		h.Rails = append(h.Rails, memoryColumn)
	}
	return osu.NewTable(stdout, h)
}

// details are what the operations of a table have in common.
func (f *benchFlags) details(o *operation) (details []string) {
	if o.kind.Empty() {
		return nil
	}
	what := f.dtype.String()
	if o.kind.Reduces() {
		what += " " + f.reduce.String()
	}
	details = append(details, what)
	if o.kind.Rooted() {
		details = append(details, fmt.Sprintf("root %d", f.root))
	}
	if o.uneven {
		details = append(details, "parts as 1:2:…:n")
	}
	return append(details, "algorithm "+f.algorithm.String())
}
