package main

import (
	"bytes"
	"errors"
	"strings"
	"testing"
)

// full is a device without room.
type full struct{}

var errFull = errors.New("no space left")

func (full) Write([]byte) (int, error) { return 0, errFull }

func TestOutputThatCannotBeWrittenIsAFailure(t *testing.T) {
	for _, args := range [][]string{{"--help"}, {"demo", "--help"}, {"help", "demo"}, {"simulate", "--hosts", "2", "--sizes", "8"},
		{"completion", "bash"}} {
		var errs bytes.Buffer
		code := execute(t.Context(), args, full{}, &errs)
		if code != exitFailure || !strings.Contains(errs.String(), "standard output: no space left") {
			t.Errorf("%v: exit code %d, %q", args, code, errs.String())
		}
	}
}

func TestADemoThatNobodyCanReadFails(t *testing.T) {
	if testing.Short() {
		t.Skip("starts nodes over loopback")
	}
	var errs bytes.Buffer
	code := execute(t.Context(), []string{"demo", "--local", "2x1"}, full{}, &errs)
	if code != exitFailure || strings.Count(errs.String(), "no space left") != 1 {
		t.Errorf("exit code %d, %q", code, errs.String())
	}
}
