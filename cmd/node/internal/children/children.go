// Package children runs several processes of one program as a group: their output is
// merged by whole lines, the first failure ends them all, and none outlives the group.
package children

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// grace is how long a process may take to end after SIGTERM before it is killed.
const grace = 5 * time.Second

// Child is one process to run. Its standard output goes to the group's as it is;
// lines of its standard error get its name in front.
type Child struct {
	Name string
	Args []string
	Env  []string
}

// Run runs the program once for each child and waits for all of them. When one fails, or ctx
// ends, the others are asked to end (SIGTERM) and after a grace of 5 s killed. The error
// names the child that failed first and what became of it, or is the context's. It also says how
// many failed: the one that caused it may take longer to end than its victims. Output that can't
// be written ends them, too. Of errors that they print when ctx has ended none is shown: they are of
// its end, or of the others'.
func Run(ctx context.Context, program string, children []Child, stdout, stderr io.Writer) error {
	stderr = until{stderr, ctx}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	failed := func(err error) { cancel(fmt.Errorf("what processes print: %w", err)) }
	out, errs := &lines{w: stdout, failed: failed}, &lines{w: stderr, failed: failed}
	var all sync.WaitGroup
	var failures atomic.Int32
	for _, c := range children {
		all.Go(func() {
			err := c.run(ctx, program, out, errs)
			var exit *exec.ExitError
			if err == nil || ctx.Err() != nil && !(errors.As(err, &exit) && exit.Exited()) {
				return // all is well, or the end of the others was this one's
			}
			failures.Add(1)
			cancel(&childError{c.Name, err}) // the first cause stays
		})
	}
	all.Wait()
	err, n := context.Cause(ctx), failures.Load()
	var first *childError
	if errors.As(err, &first) && n > 1 {
		return fmt.Errorf("%w (the first of %d to fail, maybe because of another)", err, n)
	}
	return err
}

// childError is what became of a child.
type childError struct {
	name string
	err  error
}

func (e *childError) Error() string { return fmt.Sprintf("process %s: %v", e.name, e.err) }
func (e *childError) Unwrap() error { return e.err }

func (c Child) run(ctx context.Context, program string, out, errs *lines) error {
	cmd := exec.CommandContext(ctx, program, c.Args...)
	cmd.Env = c.Env
	// A process group of its own: a terminal's Ctrl-C reaches the parent alone, which then
	// ends the children once.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	dieWithParent(cmd.SysProcAttr)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = grace
	stdout, stderr := &linePrefixer{to: out}, &linePrefixer{to: errs, prefix: c.Name + ": "}
	cmd.Stdout, cmd.Stderr = stdout, stderr
	err := cmd.Run()
	stdout.flush()
	stderr.flush()
	return err
}

// lines is a writer that several goroutines share. Who writes does not learn of errors: a child
// whose pipe nobody reads would die of it, and hide the cause.
type lines struct {
	mu     sync.Mutex
	w      io.Writer
	failed func(error)
}

func (l *lines) write(line []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, err := l.w.Write(line); err != nil {
		l.failed(err)
	}
}

// until writes until a context ends; what comes later is left out.
type until struct {
	io.Writer
	ctx context.Context
}

// Write implements io.Writer.
func (u until) Write(b []byte) (int, error) {
	if u.ctx.Err() != nil {
		return len(b), nil
	}
	return u.Writer.Write(b)
}

// maxLine bounds what is held back while a line is incomplete.
const maxLine = 64 << 10

// linePrefixer hands whole lines on, each with the prefix.
type linePrefixer struct {
	to      *lines
	prefix  string
	partial []byte
}

func (p *linePrefixer) Write(b []byte) (int, error) {
	p.partial = append(p.partial, b...)
	for {
		end := bytes.IndexByte(p.partial, '\n') + 1
		if end == 0 && len(p.partial) < maxLine {
			return len(b), nil
		}
		if end == 0 {
			end = len(p.partial)
		}
		p.emit(p.partial[:end])
		p.partial = p.partial[end:]
	}
}

func (p *linePrefixer) flush() {
	if len(p.partial) > 0 {
		p.emit(append(p.partial, '\n'))
	}
}

func (p *linePrefixer) emit(line []byte) {
	p.to.write(append([]byte(p.prefix), line...))
}
