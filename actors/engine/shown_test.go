package engine

import (
	"errors"
	"testing"
	"unsafe"

	"github.com/polyrail/polyrail/collective/op"
	"github.com/polyrail/polyrail/collective/table"
	"github.com/polyrail/polyrail/messages/wire"
	"github.com/polyrail/polyrail/railactors/board"
	"github.com/polyrail/polyrail/railactors/transport"
)

// Who looks at a page may find there what a frame has brought since, and with that the end of the
// operation: it is folded once.
func TestAnOperandThatAFrameHasBroughtIsNotTakenAgain(t *testing.T) {
	words := make([]uint64, transport.ShownBytes/8)
	m := transport.NewMemory(unsafe.Slice((*byte)(unsafe.Pointer(&words[0])), transport.ShownBytes), func() {})
	page := board.New(m).Allot(9)
	from, _ := board.Find(m, 9)
	o := &Operation{group: &Group{Rank: 0, Size: 2}, Seq: 1, phase: phaseRunning, request: &Request{bytes: 8}}
	o.shown.active, o.shown.stride, o.shown.operands = true, operandAlign, make([]byte, 2*operandAlign)
	o.shown.missing.Store(1 << 1)
	page.Show(&board.Call{Seq: 1}, []byte{1, 2, 3, 4, 5, 6, 7, 8})
	o.mu.Lock()
	if !o.came(1) { // the frame
		t.Error("something is missing")
	}
	o.mu.Unlock()
	if complete, err := o.take(1, from); complete || err != nil {
		t.Errorf("it is complete again: %v, %v", complete, err)
	}
	if o.operandOf(1)[0] != 0 {
		t.Error("it is overwritten")
	}
	o.shown.missing.Store(1 << 1)
	if complete, err := o.take(1, from); !complete || err != nil || o.operandOf(1)[0] != 1 {
		t.Errorf("it is not taken: %v, %v, %v", complete, err, o.operandOf(1))
	}
}

// A communicator breaks while an operation misses its own operand alone. Its caller, who is about
// to give it, would end the operation a second time.
func TestAnOperationThatWasAbortedMissesNoOperand(t *testing.T) {
	g := testGroup(t, 1)
	o, err := g.Number(1)
	if err != nil {
		t.Fatal(err)
	}
	o.phase, o.request = phaseRunning, &Request{bytes: 8}
	o.work = g.NewWork(o.request, make(chan struct{}, 1))
	o.shown.active, o.unresolved, o.unretired = true, 1, 1
	o.shown.missing.Store(1 << 0)
	o.holds++ // the launch
	g.Fail(errors.New("rank 1 is lost"), 1)
	if missing := o.shown.missing.Load(); missing != 0 || o.work.Err() == nil {
		t.Errorf("it misses the operands %b, and has ended with %v", missing, o.work.Err())
	}
}

// An operand was taken from a page, and comes late as a frame, too. A table with trees is in force by
// then, under which no operand is shown.
func TestAFrameOfAnOperandThatWasTakenIsNoMismatch(t *testing.T) {
	g := &Group{Name: "train", Size: 2, Meshed: true, Nodes: []string{"a", "b"}, boards: &boards{},
		engine: &Engine{Config: Config{EagerBytes: 1 << 10}}}
	g.Fail = func(cause error, _ uint64) { t.Error(cause) }
	g.Table.Store(&table.Table{Trees: []uint64{5}})
	desc := op.Descriptor{Kind: op.KindAllReduce, DType: op.F64, Algorithm: op.RecursiveDoubling, Elements: 1}
	g.past[1] = pastOperation{1, desc, 7}
	g.late(1, &wire.Header{Seq: 1, Digest: 7, Desc: desc}, false)
	if n := g.DroppedFrames.Load(); n != 1 {
		t.Errorf("%d frames dropped", n)
	}
	failed := false
	g.Fail = func(error, uint64) { failed = true }
	if g.late(1, &wire.Header{Seq: 1, Digest: 8, Desc: desc}, false); !failed {
		t.Error("another call is taken for it")
	}
}
