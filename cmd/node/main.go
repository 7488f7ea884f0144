// Command node runs polyrail nodes: a member of a cluster, a benchmark, a demonstration.
//
// It turns flags, environment and a YAML file into a polyrail.Config and prints what
// comes of it. It decides nothing about communication: that is package polyrail's.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/polyrail/polyrail"
)

// Exit codes.
const (
	exitOK      = 0
	exitFailure = 1
	exitUsage   = 2
)

func main() {
	os.Exit(execute(signalContext(), os.Args[1:], os.Stdout, os.Stderr))
}

// echo is how long after the first signal another one is taken for the same: timeout(1) and
// terminals signal both a process and its group.
const echo = 500 * time.Millisecond

// signalContext ends with the first SIGINT, SIGTERM or SIGHUP; a second one ends the process at
// once. SIGHUP that nohup(1) ignores stays ignored. A pipe that nobody reads is an error of the
// write, and no signal that ends the process and leaves its files behind.
func signalContext() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	if !signal.Ignored(syscall.SIGHUP) {
		signal.Notify(signals, syscall.SIGHUP)
	}
	signal.Ignore(syscall.SIGPIPE)
	go func() { // as long as the process
		<-signals
		first := time.Now()
		cancel()
		for range signals {
			if time.Since(first) > echo {
				os.Exit(exitFailure)
			}
		}
	}()
	return ctx
}

// execute runs the command line args and returns the process's exit code.
func execute(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	root := newRoot()
	root.SetArgs(args)
	working, stop := context.WithCancel(ctx)
	defer stop()
	out, errs := &output{w: stdout, stop: stop}, &output{w: stderr, stop: stop, log: true}
	root.SetOut(out)
	root.SetErr(errs)
	err := root.ExecuteContext(working)
	if failed := cmp.Or(out.failed(), errs.failed()); failed != nil {
		err = failed // what else ended followed from it
		if errors.Is(failed, syscall.EPIPE) {
			return exitFailure // as behind head(1): there is nobody to tell
		}
	}
	if err == nil {
		return exitOK
	}
	var usage *usageError
	wrongUse := !interrupted(ctx, err) && (errors.As(err, &usage) || errors.Is(err, polyrail.ErrConfig))
	if interrupted(ctx, err) {
		err = fmt.Errorf("interrupted: %w", err)
	}
	fmt.Fprintln(stderr, "node:", oneLine(err))
	if wrongUse {
		return exitUsage
	}
	return exitFailure
}

// interrupted reports whether err is what a signal has led to.
func interrupted(ctx context.Context, err error) bool {
	return ctx.Err() != nil && errors.Is(err, context.Canceled)
}

// oneLine is the text of err without line breaks: joined errors become a list. Others may have
// written parts of it.
func oneLine(err error) string {
	return printable(strings.ReplaceAll(strings.TrimSpace(err.Error()), "\n", "; "))
}

// usageError is a fault of the command line, the environment or the configuration file.
type usageError struct{ error }

func (e *usageError) Unwrap() error { return e.error }

func usagef(format string, args ...any) error {
	return &usageError{fmt.Errorf(format, args...)}
}
