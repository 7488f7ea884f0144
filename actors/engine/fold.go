package engine

import (
	"fmt"
	"sync"
	"time"

	"github.com/polyrail/polyrail/collective/op"
	"github.com/polyrail/polyrail/collective/task"
	"github.com/polyrail/polyrail/railactors"
)

// fold is a Reduce whose last operand is folded from the memory of the connection that brings it:
// docs/decisions/036. It is a railactors.Fold.
type fold struct {
	part   *part
	reduce task.Action
	dst    []byte // what is not folded yet
	other  []byte // likewise: the operand that is here
	left   bool   // the frame is the left operand
	err    error
	trace  *Trace // nil: nothing is recorded
	began  time.Duration

	// An element whose beginning was the end of a piece.
	element [maxElement]byte
	size    int // of an element
	has     int // bytes of it
}

// maxElement is the largest element's size.
const maxElement = 16

var folds = sync.Pool{New: func() any { return new(fold) }}

// Fold implements railactors.Folder. A caller's function gets no memory that somebody else can
// change or that is not to be written.
func (o *Operation) Fold(t uint64, whole bool) railactors.Fold {
	if o.request.Op.Code() == op.CodeUser {
		return nil
	}
	ref, lane, _ := untag(t)
	o.mu.Lock()
	p := &o.parts[lane]
	a, operand, ok := p.task.Claim(ref, whole)
	o.mu.Unlock()
	if !ok {
		return nil
	}
	f := folds.Get().(*fold)
	*f = fold{part: p, reduce: a, dst: p.at(a.Dst), other: p.at(a.Args[1-operand]), left: operand == 0,
		size: o.shape.desc.DType.Size()}
	if f.trace = o.group.trace.Load(); f.trace != nil {
		f.began = o.now(f.trace)
	}
	return f
}

// Borrow implements transport.Borrower.
func (f *fold) Borrow(piece []byte) {
	if f.has > 0 {
		k := copy(f.element[f.has:f.size], piece)
		if f.has, piece = f.has+k, piece[k:]; f.has < f.size {
			return
		}
		f.combine(f.element[:f.size])
	}
	whole := len(piece) / f.size * f.size
	f.combine(piece[:whole])
	f.has = copy(f.element[:], piece[whole:])
}

// combine folds elements.
func (f *fold) combine(p []byte) {
	if len(p) == 0 || f.err != nil {
		return
	}
	n := len(p)
	a, b := f.other[:n], p
	if f.left {
		a, b = b, a
	}
	f.err = f.part.operation.combine(f.dst[:n], a, b)
	f.dst, f.other = f.dst[n:], f.other[n:]
}

// Arrived implements railactors.Receiver.
func (f *fold) Arrived(t uint64, _ *railactors.Batch) {
	p, o := f.part, f.part.operation
	if f.err != nil {
		o.fail(fmt.Errorf("operator %v: %w", o.request.Op, f.err))
	}
	p.reduced(&f.reduce, f.trace, f.began)
	f.free()
	ref, lane, rail := untag(t)
	o.stepOn(lane, rail, task.Event{Kind: task.Folded, Ref: ref})
}

// Torn implements railactors.Receiver.
func (f *fold) Torn(t uint64, err error) {
	o := f.part.operation
	f.free()
	o.Torn(t, err)
}

func (f *fold) free() {
	*f = fold{}
	folds.Put(f)
}
