//go:build unix

package main

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestASignalEndsTheWaitForAFileThatIsAPipe(t *testing.T) {
	for _, command := range [][]string{{"run", "--config"}, {"chaos", "--scenario"}} {
		pipe := filepath.Join(t.TempDir(), "pipe")
		if err := syscall.Mkfifo(pipe, 0o600); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		var errs bytes.Buffer
		code := make(chan int, 1)
		go func() { code <- execute(ctx, append(command, pipe), io.Discard, &errs) }()
		select {
		case code := <-code:
			if code != exitFailure || !strings.Contains(errs.String(), "interrupted: ") || !strings.Contains(errs.String(), pipe) {
				t.Errorf("%v: exit code %d, %q", command, code, errs.String())
			}
		case <-time.After(30 * time.Second):
			t.Errorf("%v does not end", command)
		}
		writer, err := os.OpenFile(pipe, os.O_WRONLY, 0) // whoever opens it for reading comes
		if err != nil {
			t.Fatal(err)
		}
		writer.Close()
	}
}
