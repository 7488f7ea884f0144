//go:build amd64 && !purego

package shm

import (
	"math"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/cpu"
)

const (
	page      = 4096
	nearAbove = 64 // bytes, in a page
)

// move is an ascending copy by REP MOVSB. The stores that follow it are seen after its own.
//
//go:noescape
func move(dst, src *byte, n int)

// copyBytes is copy for memory that another processor has in its cache, or that no cache holds; dst and
// src don't overlap. The processor's instruction for copies writes whole lines, which it needn't
// read first: decision 059. Below a page, copies take as long either way.
func copyBytes(dst, src []byte) int {
	n := min(len(dst), len(src))
	if n < page || !cpu.X86.HasERMS || near(dst, src) && slowIfNear() {
		return copy(dst, src)
	}
	move(unsafe.SliceData(dst), unsafe.SliceData(src), n)
	return n
}

// near reports whether dst begins a little above src, as addresses in a page go. There some
// processors take src for what they have just written, and copy byte by byte (AMD's Zen 3 and 4).
func near(dst, src []byte) bool {
	above := (uintptr(unsafe.Pointer(unsafe.SliceData(dst))) - uintptr(unsafe.Pointer(unsafe.SliceData(src)))) % page
	return above-1 < nearAbove-1
}

// slowIfNear reports whether this processor is one of these: they take twenty times as long.
var slowIfNear = sync.OnceValue(func() bool {
	b := make([]byte, 3*page)
	dst, src := b[2*page+1:], b[:page-1]
	took := func(f func()) time.Duration {
		least := time.Duration(math.MaxInt64)
		for range 8 {
			start := time.Now()
			f()
			least = min(least, time.Since(start))
		}
		return least
	}
	return took(func() { move(&dst[0], &src[0], len(src)) }) > 4*took(func() { copy(dst, src) })
})
