//go:build amd64 && !purego

package memory

import "unsafe"

// What the assembly writes, in bytes.
const (
	streamAlign = 64 // a cache line; where it begins
	streamBytes = 64 // at a time
)

//go:noescape
func stream(dst, src *byte, n int)

// Stream is copy to memory that nobody reads soon. It goes past the caches: what is written is not
// read into them before, and nothing else leaves them for it.
func Stream(dst, src []byte) int {
	n := min(len(dst), len(src))
	if n < streamAlign+streamBytes {
		return copy(dst, src)
	}
	head := int(-uintptr(unsafe.Pointer(&dst[0])) % streamAlign)
	copy(dst[:head], src)
	end := head + (n-head)/streamBytes*streamBytes
	stream(&dst[head], &src[head], end-head)
	copy(dst[end:n], src[end:n])
	return n
}
