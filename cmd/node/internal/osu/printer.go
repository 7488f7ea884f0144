package osu

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
)

// Header is what a table says above its first line.
type Header struct {
	Op       string
	Bus      Bus
	Details  []string // of the operations: element type, operator, algorithm, root
	Ranks    int
	Rails    []string
	Affinity []string // "rail on cores", for rails that are bound to some
	Checked  string   // what the errors column covers
}

// Table prints results as lines of columns under a header that explains them.
type Table struct {
	w     io.Writer
	rails []string
}

// NewTable prints the header to w.
func NewTable(w io.Writer, h Header) (*Table, error) {
	t := &Table{w: w, rails: slices.Sorted(slices.Values(h.Rails))}
	affinity := "any"
	if len(h.Affinity) > 0 {
		affinity = strings.Join(h.Affinity, ", ")
	}
	lines := []string{
		fmt.Sprintf("# polyrail %s, %d ranks, rails %s", strings.Join(append([]string{h.Op}, h.Details...), ", "), h.Ranks, strings.Join(t.rails, " ")),
		"# Times are of one operation, avg over all ranks, the others rank 0's; a barrier stands before each and is not timed.",
		"# bytes = the larger one of a rank's input and output.",
		"# algbw = bytes / avg, busbw = algbw * " + h.Bus.Formula + ", in GB/s (10^9 bytes).",
		"# cpu = user + system time of a process per operation, mean over the ranks.",
		"# cores of readers and writers: " + affinity + ".",
		"# share = fraction of the bytes sent, by all ranks, over " + strings.Join(t.rails, "/") + ".",
		"# errors = wrong elements over all ranks, " + h.Checked + ".",
		"#",
		fmt.Sprintf("#%11s %7s %10s %10s %10s %10s %10s %8s %8s %10s  %-9s %6s",
			"bytes", "iters", "min(us)", "avg(us)", "p50(us)", "p99(us)", "max(us)", "algbw", "busbw", "cpu(us)", "share(%)", "errors"),
	}
	_, err := fmt.Fprintln(w, strings.Join(lines, "\n"))
	return t, err
}

// Print prints one result.
func (t *Table) Print(r Result) error {
	_, err := fmt.Fprintf(t.w, "%12d %7d %10.1f %10.1f %10.1f %10.1f %10.1f %8.3f %8.3f %10.1f  %-9s %6d\n",
		r.Bytes, r.Iterations, r.MinMicros, r.AvgMicros, r.P50Micros, r.P99Micros, r.MaxMicros, r.AlgBW, r.BusBW,
		r.CPUMicros, t.shares(r.Shares), r.Errors)
	if err != nil || r.Profile == nil {
		return err
	}
	return t.profile(r.Profile)
}

// profile prints where the time of the line above it went.
func (t *Table) profile(p *Profile) error {
	if p.Samples == 0 {
		_, err := fmt.Fprintln(t.w, "#   profile: too short for a sample; raise --min-time")
		return err
	}
	lines := []string{fmt.Sprintf("#   profile of rank 0: %.2f s of processor time in %.2f s, %.2f cores busy; %d samples; otherwise it waited",
		p.CPUSeconds, p.WallSeconds, p.CPUSeconds/p.WallSeconds, p.Samples)}
	for _, part := range p.Parts {
		lines = append(lines, fmt.Sprintf("#   %5.1f %% %-10s %s", 100*part.Share, part.Name, part.Meaning))
	}
	_, err := fmt.Fprintln(t.w, strings.Join(lines, "\n"))
	return err
}

// shares are whole percents in the order of the rails in the header.
func (t *Table) shares(of map[string]float64) string {
	parts := make([]string, len(t.rails))
	for i, rail := range t.rails {
		parts[i] = fmt.Sprintf("%.0f", 100*of[rail])
	}
	return strings.Join(parts, "/")
}

// JSON prints results as one object a line.
type JSON struct{ enc *json.Encoder }

// NewJSON prints to w.
func NewJSON(w io.Writer) *JSON { return &JSON{enc: json.NewEncoder(w)} }

// Print prints one result.
func (j *JSON) Print(r Result) error { return j.enc.Encode(r) }

// Printer is a form of output.
type Printer interface{ Print(Result) error }
