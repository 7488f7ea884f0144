package main

import (
	"strings"
	"testing"
	"time"
)

func TestDemoSizesEndWithinTheTime(t *testing.T) {
	const warmUps, minRepetitions = 1, 3 // of package measure
	for nodes := 2; nodes <= maxDemoNodes; nodes++ {
		for rails := 1; rails <= maxDemoRails; rails++ {
			rate := demoRate(nodes, rails)
			var total time.Duration
			sizes := demoSizes(nodes, rate)
			for _, o := range demoOperations(nodes, rate) {
				for _, size := range o.sizes {
					once := time.Duration(o.bus.Of(nodes) * float64(size) / float64(rate) * float64(time.Second))
					total += 2 * max((warmUps+minRepetitions)*once, demoTime+(warmUps+1)*once)
				}
			}
			if len(sizes) < 4 || total > 20*time.Second {
				t.Errorf("%d nodes, %d rails: %d sizes take %v", nodes, rails, len(sizes), total)
			}
		}
	}
}

func TestDurationsKeepThreeDigits(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0s", 999: "999ns", 1234567: "1.23ms", 252_149_000: "252ms", 1_239_999_999: "1.24s", 83_500_000_000: "1m23.5s",
	} {
		if got := rounded(d).String(); got != want {
			t.Errorf("rounded(%d) = %s, want %s", d, got, want)
		}
	}
}

func TestNumbersAreGrouped(t *testing.T) {
	for n, want := range map[int64]string{0: "0", 999: "999", 1000: "1,000", 12345678: "12,345,678"} {
		if got := grouped(n); got != want {
			t.Errorf("grouped(%d) = %s, want %s", n, got, want)
		}
	}
}

func TestDemoChecksEveryElement(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a cluster over loopback")
	}
	code, out, errs := node(t, "demo", "--local", "2x4", "--log-level", "error")
	if code != exitOK {
		t.Fatalf("exit code %d\nstdout:\n%s\nstderr:\n%s", code, out, errs)
	}
	if !strings.Contains(out, "none wrong") {
		t.Errorf("no word of a check:\n%s", out)
	}
	for _, operation := range []string{"allreduce of\n", "allgather of\n"} {
		if !strings.Contains(out, operation) {
			t.Errorf("no %q:\n%s", operation, out)
		}
	}
	for line := range strings.Lines(out) {
		if n := len([]rune(strings.TrimSuffix(line, "\n"))); n > 80 {
			t.Errorf("a line of %d columns: %s", n, line)
		}
	}
}
