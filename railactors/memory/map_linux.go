//go:build linux && !race

package memory

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// hugePage is the size from which on a buffer is mapped, in huge pages where the system has
// some: fewer faults at the first touch, and fewer TLB misses afterwards.
// (Under the race detector all memory is the heap's: it doesn't see any other.)
const hugePage = 2 << 20

// allocate returns size bytes (a power of two), or nil when the system has none left.
func allocate(size int) []byte {
	if size < hugePage {
		return heap(size)
	}
	// One huge page too much, to cut an aligned piece out of it.
	p, err := unix.MmapPtr(-1, 0, nil, uintptr(size+hugePage), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return nil
	}
	before := (hugePage - uintptr(p)%hugePage) % hugePage
	data := unsafe.Add(p, before)
	unmap(p, before)
	unmap(unsafe.Add(data, size), hugePage-before)
	b := unsafe.Slice((*byte)(data), size)
	_ = unix.Madvise(b, unix.MADV_HUGEPAGE) // small pages will do
	return b
}

// discard gives back what allocate returned.
func discard(b []byte) {
	if len(b) >= hugePage {
		unmap(unsafe.Pointer(unsafe.SliceData(b)), uintptr(len(b)))
	}
}

func unmap(p unsafe.Pointer, size uintptr) {
	if size == 0 {
		return
	}
	if err := unix.MunmapPtr(p, size); err != nil {
		panic("memory: munmap of our own mapping: " + err.Error())
	}
}
