package engine

import (
	"testing"
	"unsafe"

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
