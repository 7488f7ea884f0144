package memory

import "unsafe"

// Aligned returns bytes of garbage-collected memory, zeroed, that count in no pool: for who bounds
// what it takes by itself. The first byte is aligned to Alignment.
func Aligned(bytes int) []byte { return heap(bytes) }

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
