package osu

import (
	"bytes"
	"encoding/json"
	"math"
	"slices"
	"strings"
	"testing"
	"time"
)

func hundred() []time.Duration {
	times := make([]time.Duration, 100)
	for i := range times {
		times[i] = time.Duration(100-i) * time.Microsecond // 100 … 1
	}
	return times
}

func TestFiguresOfAHundredSamples(t *testing.T) {
	r := NewResult("allreduce", BusTwice, 4, 1000, hundred(), 4*5150*time.Microsecond)
	for _, c := range []struct {
		name      string
		got, want float64
	}{
		{"iterations", float64(r.Iterations), 100},
		{"min", r.MinMicros, 1},
		{"avg over all ranks", r.AvgMicros, 51.5},
		{"p50", r.P50Micros, 50},
		{"p95", r.P95Micros, 95},
		{"p99", r.P99Micros, 99},
		{"max", r.MaxMicros, 100},
		{"algbw", r.AlgBW, 1000 / 51.5e3},
		{"busbw", r.BusBW, 1.5 * 1000 / 51.5e3},
	} {
		if math.Abs(c.got-c.want) > 1e-9*c.want {
			t.Errorf("%s = %v, want %v", c.name, c.got, c.want)
		}
	}
}

func TestFiguresOfFewSamples(t *testing.T) {
	if r := NewResult("allreduce", BusTwice, 2, 8, nil, 0); r.Iterations != 0 || r.AvgMicros != 0 || r.AlgBW != 0 {
		t.Errorf("no samples gave %+v", r)
	}
	r := NewResult("allreduce", BusTwice, 1, 8, []time.Duration{time.Millisecond}, time.Millisecond)
	if r.MinMicros != 1000 || r.P50Micros != 1000 || r.P99Micros != 1000 || r.MaxMicros != 1000 {
		t.Errorf("one sample gave %+v", r)
	}
	if r.BusBW != 0 {
		t.Errorf("one rank alone moves %v GB/s over its rails", r.BusBW)
	}
	if p := Percentile([]time.Duration{1, 2}, 50); p != 1 {
		t.Errorf("the median of 1 and 2 by nearest rank is %d", p)
	}
}

func TestSharesSumToOne(t *testing.T) {
	s := Shares(map[string]int64{"a": 3, "b": 1, "c": 0})
	if s["a"] != 0.75 || s["b"] != 0.25 || s["c"] != 0 {
		t.Errorf("shares %v", s)
	}
	if s := Shares(map[string]int64{"a": 0}); s["a"] != 0 {
		t.Errorf("nothing sent, but shares %v", s)
	}
}

func TestJSONKeysAreTheAgreedOnes(t *testing.T) {
	var out bytes.Buffer
	p := NewJSON(&out)
	r := NewResult("allreduce", BusTwice, 2, 8, hundred(), 0)
	r.Shares = map[string]float64{"a": 1}
	for range 2 {
		if err := p.Print(r); err != nil {
			t.Fatal(err)
		}
	}
	lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
	if len(lines) != 2 {
		t.Fatalf("%d lines for two results", len(lines))
	}
	var object map[string]any
	if err := json.Unmarshal([]byte(lines[0]), &object); err != nil {
		t.Fatal(err)
	}
	want := strings.Split("op ranks bytes iterations min_us avg_us p50_us p95_us p99_us max_us cpu_us algbw busbw shares errors", " ")
	var got []string
	for k := range object {
		got = append(got, k)
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("keys %v, want %v", got, want)
	}
	if _, ok := object["errors"].(float64); !ok {
		t.Errorf("errors is a %T, want a number", object["errors"])
	}
}

func TestTableColumnsStandUnderTheirNames(t *testing.T) {
	var out bytes.Buffer
	p, err := NewTable(&out, Header{Op: "allreduce", Bus: BusTwice, Details: []string{"float32 sum", "algorithm auto"}, Ranks: 2,
		Rails: []string{"b", "a"}, Checked: "last iteration only"})
	if err != nil {
		t.Fatal(err)
	}
	r := NewResult("allreduce", BusTwice, 2, 16<<20, hundred(), 0)
	r.Shares, r.Errors = map[string]float64{"a": 0.25, "b": 0.75}, 3
	if err := p.Print(r); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
	names, line := lines[len(lines)-2], lines[len(lines)-1]
	for _, l := range lines[:len(lines)-1] {
		if !strings.HasPrefix(l, "#") {
			t.Errorf("header line %q is not a comment", l)
		}
	}
	for name, value := range map[string]string{"bytes": "16777216", "iters": "100", "p99(us)": "99.0", "max(us)": "100.0", "errors": "3"} {
		end := strings.Index(names, name) + len(name)
		if !strings.HasSuffix(line[:end], value) {
			t.Errorf("under %s stands %q, want %s:\n%s\n%s", name, line[:end], value, names, line)
		}
	}
	if !strings.Contains(line, " 25/75 ") {
		t.Errorf("shares in the order of rails a, b are missing in %q", line)
	}
}

func TestBusFactors(t *testing.T) {
	for _, c := range []struct {
		bus     Bus
		n       int
		want    float64
		formula string
	}{
		{BusTwice, 4, 1.5, "2(n-1)/n"}, {BusTwice, 1, 0, "2(n-1)/n"},
		{BusOthers, 4, 0.75, "(n-1)/n"}, {BusOthers, 1, 0, "(n-1)/n"},
		{BusWhole, 4, 1, "1"}, {BusWhole, 1, 0, "1"},
	} {
		if got := c.bus.Of(c.n); got != c.want || c.bus.Formula != c.formula {
			t.Errorf("%s of %d ranks is %v, want %v of %s", c.bus.Formula, c.n, got, c.want, c.formula)
		}
	}
}
