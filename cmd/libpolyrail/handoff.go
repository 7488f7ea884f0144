//go:build cgo

package main

// #include "handoff.h"
import "C"

import (
	"fmt"
	"os"
	"sync"
	"sync/atomic"

	"github.com/polyrail/polyrail"
	"github.com/polyrail/polyrail/cmd/libpolyrail/internal/bridge"
)

// openHandoff begins to take calls from callers that sleep in C. That goes on until the process
// ends: it is one descriptor and one goroutine, however many nodes come and go.
var openHandoff = sync.OnceFunc(func() {
	var sizes [C.HANDOFF_TYPES]C.uchar
	for _, d := range polyrail.DTypes() {
		sizes[d] = C.uchar(d.Size())
	}
	if fd := C.handoff_open(&sizes[0]); fd >= 0 {
		bell := os.NewFile(uintptr(fd), "eventfd")
		go bridge.TakeCalls(next, func() error {
			var count [8]byte
			_, err := bell.Read(count[:])
			return err // the process has closed it: callers find that out, and enter Go
		})
	}
})

// next is how the next call is started that was handed over.
func next() func(blocks func()) {
	c := C.handoff_next()
	if c == nil {
		return nil
	}
	return func(blocks func()) { take(c, blocks) }
}

// take starts a call. Whoever ends the operation wakes the caller.
func take(c *C.handoff_call, blocks func()) {
	var over atomic.Bool
	end := func(outcome func() C.int) {
		if over.CompareAndSwap(false, true) {
			C.handoff_end(c, outcome())
		}
	}
	defer func() {
		if r := recover(); r != nil {
			end(func() C.int { return fail(fmt.Errorf("%w: %v", polyrail.ErrInternal, r), c.error) })
		}
	}()
	comm := bridge.Handle(c.comm)
	op, opts, err := operation(comm, c.operation)
	if err != nil {
		end(func() C.int { return fail(err, c.error) })
		return
	}
	lib.Hand(comm, op, call(c.async), blocks, func(o bridge.Outcome, err error) {
		end(func() C.int { return finish(o, err, c.async, c.result, c.error) })
	}, opts...)
}
