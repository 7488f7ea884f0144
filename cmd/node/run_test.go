package main

import (
	"bytes"
	"context"
	"io"
	"net"
	"strings"
	"testing"
	"time"
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

// A signal is how run ends, also while it waits for a node to join by.
func TestRunThatIsToldToEndBeforeItIsUpHasNotFailed(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		if c, err := silent.Accept(); err == nil {
			defer c.Close()
			cancel()
			<-t.Context().Done()
		}
	}()
	var log bytes.Buffer
	code := execute(ctx, []string{"run", "--name", "a", "--bind", "127.0.0.1:0", "--join", silent.Addr().String(),
		"--rail", "r0=tcp:127.0.0.1"}, io.Discard, &log)
	if code != exitOK || !strings.Contains(log.String(), "told to end before the node was up") {
		t.Errorf("exit code %d:\n%s", code, log.String())
	}
}

func TestRunNamesARailWithoutDevice(t *testing.T) {
	var errs bytes.Buffer
	code := execute(t.Context(), []string{"run", "--name", "a", "--bind", "127.0.0.1:0", "--rail", "r0=tcp:nosuch0"}, io.Discard, &errs)
	if code == exitOK || !strings.Contains(errs.String(), "nosuch0") {
		t.Errorf("exit code %d, %q", code, errs.String())
	}
}

func TestBenchSaysWhomItWaitsForAndWhichAddressDoesNotAnswer(t *testing.T) {
	const dead = "127.0.0.1:1" // nobody listens there
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	errs := &stopAt{text: "still waiting for a communicator", stop: cancel}
	code := execute(ctx, []string{"bench", "--ranks", "2", "--name", "a", "--bind", "127.0.0.1:0", "--join", dead,
		"--rail", "r0=tcp:127.0.0.1", "--rail", "r1=tcp:nosuch0"}, io.Discard, errs)
	log := errs.String()
	last := log[strings.LastIndex(strings.TrimSpace(log), "\n")+1:]
	if code != exitFailure || !strings.Contains(last, dead) || !strings.Contains(last, "1 of 2 nodes have asked (a)") {
		t.Errorf("exit code %d, at last: %s", code, last)
	}
	for _, want := range []string{"rail is absent", "nosuch0", "no node to join by answers"} {
		if !strings.Contains(log, want) {
			t.Errorf("%q is not logged:\n%s", want, log)
		}
	}
}

func TestRunWithoutRailsIsWrongUse(t *testing.T) {
	code, _, errs := node(t, "run", "--name", "a")
	if code != exitUsage || strings.Count(errs, "\n") != 1 || !strings.Contains(errs, "rail") {
		t.Errorf("exit code %d, %q", code, errs)
	}
}

func TestAPortInUseIsAFailureAndNoWrongUse(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	taken := l.Addr().String()
	for _, flag := range []string{"--http", "--bind"} {
		args := []string{"run", "--name", "a", "--bind", "127.0.0.1:0", "--rail", "r0=tcp:127.0.0.1", flag, taken}
		code, _, errs := node(t, args...)
		if code != exitFailure || !strings.Contains(errs, "cannot listen on "+taken) || strings.Contains(errs, "configuration") {
			t.Errorf("%s: exit code %d, %q", flag, code, errs)
		}
	}
}
