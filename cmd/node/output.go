package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"syscall"

	"golang.org/x/term"
)

// output is standard output. It remembers the first error and ends the command: what prints need
// not look at each one.
type output struct {
	w    io.Writer
	stop func()
	log  bool // it is standard error: nothing but a reader that has gone is an error

	mu  sync.Mutex
	err error
}

func (o *output) Write(b []byte) (int, error) {
	n, err := o.w.Write(b)
	if err == nil || o.log && !errors.Is(err, syscall.EPIPE) {
		return n, err
	}
	err = fmt.Errorf("standard output: %w", err)
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err == nil {
		o.err = err
		o.stop()
	}
	return n, err
}

// failed is the first error of all writes.
func (o *output) failed() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.err
}

// terminal is the terminal that w writes to, if it is one.
func terminal(w io.Writer) (fd int, ok bool) {
	if o, is := w.(*output); is {
		w = o.w
	}
	f, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return 0, false
	}
	return int(f.Fd()), true
}
