package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
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

// gone is a pipe whose reader has gone, from the first line with the text on.
type gone struct{ text string }

func (g gone) Write(b []byte) (int, error) {
	if bytes.Contains(b, []byte(g.text)) {
		return 0, fmt.Errorf("write: %w", syscall.EPIPE)
	}
	return len(b), nil
}

func TestACommandThatNobodyReadsFailsWithoutAWord(t *testing.T) {
	var errs bytes.Buffer
	if code := execute(t.Context(), []string{"simulate", "--hosts", "2"}, gone{}, &errs); code != exitFailure || errs.Len() > 0 {
		t.Errorf("exit code %d, %q", code, errs.String())
	}
}

func TestANodeWhoseLogNobodyReadsLeaves(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // it would stay
	defer cancel()
	args := []string{"run", "--name", "a", "--bind", "127.0.0.1:0", "--rail", "r0=tcp:127.0.0.1"}
	if code := execute(ctx, args, &bytes.Buffer{}, gone{"node is up"}); code != exitFailure {
		t.Errorf("exit code %d", code)
	}
}

// leavesNothing starts processes that have keys, and ends them once they have printed a line.
func leavesNothing(t *testing.T, program string, end func(parent *os.Process, stdout *os.File) error) {
	t.Helper()
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	cmd := exec.CommandContext(t.Context(), program, "bench", "--local", "2", "--sealed", "--sizes", "8,1MiB", "--min-time", "200ms")
	dir := t.TempDir()
	cmd.Env, cmd.Stdout = append(os.Environ(), "TMPDIR="+dir), write
	if err := errors.Join(cmd.Start(), write.Close()); err != nil {
		t.Fatal(err)
	}
	if _, err := bufio.NewReaderSize(read, 16).ReadByte(); err != nil {
		t.Fatal(err)
	}
	if err := end(cmd.Process, read); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); cmd.ProcessState.ExitCode() != exitFailure {
		t.Errorf("it ended so: %v", err)
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) > 0 {
		t.Errorf("it left %v, %v", left, err)
	}
}
