package main

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/polyrail/polyrail"
	"github.com/polyrail/polyrail/cmd/node/internal/measure"
)

func TestProgressIsABarOnATerminalAndLinesElsewhere(t *testing.T) {
	show := func(p progress) {
		for _, c := range []polyrail.ClassReport{{Sets: 5, Settled: true}, {Sets: 2}, {}} {
			p.begin(1 << 20)
			p.done(sized{1 << 20, 120, 3 * time.Second, c, []float64{0.8, 0.2}})
		}
		p.end()
	}
	var lines, drawn bytes.Buffer
	show(newLines(&lines, 2, []string{"a", "b"}))
	for _, want := range []string{"2 ranks on rails a/b\n", " 1MiB        120        3s  80/20 %, settled\n", "still settling", "by the model of other sizes"} {
		if !strings.Contains(lines.String(), want) {
			t.Errorf("%q is not in\n%s", want, lines.String())
		}
	}
	show(newBar(&drawn, 3))
	if !strings.Contains(drawn.String(), "tuning     1MiB") || !strings.Contains(drawn.String(), "\r") || strings.Contains(drawn.String(), "\n") {
		t.Errorf("the bar is %q", drawn.String())
	}
}

func TestABatchIsAWindowAndFillsSomeMilliseconds(t *testing.T) {
	for _, c := range []struct {
		done    int
		elapsed time.Duration
		want    int
	}{{0, 0, tuneBatch}, {10, time.Second, tuneBatch}, {10, 100 * time.Microsecond, 500}, {10, 1, measure.MaxBatch}} {
		if got := batch(c.done, c.elapsed); got != c.want {
			t.Errorf("after %d operations in %v come %d, want %d", c.done, c.elapsed, got, c.want)
		}
	}
}
