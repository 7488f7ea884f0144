package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

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

func TestTheStatementsOfTheHelpAreThoseOfScenarios(t *testing.T) {
	var scenario strings.Builder
	for line := range strings.Lines(chaosLong) {
		if strings.HasPrefix(line, "  ") {
			scenario.WriteString(line)
		}
	}
	if s, err := faults.Parse(scenario.String()); err != nil || s.Nodes != 4 || s.Rails != 2 || len(s.Steps) == 0 {
		t.Errorf("%v: %v", s, err)
	}
}
