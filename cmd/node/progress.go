package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/polyrail/polyrail"
	"github.com/polyrail/polyrail/cmd/internal/settings"
	"github.com/schollz/progressbar/v3"
)

// sized is what tune knows of a size when it is done with it.
type sized struct {
	bytes, operations int
	elapsed           time.Duration
	class             polyrail.ClassReport
	shares            []float64 // of the rails, by the table in force
}

// progress shows how far tune is: a bar on a terminal, a line for each size elsewhere.
type progress interface {
	begin(bytes int)
	done(s sized)
	end()
}

func newProgress(w io.Writer, sizes []int, ranks int, node *polyrail.Node) progress {
	if _, ok := terminal(w); ok {
		return newBar(w, len(sizes))
	}
	var rails []string
	for _, r := range node.Rails() {
		rails = append(rails, r.Name)
	}
	return newLines(w, ranks, rails)
}

// bar is for a terminal.
type bar struct{ *progressbar.ProgressBar }

func newBar(w io.Writer, sizes int) bar {
	return bar{progressbar.NewOptions(sizes, progressbar.OptionSetWriter(w), progressbar.OptionSetWidth(32),
		progressbar.OptionShowCount(), progressbar.OptionSetPredictTime(false), progressbar.OptionClearOnFinish())}
}

// begin and the others leave errors alone: what can't be shown is no failure of what is measured.
func (b bar) begin(bytes int) { b.Describe(fmt.Sprintf("tuning %8s", settings.FormatSize(bytes))) }
func (b bar) done(sized)      { _ = b.Add(1) }
func (b bar) end()            { _ = b.Finish() }

// textLines are for whatever is no terminal.
type textLines struct{ w io.Writer }

func newLines(w io.Writer, ranks int, rails []string) textLines {
	fmt.Fprintf(w, "# Tuning for %d ranks on rails %s\n#%9s %10s %9s  %s\n", ranks, strings.Join(rails, "/"), "up to", "operations", "took", "share")
	return textLines{w}
}

func (textLines) begin(int) {}
func (textLines) end()      {}

func (l textLines) done(s sized) {
	state := "still settling"
	switch {
	case s.class.Sets == 0:
		state = "by the model of other sizes: --max-time is too short for a window"
	case s.class.Settled:
		state = "settled"
	}
	fmt.Fprintf(l.w, "%10s %10d %9v  %s, %s\n", settings.FormatSize(s.bytes), s.operations, rounded(s.elapsed), percents(s.shares), state)
}
