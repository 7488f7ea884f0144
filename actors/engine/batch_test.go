package engine

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"unsafe"

	"github.com/polyrail/polyrail/collective/op"
	"github.com/polyrail/polyrail/railactors/memory"
)

func TestABatchIsItsBuffersOnLinesOfTheirOwn(t *testing.T) {
	for _, limit := range []int64{1 << 20, 100} { // from the pool, and from the heap
		pool := memory.NewPool(limit)
		dirty := pool.Get(256)
		for i := range dirty {
			dirty[i] = 0xa5
		}
		pool.Put(dirty)
		buffers := [][]byte{[]byte("abcdefgh"), nil, bytes.Repeat([]byte{1}, 64), {}, []byte("ijkl")}
		r := &Request{Kind: op.KindAllReduce, DType: op.Int32, Op: op.Sum, Batch: &Batch{Buffers: buffers}}
		r.gather(pool)
		b := r.Batch
		want := make([]byte, 132)
		copy(want, "abcdefgh")
		copy(want[64:], buffers[2])
		copy(want[128:], "ijkl")
		if b.fault != nil || !bytes.Equal(r.Src, want) || !same(r.Src, r.Dst) {
			t.Fatalf("%v: %q, want %q", b.fault, r.Src, want)
		}
		if uintptr(unsafe.Pointer(&r.Src[0]))%memory.Alignment != 0 {
			t.Errorf("limit %d: at %p", limit, r.Src)
		}
		if lent := pool.Stats().InUse > 0; lent != (limit > 256) {
			t.Errorf("limit %d: %d bytes of the pool are in use", limit, pool.Stats().InUse)
		}
		for i := range r.Dst {
			r.Dst[i]++
		}
		b.scatter()
		for i, want := range []string{"bcdefghi", "", strings.Repeat("\x02", 64), "", "jklm"} {
			if string(buffers[i]) != want {
				t.Errorf("buffer %d is %q, want %q", i, buffers[i], want)
			}
		}
		b.Free()
		if s := pool.Stats(); s.InUse != 0 {
			t.Errorf("%d bytes are still in use", s.InUse)
		}
		b.Free() // once is enough
	}
}

func TestAListThatCannotBeABatchTakesNoMemory(t *testing.T) {
	memory1 := make([]byte, 100)
	for want, r := range map[string]*Request{
		"not an element type": {Batch: &Batch{Buffers: [][]byte{memory1}}},
		"buffer 1 of the batch: 3 b": {DType: op.Int32,
			Batch: &Batch{Buffers: [][]byte{memory1[:4], memory1[8:11]}}},
		"buffers 0 and 2": {DType: op.Int32,
			Batch: &Batch{Buffers: [][]byte{memory1[40:60], memory1[:40], memory1[56:64]}}},
		"65537 buffers": {DType: op.Int32, Batch: &Batch{Buffers: make([][]byte, maxBatch+1)}},
		"no counts": {DType: op.Int32, Batch: &Batch{Buffers: [][]byte{memory1}},
			Counts: []int{1}},
	} {
		pool := memory.NewPool(1 << 20)
		r.gather(pool)
		if b := r.Batch; b.fault == nil || !strings.Contains(b.fault.Error(), want) ||
			pool.Stats().Gets != 0 {
			t.Errorf("%v, want %q", r.Batch.fault, want)
		}
	}
}

func TestBuffersMayTouchInAnyOrder(t *testing.T) {
	memory1 := make([]byte, 64)
	if i, j, found := overlapping([][]byte{memory1[32:], memory1[:16], memory1[16:16],
		memory1[16:32], memory1[20:20]}); found {
		t.Errorf("%d and %d overlap", i, j)
	}
}

func TestAWorkCopiesBackOnceAndOnlyWhereItIsRight(t *testing.T) {
	for _, failed := range []bool{false, true} {
		buf := []byte{1, 2, 3}
		r := &Request{Kind: op.KindAllReduce, DType: op.Uint8, Op: op.Sum,
			Batch: &Batch{Buffers: [][]byte{buf}}}
		r.gather(memory.NewPool(1 << 20))
		w := &Work{done: make(chan struct{})}
		copy(r.Dst, []byte{4, 5, 6})
		want := []byte{4, 5, 6}
		if failed {
			w.finish(context.Canceled, r.Batch)
			want = []byte{1, 2, 3}
		}
		w.finish(nil, r.Batch)
		if !bytes.Equal(buf, want) {
			t.Errorf("failed %v: %v, want %v", failed, buf, want)
		}
		buf[0] = 9 // its owner's again
		w.finish(nil, r.Batch)
		if buf[0] != 9 {
			t.Error("copied a second time")
		}
	}
}
