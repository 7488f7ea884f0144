package memory

import "unsafe"

// heap returns size bytes of garbage-collected memory, aligned. Powers of two come out
// aligned from today's allocator, but the language doesn't promise it.
func heap(size int) []byte {
	b := make([]byte, size)
	if misaligned(b) == 0 {
		return b
	}
	b = make([]byte, size+Alignment)
	skip := Alignment - misaligned(b)
	return b[skip : skip+size : skip+size]
}

func misaligned(b []byte) int {
	return int(uintptr(unsafe.Pointer(unsafe.SliceData(b))) % Alignment)
}
