package faults

import (
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/polyrail/polyrail/test/bubble"
	"github.com/polyrail/polyrail/test/seeds"
)

// play plays a scenario in virtual time.
func play(t *testing.T, s Scenario, o Options) (report *Report, err error) {
	t.Helper()
	bubble.Nodes(t, func(t *testing.T) {
		report, err = Run(t.Context(), s, o)
	})
	return report, err
}

// aloud writes what happens to the test's log.
func aloud(t *testing.T) Options {
	return Options{
		Report: func(e Event) { t.Logf("%9.6f  %s", e.At.Seconds(), e.Text) },
		Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
	}
}

func TestEachFaultIsFeltAndNothingIsLost(t *testing.T) {
	for name, text := range map[string]string{
		"cut":                         "at 50ms cut node1 rail0\nat 300ms heal node1 rail0",
		"cut for good":                "at 50ms cut node1 rail0",
		"silence":                     "at 50ms silence node2 rail1\nat 1s heal node2 rail1",
		"unplug":                      "at 50ms unplug node0 rail1\nat 1s heal node0 rail1",
		"reset":                       "at 50ms reset node0 rail*\nat 60ms reset node1 rail*\nat 70ms reset node2 rail0",
		"delay":                       "at 50ms delay node0 rail1 20ms\nat 200ms delay node0 rail1 0s",
		"a slow rail":                 "at 50ms rate node0 rail1 1MiB\nat 200ms rate node0 rail1 0",
		"gossip parted":               "at 50ms part node0\nat 2s unite",
		"killed":                      "at 50ms kill node1\nexpect lost node1",
		"stopped":                     "at 50ms stop node0\nexpect lost node0",
		"all rails but one":           "rails 4\nat 50ms silence node1 rail0\nat 60ms unplug node1 rail1\nat 70ms cut node1 rail3",
		"two nodes, different rails":  "rails 3\nat 50ms silence node0 rail0\nat 55ms silence node1 rail1",
		"a second one meanwhile":      "rails 3\nat 50ms silence node0 rail0\nat 150ms cut node0 rail1\nat 180ms silence node1 rail0\nat 400ms heal node0 rail1",
		"flapping":                    "operations 40\nat 50ms cut node1 rail0\nat 60ms heal node1 rail0\nat 70ms cut node1 rail0\nat 80ms heal node1 rail0\nat 90ms cut node1 rail0\nat 3s heal node1 rail0",
		"killed during a failover":    "at 50ms silence node1 rail0\nat 150ms kill node2\nexpect lost node2",
		"all rails, for a short time": "at 50ms silence node1 rail*\nat 400ms heal node1 rail*",
		"a duplicate frame":           "at 50ms duplicate node1 rail0",
		"a corrupt frame":             "at 50ms corrupt node1 rail0",
		"a replayed frame":            "at 50ms replay node1 rail1",
		"a frame of the past":         "at 50ms reset node1 rail0\nat 150ms stale node1 rail0",
		"each of them, everywhere": "operations 40\nat 50ms duplicate node0 rail*\nat 60ms corrupt node1 rail*\nat 70ms replay node2 rail*\n" +
			"at 100ms stale node0 rail*",
		"a panic of the coordinator":     "at 50ms panic node1 coordinator\nexpect broken node1",
		"a panic of the balancer":        "at 50ms panic node1 balancer\nexpect broken node1",
		"a panic of operations":          "at 50ms panic node0 operation\nexpect broken node0",
		"a panic of workers":             "at 50ms panic node2 worker\nexpect broken node2",
		"a panic of the communicator":    "at 50ms panic node1 communicator\nexpect broken node1",
		"a panic of pairs":               "at 50ms panic node1 pair",
		"a panic of peers":               "at 50ms panic node1 peer\nat 60ms panic node0 peer",
		"a panic of the node":            "at 50ms panic node1 node",
		"a panic of the office":          "at 50ms panic node1 peers\nat 60ms reset node1 rail0",
		"a panic of rails":               "at 50ms panic node1 rail\nat 150ms panic node0 rail",
		"a panic of the rail supervisor": "at 50ms panic node1 rails\nat 150ms panic node0 rails\nat 300ms cut node2 rail0\nat 400ms heal node2 rail0",
	} {
		t.Run(name, func(t *testing.T) {
			s, err := Parse("speed 20MiB\nsizes 1MiB 64KiB 8\n" + text)
			if err != nil {
				t.Fatal(err)
			}
			var o Options
			if testing.Verbose() {
				o = aloud(t)
			}
			report, err := play(t, s, o)
			if err != nil {
				t.Error(err)
			}
			for _, step := range report.Unfelt() {
				t.Errorf("nobody felt %v", step)
			}
			var reconnects uint64
			for _, rails := range report.Rails {
				for _, r := range rails {
					reconnects += r.Reconnects
				}
			}
			if s.Steps[0].Do.tampers() && reconnects == 0 {
				t.Error("nobody closed the connection on which a frame was wrong")
			}
		})
	}
}

// TestASilentRailCostsLittle: with everything else at rest, the operation that is hit takes longer
// by the rail timeout and its remaining bytes: once, though two pairs are silent, and one of them
// may have had nothing unacknowledged at the cut.
func TestASilentRailCostsLittle(t *testing.T) {
	s, err := Parse("speed 100MiB\nsizes 1MiB\npause 0s\noperations 50\nat 100ms silence node1 rail0\nat 1s heal node1 rail0")
	if err != nil {
		t.Fatal(err)
	}
	report, err := play(t, s, Options{})
	if err != nil || report.Slowest > 250*time.Millisecond || report.Slowest < 100*time.Millisecond {
		t.Errorf("%v; slowest operation %v", err, report.Slowest)
	}
}

func TestWhatDidNotHappenIsToldWrong(t *testing.T) {
	for text, want := range map[string]string{
		"expect lost node1":                      "node0: did not miss node1",
		"at 50ms kill node2":                     `node0: `,
		"at 50ms kill node2\nexpect lost node1":  "did not miss node1, but ended with",
		"at 50ms stop node2\nexpect lost node0 ": "did not miss node0, but ended with",
	} {
		s, err := Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := play(t, s, Options{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

func TestUnfelt(t *testing.T) {
	s, err := Parse("rails 1\npause 10s\noperations 1\nat 1s rate node0 rail0 1MiB\nat 2s rate node0 rail0 0\nat 3s delay node0 rail0 1ms")
	if err != nil {
		t.Fatal(err)
	}
	s.Steps[0].At, s.Steps[1].At = time.Second, time.Second+1 // nobody writes in between
	report, err := play(t, s, Options{})
	if err != nil || len(report.Unfelt()) == 0 || report.Unfelt()[0].Do != Rate {
		t.Errorf("%v, unfelt %v", err, report.Unfelt())
	}
}

func TestOnLoopback(t *testing.T) {
	s, err := Parse("operations 30\npause 1ms\nsizes 1MiB 8\nat 20ms cut node1 rail0\nat 100ms heal node1 rail0\nat 120ms reset node0 rail*")
	if err != nil {
		t.Fatal(err)
	}
	report, err := Run(t.Context(), s, Options{Loopback: true})
	if err != nil {
		t.Error(err)
	}
	for _, step := range report.Unfelt() {
		t.Errorf("nobody felt %v", step)
	}
	s.Steps[0].Do = Unplug
	if _, err := Run(t.Context(), s, Options{Loopback: true}); err == nil || !strings.Contains(err.Error(), "unplug") {
		t.Errorf("unplug on loopback: %v", err)
	}
}

// TestAKilledNodeOnLoopbackTellsNothing: it runs on, finds that it reaches nobody, and must not be
// heard.
func TestAKilledNodeOnLoopbackTellsNothing(t *testing.T) {
	s, err := Parse("nodes 10\nrails 1\nsizes 8\npause 1ms\nat 20ms kill node9\nexpect lost node9")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Run(t.Context(), s, Options{Loopback: true}); err != nil {
		t.Error(err)
	}
}

// TestRandomScenarios plays scenarios drawn from seeds. Virtual time replays well, not exactly: the
// order of goroutines isn't drawn.
func TestRandomScenarios(t *testing.T) {
	count, first := seeds.Count(200, 10), uint64(1)
	one, replay := seeds.One()
	if replay {
		count, first = 1, one
	}
	var felt, taken, operations atomic.Int64
	t.Run("seeds", func(t *testing.T) {
		for s := first; s < first+count; s++ {
			t.Run(fmt.Sprint(s), func(t *testing.T) {
				t.Parallel()
				var o Options
				if replay {
					o = aloud(t)
				}
				report, err := play(t, Random(s), o)
				if err != nil {
					t.Errorf("%v\nreplay: go test ./test/faults -run TestRandomScenarios -seed %d -v\n%v", err, s, Random(s))
				}
				operations.Add(int64(report.Operations))
				taken.Add(int64(len(report.Taken)))
				felt.Add(int64(len(report.Taken) - len(report.Unfelt())))
			})
		}
	})
	t.Logf("%d scenarios, %d operations, %d steps taken, %d of them felt or nothing to feel", count, operations.Load(), taken.Load(), felt.Load())
	if felt.Load() < taken.Load()*3/4 {
		t.Errorf("%d of %d steps were felt", felt.Load(), taken.Load())
	}
}
