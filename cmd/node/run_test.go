package main

import (
	"bytes"
	"context"
	"io"
	"strings"
	"testing"
)

// stopAt ends a context as soon as a line with the text is logged.
type stopAt struct {
	bytes.Buffer
	text string
	stop func()
}

func (w *stopAt) Write(b []byte) (int, error) {
	if bytes.Contains(b, []byte(w.text)) {
		w.stop()
	}
	return w.Buffer.Write(b)
}

func TestRunStaysUntilItIsToldToEnd(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	log := &stopAt{text: "node is up", stop: cancel}
	code := execute(ctx, []string{"run", "--name", "a", "--bind", "127.0.0.1:0", "--rail", "r0=tcp:127.0.0.1"}, io.Discard, log)
	if code != exitOK {
		t.Errorf("exit code %d", code)
	}
	for _, want := range []string{"node is up", "r0=tcp:lo 127.0.0.1", "members=[a]", "leaving the cluster"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("%q is not logged:\n%s", want, log.String())
		}
	}
}

func TestRunNamesARailWithoutDevice(t *testing.T) {
	var errs bytes.Buffer
	code := execute(t.Context(), []string{"run", "--name", "a", "--bind", "127.0.0.1:0", "--rail", "r0=tcp:nosuch0"}, io.Discard, &errs)
	if code == exitOK || !strings.Contains(errs.String(), "nosuch0") {
		t.Errorf("exit code %d, %q", code, errs.String())
	}
}

func TestRunWithoutRailsIsWrongUse(t *testing.T) {
	code, _, errs := node(t, "run", "--name", "a")
	if code != exitUsage || strings.Count(errs, "\n") != 1 || !strings.Contains(errs, "rail") {
		t.Errorf("exit code %d, %q", code, errs)
	}
}
