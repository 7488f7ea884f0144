package main

import (
	"io"
	"os"
	"strings"
	"testing"
)

// TestMain lets the test's own binary be the workers.
func TestMain(m *testing.M) {
	for _, arg := range os.Args[1:] {
		if arg == "-worker" {
			main()
			return
		}
	}
	os.Exit(m.Run())
}

func TestTrainingGoesOnThroughAKillAndARejoin(t *testing.T) {
	var out strings.Builder
	if err := demonstrate(&out, 4); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	var models []string
	for line := range strings.Lines(out.String()) {
		if _, model, ok := strings.Cut(line, ": model "); ok {
			models = append(models, model)
		}
	}
	if len(models) != 4 || models[0] != models[1] || models[1] != models[2] || models[2] != models[3] {
		t.Errorf("models %q, want four that are equal\n%s", models, out.String())
	}
}

func TestADemonstrationNeedsAWorkerThatIsLeft(t *testing.T) {
	for _, world := range []int{-1, 0, 1} {
		if err := demonstrate(io.Discard, world); err == nil || !strings.Contains(err.Error(), "-world") {
			t.Errorf("%d workers: %v", world, err)
		}
	}
}
