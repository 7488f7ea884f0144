package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/polyrail/polyrail/test/bubble"
	"github.com/polyrail/polyrail/test/faults"
)

func TestChaosShowsATimeLine(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a cluster over loopback")
	}
	file := filepath.Join(t.TempDir(), "scenario")
	text := "nodes 3\noperations 20\npause 1ms\nsizes 8 64KiB\nat 20ms reset node1 rail0\nat 50ms cut node2 rail1\nat 90ms heal node2 rail1\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	code, out, errs := node(t, "chaos", "--scenario", file)
	if code != exitOK || !strings.Contains(out, "reset node1 rail0") || !strings.Contains(out, "OK: every element right") {
		t.Errorf("exit code %d\nstdout:\n%s\nstderr:\n%s", code, out, errs)
	}
}

func TestChaosNamesAFaultyLine(t *testing.T) {
	file := filepath.Join(t.TempDir(), "scenario")
	if err := os.WriteFile(file, []byte("nodes 3\nat once cut node1 rail0\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{file, file + ".missing"} {
		if code, _, errs := node(t, "chaos", "--scenario", name); code != exitUsage || !strings.Contains(errs, name) {
			t.Errorf("exit code %d: %s", code, errs)
		}
	}
}

// A user's first scenario is the one of the help.
func TestTheScenarioOfTheHelpComesOutAsItSays(t *testing.T) {
	var scenario strings.Builder
	for line := range strings.Lines(chaosLong) {
		if strings.HasPrefix(line, "  ") {
			scenario.WriteString(line)
		}
	}
	s, err := faults.Parse(scenario.String())
	if err != nil || s.Nodes != 4 || s.Rails != 2 || len(s.Steps) == 0 {
		t.Fatalf("%v: %v", s, err)
	}
	s.Sizes, s.Pause = []int{8}, 250*time.Millisecond // a few small operations will do
	bubble.Nodes(t, func(t *testing.T) {
		if _, err := faults.Run(t.Context(), s, faults.Options{}); err != nil {
			t.Error(err)
		}
	})
}
