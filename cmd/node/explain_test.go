package main

import (
	"strings"
	"testing"
	"time"

	"github.com/polyrail/polyrail"
	"github.com/polyrail/polyrail/collective/op"
)

func TestExplainSaysHowAndWhy(t *testing.T) {
	var b strings.Builder
	c := polyrail.ClassReport{Class: 20, Algorithm: op.Ring, Shares: []float64{0.8, 0.2}, Alone: 10 * time.Millisecond, Now: 8 * time.Millisecond, Sets: 7}
	c.Rails = append(c.Rails, struct {
		Known   bool
		Startup time.Duration
		Rate    float64
	}{true, 50 * time.Microsecond, 40e6}, struct {
		Known   bool
		Startup time.Duration
		Rate    float64
	}{})
	explainClass(&b, &c)
	for _, want := range []string{"1MiB", "hot", "ring", "80/20 %", "1.25", "7…", "50µs + 40 MB/s", "?"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("%q lacks %q", b.String(), want)
		}
	}
	b.Reset()
	c.Algorithms = []polyrail.AlgorithmReport{
		{Algorithm: op.Ring, InUse: true, Sets: 8, Took: 8 * time.Millisecond},
		{Algorithm: op.RecursiveDoubling, Took: 12 * time.Millisecond},
		{Algorithm: op.Bcube, InForce: true},
	}
	explainAlgorithms(&b, []polyrail.ClassReport{c, {Class: 3}})
	if got, want := b.String(), "# up to 1MiB: ring 8ms in use, while another one is tried, recursive-doubling not tried (12ms by its form), bcube being tried\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	b.Reset()
	static := polyrail.Table{Entries: []polyrail.TableEntry{{MaxBytes: 1024, Weights: []uint32{1, 0}}, {Weights: []uint32{3, 1}}}}
	if err := explainTable(&b, static); err != nil {
		t.Fatal(err)
	}
	if got := b.String(); !strings.Contains(got, "up to 1KiB: 100/0 %") || !strings.Contains(got, "up to any size: 75/25 %") {
		t.Errorf("a static table prints as %q", got)
	}
}
