package engine

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unsafe"

	"github.com/polyrail/polyrail/railactors/memory"
)

// This file is about many buffers as one operation: they are copied into one piece of memory
// when it is called, and back before its Work resolves.

// maxBatch bounds the buffers of one batch.
const maxBatch = 1 << 16

// Batch is the list of an allreduce of many buffers. A nil one is that of any other call.
type Batch struct {
	Buffers [][]byte

	fault  error        // why it can't be run
	memory []byte       // as long as the call is in flight
	pool   *memory.Pool // that lent the memory; nil where the heap did
}

// Gather copies the buffers of a batched call into one memory, which becomes its Src and Dst. A
// list that is wrong keeps its fault: the call takes a seq still, as on the other ranks. A call
// that gets no operation gives the memory back by Batch.Free.
func (g *Group) Gather(r *Request) { r.gather(g.engine.Pool) }

func (r *Request) gather(pool *memory.Pool) {
	b := r.Batch
	if b == nil {
		return
	}
	if b.fault = r.checkBatch(); b.fault != nil {
		return
	}
	total := 0
	for _, buf := range b.Buffers {
		total = alignBatch(total) + len(buf)
	}
	b.memory, b.pool = pool.Get(total), pool
	if b.memory == nil { // the limit is no reason to fail: the caller's buffers are as large
		b.pool, b.memory = nil, alignedMemory(total)
	}
	at := 0
	for _, buf := range b.Buffers {
		start := alignBatch(at)
		clear(b.memory[at:start])
		at = start + copy(b.memory[start:], buf)
	}
	r.Src, r.Dst = b.memory, b.memory
}

// len is the number of buffers, as it fits a header.
func (b *Batch) len() int {
	if b == nil {
		return 0
	}
	return min(len(b.Buffers), maxBatch)
}

// scatter copies the results back.
func (b *Batch) scatter() {
	if b == nil {
		return
	}
	at := 0
	for _, buf := range b.Buffers {
		at = alignBatch(at)
		at += copy(buf, b.memory[at:])
	}
}

// Free gives the memory back, once nothing refers to it.
func (b *Batch) Free() {
	if b == nil {
		return
	}
	if b.pool != nil {
		b.pool.Put(b.memory)
	}
	b.memory, b.pool = nil, nil
}

// alignBatch is where the next buffer stands: on a line of its own, as kernels and cuts have it.
func alignBatch(n int) int { return (n + memory.Alignment - 1) &^ (memory.Alignment - 1) }

func alignedMemory(n int) []byte {
	p := make([]byte, n+memory.Alignment)
	skew := int(-uintptr(unsafe.Pointer(unsafe.SliceData(p))) % memory.Alignment)
	return p[skew : skew+n]
}

// checkBatch reports a list that can't be one operation.
func (r *Request) checkBatch() error {
	size := r.DType.Size()
	switch {
	case size == 0:
		return fmt.Errorf("%v is not an element type", r.DType)
	case r.Counts != nil:
		return fmt.Errorf("a batch has no counts")
	case len(r.Batch.Buffers) > maxBatch:
		return fmt.Errorf("a batch of %d buffers, at most %d are allowed", len(r.Batch.Buffers), maxBatch)
	}
	for i, buf := range r.Batch.Buffers {
		if len(buf)%size != 0 {
			return fmt.Errorf("buffer %d of the batch: %d bytes are no whole number of %v", i,
				len(buf), r.DType)
		}
	}
	if i, j, overlap := overlapping(r.Batch.Buffers); overlap {
		return fmt.Errorf("buffers %d and %d of the batch overlap", i, j)
	}
	return nil
}

// overlapping finds two buffers that share memory.
func overlapping(buffers [][]byte) (i, j int, found bool) {
	order := make([]int, 0, len(buffers))
	for i, buf := range buffers {
		if len(buf) > 0 {
			order = append(order, i)
		}
	}
	first := func(i int) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(buffers[i]))) }
	slices.SortFunc(order, func(i, j int) int { return cmp.Compare(first(i), first(j)) })
	for k := 1; k < len(order); k++ {
		i, j := order[k-1], order[k]
		if first(i)+uintptr(len(buffers[i])) > first(j) {
			return min(i, j), max(i, j), true
		}
	}
	return 0, 0, false
}

// maxListed bounds the lengths in an error's text.
const maxListed = 8

// listed is a batch's lengths in words.
func (r *Request) listed() string {
	var s strings.Builder
	for i, buf := range r.Batch.Buffers {
		if i == maxListed {
			s.WriteString(", …")
			break
		}
		if i > 0 {
			s.WriteString(", ")
		}
		fmt.Fprint(&s, len(buf)/r.DType.Size())
	}
	return s.String()
}
